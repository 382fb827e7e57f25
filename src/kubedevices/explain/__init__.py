"""Why is my device not allocatable, or not usable in its container? For `kubedevices explain`.

Follows a device on its way and says of each station what was found and what to do. Whoever looks
or asks returns facts, whoever judges is pure; only `walk` knows both. Reads, and changes nothing.

finding          one station: ok, unknown, warning or problem, and what to do about it
facts            what was seen, as values
places           where to look on a host
walk             all of it in the order of the way: the report
look_directory   the plugin directory, its sockets, and who listens on them
look_processes   processes, their pods, kubelets and where their files are
look_sockets     Unix sockets of all network namespaces and who has them open
ask              a node of ours, a kubelet, its checkpoint, a plugin
look_files       device files on the host and in containers, SELinux
look_drivers     DRA drivers, their claims and what they refused
commands         what to type about a process
judge_directory  where plugins and kubelet meet
judge_proxy      a proxy between plugin and kubelet
judge_resource   name, registration, health, holders, NUMA nodes
judge_claims     claims of DRA drivers
plugin_lists     which plugin is that of which resource, and who offers one twice
judge_files      device files, links, permissions, CDI names, what a container sees
"""
