"""The proxy: a process between plugins of other vendors and the kubelet. Imports nothing.

"Inside" is the side of the plugins, where the proxy acts as a kubelet. "Outside" is the side of the
kubelet, where the proxy acts as a plugin.

proxy              the process: every resource, from start to stop
proxied_resource   one resource outside: its middleware chain and its runner
middleware_chain   the middleware over one plugin, in its fixed order
live_rules         the rules in force; reads their file again when it changes
proxy_config       the schema of this file, and the rule of a resource
not_in_dra         the keys of a rule that mode dra cannot follow, with the reasons
inside_directory   the directory where plugins register, also after a restart of the proxy
state_service      answers `kubedevices devices` and `explain` about the plugins behind the proxy
known_sockets      a file with the sockets of plugins, for a restart of the proxy
saved_list         files with the last lists of plugins, for the next boot
dra_bridge         plugins as DRA drivers, one driver for each domain
plugin_scanner     one plugin as a scanner: its lists as device trees
plugin_calls       one plugin's calls as abilities, each with a deadline
foreign_list       a plugin's list as devices
replay             serves a record as a plugin
record_reader      reads the files of a record
"""
