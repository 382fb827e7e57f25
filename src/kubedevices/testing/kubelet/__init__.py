"""A kubelet for tests that can also misbehave. The conformance checks and the bench use it.

The probe speaks only to plugins, over `wire`. It has the directories of a kubelet, and it records
what plugins do. It does not decide anything about devices.

kubelet        `Probe`: kubelet.sock, its faults, and all kinds of restarts
arrival        one Register call of a plugin, and how the probe answers it
reception      the steps between Register and its answer: dial, options
watcher        the plugin watcher: finds sockets in the plugin registry directory
session        one registered plugin: its connection, calls and device lists
no_pods        a podresources socket, for plugins that do not start without one
change_signal  waits for a condition until something changes
raw_http2      HTTP/2 frames by hand, to break the protocol
mounts         a private view of the file system, with our directories at the kubelet's paths
linux          system calls that Python lacks
"""
