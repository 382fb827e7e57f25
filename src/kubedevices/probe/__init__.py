"""A kubelet that can misbehave on purpose: what the conformance checks and the bench act through.

It speaks to plugins only, over `wire`, shows them the directories of a kubelet, and decides nothing
about devices.

change_signal  waiting for something the probe notices
raw_http2  HTTP/2 frames by hand, for what no honest client does
session    one registered plugin: its calls and every list it ever sent
arrival    a plugin that registers, and how this kubelet answers it: at once, late, with an error
reception  what happens between Register and its answer
kubelet    `Probe`: kubelet.sock and its faults, restarts of every kind
mounts     a private view of the file system, in which a plugin finds us at the kubelet's paths
linux      the system calls for it that Python lacks
watcher    the other way to register: sockets found in the plugin registry directory
"""
