"""Plugins of others, with us between them and the kubelet. A map; imports nothing.

Inside, towards the plugin, a kubelet's half; outside, towards the kubelet, a plugin's.

proxy              every resource, from the start of the process to its end
proxied_resource   one resource outside: chain and runner, made anew when something about it changes
chain              the middleware over one plugin, in its fixed order
rules              the rules in force, followed as their file changes
proxy_config       what may stand in this file
rule_keys          the values of its keys, each with its checks
inside_directory   the directory of the plugins: where they register, and who is known from before
state_service      what is behind the proxy and what the kubelet gets, for those who ask
known_sockets      which resource has which socket, kept over our own restarts
bridge             plugins as DRA drivers, one for each domain
plugin_scanner     one plugin as a scanner: its lists as device trees
plugin_calls       one plugin's calls as abilities, each with a deadline
foreign_list       a plugin's list as devices
replay             a record in the place of a plugin
recording          what the files of a record hold
"""
