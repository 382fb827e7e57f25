"""How a plugin arrives, stays and ends.

plugin_directory  the directory plugins register in, cleaned before it is used
registration      the Registration service on kubelet.sock
plugin_watcher    the other way to arrive: sockets in the plugin registry directory
registry_state    which of those sockets need something done
endpoint          one connected plugin: its calls, its stream of lists
reopening         when a lost stream is opened again
endpoint_table    every connected plugin, and which instance of it counts
"""
