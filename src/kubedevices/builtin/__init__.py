"""Plugins that are ready to run. A map; imports nothing.

simulator          simulated devices, to try everything else
simulator_config   what is simulated
simulator_settings  the sources of that: defaults, YAML, environment, flags
simulator_file     the YAML file of the simulator
simulator_steps    what can happen to its devices, by timeline or control socket
simulated_devices  which of them there are now
simulated_files    what stands in for their device files
simulator_answers  how they are handed out
expose             this host's devices, followed as they come and go
expose_host        what the host has: by path, USB and PCI; what identifies it for good
expose_tree        which devices a configuration makes of that
expose_memory      numbers, and devices that have just gone, from one look to the next
expose_abilities   how one resource answers: preferences and limits
expose_config      what may stand in its YAML file
expose_match       how the file finds devices
expose_names       resources named after their matches
expose_checks      whether single values of it are right
expose_profiles    ready files for common hardware, one in profiles/ for each kind
path_patterns      globs that remember what their wildcards stood for
foreign_configs    files of other device plugins, turned into expose's
foreign_sources    where such files have their settings: also in a DaemonSet or a ConfigMap
foreign_generic    those of generic-device-plugin
foreign_smarter    those of smarter-device-manager
conversion         what both need: mistakes and notes
"""
