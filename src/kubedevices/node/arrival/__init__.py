"""How a plugin arrives, stays and ends.

plugin_directory  the directory of plugin sockets: claimed, cleaned, locked
registration      the Registration service on kubelet.sock
plugin_watcher    registers plugins whose sockets appear in the plugin registry directory
registry_state    which of these sockets have to be registered or unregistered
endpoint          one connected plugin instance: its calls, its stream of lists
list_memory       the memory that the lists of all plugins may use
reopening         when an endpoint opens a lost stream again
endpoint_table    every connected plugin instance
registry_scan     finds sockets in the plugin registry, some files at a time
"""
