"""Follows a device of this host from its plugin into a container.

For each station on this way it says what was found and what to do. The modules `look_…` and `ask`
gather facts, the modules `judge_…` turn facts into findings. Only `diagnosis` imports both. Only
`do_repairs` changes the host.

facts               the facts, as values
driver_facts        the facts about DRA drivers and claims, as values
host_paths          in which directories and files of a host to look
diagnosis           has all facts judged, in the order of the stations: the report
look_node           gathers all facts about a node
look_directory      the plugin directory, its sockets, and the processes that listen on them
look_processes      processes, their pods, kubelets and their configuration files
look_socket_owners  processes that have a Unix socket open, in all network namespaces
ask                 a kubedevices node, a kubelet, its checkpoint, a plugin
look_files          device files on the host and in containers, SELinux
look_drivers        the files of our DRA drivers: their claims and the claims that they refused
look_claims         the kubelet's checkpoint of claims
join_claims         puts together what files and sockets say about drivers and claims
look_names          which device file each ID of `expose` means
commands            shell commands about a process or claim, for the advice of a finding
judge_directory     the plugin directory: kubelet.sock and the sockets of plugins
judge_proxy         a proxy between plugin and kubelet
judge_resource      name, registration, health, holders, NUMA nodes
judge_holders       a device that is held under two IDs, or in both device APIs
judge_drivers       DRA drivers and their claims
judge_rivals        which plugin serves which resource, and which resource has two plugins
judge_files         device files, links, permissions, CDI names, devices inside a container
repairs             which repairs of a node are safe
do_repairs          does them, each after another look
"""
