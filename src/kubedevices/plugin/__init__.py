"""A plugin process, from a scanner to a registered DevicePlugin service. A map; imports nothing.

The ListAndWatch streams, which send the device lists, are in `server`.

capabilities        abilities that a plugin author may add to a scanner: abstract classes
scanner             the base class Scanner: finds devices
polled_scanner      calls a function again and again: PolledScanner
scanners            ready scanners: periodic, static, merge
stoppable           the method `stop` of everything that runs; calls from other threads
notifier            takes device trees from a scanner; finds the changes since the last tree
scan_task           runs one scanner on the event loop and waits for its trees
author_errors       which line of the author's code raised an error
log_lines           log lines on stderr, of every verb and of `kd.run`
hook_threads        threads for the author's code, which may block
hooks               the abilities of one plugin object, as coroutines
numa_lookup         looks up NUMA nodes that the author did not set
allocation_policy   ready policies for preferred allocation
allocate_response   the default answer to Allocate
cdi_form            the CDI device of a device
cdi                 keeps the plugin's CDI files up to date when its devices change
device_list         devices in the form ListAndWatch sends them, each device encoded once
open_streams        counts the open ListAndWatch streams of a resource
server              the DevicePlugin service of one resource: ListAndWatch, Allocate and the others
timing              every waiting time, as one value
supervised_tasks    tasks that run as long as the process, each again after an error
register_call       makes one Register call and judges the answer
registration_state  says when the registration is lost and when to register again
registration_loop   registers at kubelet.sock, and registers again after each loss
watched_plugin      the other way to register: the kubelet finds the plugin's socket
newer_instance      whether a newer instance has the resource, and how long we trust it
other_instances     talks to other instances of the plugin: the newest instance gets the resource
registrar           owns the socket: binds and serves it, and runs one of the two ways to register
config_follower     reads a configuration again when its file changes
options             what the author may choose
served_type         one device type: server and registrar, from its first devices to its removal
stop_signals        SIGTERM, SIGINT and SIGHUP
runner              one scanner and one served type per device type, from start to stop
side_by_side        several runners in one process
"""
