"""Plugins that are ready to run: the simulator and `expose`. Imports nothing.

simulator            simulated devices, to test everything else
simulator_config     the settings of one simulated resource, as a value
simulator_settings   merges settings: defaults, YAML file, environment, command line
simulator_file       the schema of the simulator's YAML file
simulator_steps      changes of simulated devices, by timeline or control socket
simulated_devices    the simulated devices of this moment
simulated_files      files that replace the device files of simulated devices
simulator_answers    the answers of a simulated resource to the kubelet
expose               this host's devices, by a YAML file
expose_host          finds devices of the host by path, USB and PCI, and their stable names
expose_tree          makes devices and IDs from the host's devices, by the configuration
expose_memory        remembers devices, their numbers and devices that were just removed
expose_abilities     the answers of a resource: preferences and limits
expose_config        the schema of expose's YAML file
expose_match         the schema of its key `match`
expose_names         resources that are named after their matches
expose_checks        checks of single values in the file
expose_profiles      ready files for common hardware, in profiles/
path_patterns        globs that remember the text that each wildcard matched
foreign_configs      converts files of other device plugins into expose's
foreign_sources      finds these settings in a file, a DaemonSet or a ConfigMap
foreign_generic      converts settings of generic-device-plugin
foreign_smarter      converts settings of smarter-device-manager
foreign_conversion   mistakes and notes of a conversion, for both
"""
