"""Plugins that are ready to run. A map; imports nothing.

simulator         devices that do not exist, for trying out everything else
simulator_config  its settings: defaults, YAML, environment, flags
simulator_file    the YAML file of the simulator
expose            this host's devices, followed as they come and go
expose_tree       which devices a configuration makes of which files
expose_config     what may stand in its YAML file
path_patterns     globs that remember what their wildcards stood for
yaml_config       a YAML file checked against dataclasses, all mistakes at once
yaml_source       YAML nodes with their place in the file
"""
