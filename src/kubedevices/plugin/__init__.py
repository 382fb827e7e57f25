"""A plugin process, from a scanner to a registered DevicePlugin service. A map; imports nothing.

capabilities       abilities that a plugin author may add to a scanner: abstract classes
scanner            Scanner and PolledScanner: find devices
scanning           one scan as a task: begun, watched and ended
scanners           scanners made of functions and of other scanners
notifier           takes device trees from the scanner; finds the changes since the last tree
tree_updates       the event loop's end of a notifier
author_code        which line of the author's own code raised
hook_threads       threads for the author's code, which may block
hooks              the abilities of one plugin object, ready to be awaited
numa_lookup        fills in the NUMA nodes an author left to us
allocation_policy  ready policies for preferred allocation
allocate_response  the default answer to Allocate
inject             how a device gets into a container
cdi_form           a device in the words of CDI
cdi_files          the plugin's CDI files, in step with its devices
device_list        devices as ListAndWatch sends them, each encoded once
open_streams       which ListAndWatch streams of a resource are open
server             the DevicePlugin service of one resource
timing             every waiting time, as one value
registration_state  how long one registration holds, and when to register again
reminder           when to log again that the plugin still waits
watched            the other way to register: be found by the kubelet
register_call      one Register call, and what its end says
siblings           other instances of the plugin: the older gives way to the newer
kept_registration  registers, and registers again after a kubelet restart
registrar          serves on a socket of its own, and again when the socket is lost
config_follower    reads a configuration again when its file changes
options            what the author may choose
served_type        one device type: server and registrar, from its first devices to its removal
stop_signals       SIGTERM and SIGINT
runner             one scanner, one served type per device type, start to stop
"""
