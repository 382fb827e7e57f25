"""Explains why a device is not allocatable, or not usable in its container: `kubedevices explain`.

`explain` follows a device from its plugin into a container. For each station on this way it says
what was found and what to do. The modules `look_…` and `ask` gather facts. The modules `judge_…`
turn facts into findings; they are pure. Only `diagnosis` imports both. Only `do_repairs` changes
the host. A cluster, and a node, pod or claim of it, is judged from the cluster's objects alone.

finding          one station: ok, unknown, warning or problem, and what to do about it
facts            the facts, as values
driver_facts     the facts about DRA drivers and claims, as values
host_paths       in which directories and files of a host to look
diagnosis        has all facts judged, in the order of the stations: the report
look_node        gathers all facts about a node
look_directory   the plugin directory, its sockets, and the processes that listen on them
look_processes   processes, their pods, kubelets and their configuration files
look_sockets     Unix sockets of all network namespaces, and the processes that have them open
ask              a kubedevices node, a kubelet, its checkpoint, a plugin
look_files       device files on the host and in containers, SELinux
look_drivers     the files of our DRA drivers: their claims and the claims that they refused
look_claims      the kubelet's checkpoint of claims
join_claims      puts together what files and sockets say about drivers and claims
look_names       which device file each ID of `expose` means
commands         shell commands about a process or claim, for the advice of a finding
judge_directory  the plugin directory: kubelet.sock and the sockets of plugins
judge_proxy      a proxy between plugin and kubelet
judge_resource   name, registration, health, holders, NUMA nodes
judge_holders    a device that is held under two IDs, or in both device APIs
judge_drivers    DRA drivers and their claims
plugin_lists     which plugin serves which resource, and which resource has two plugins
judge_files      device files, links, permissions, CDI names, devices inside a container
repairs          which repairs of a node are safe
do_repairs       does them, each after another look
cluster          the objects of a cluster that decide about claims, and who holds which device
look_cluster     reads these objects from the API server
device_table     the devices of a cluster, of both APIs, with their holders
bundle           a file for a bug report: what was read, and the answer
answer           the answer about a subject of a cluster, and the reason for each device
judge_subject    the answer about a cluster, a node, a pod or a claim
judge_cluster    all that is wrong in a cluster, on a node, or with one resource or driver
judge_pod        how far a pod is, and why it is not further
judge_claim      how far a claim is
judge_results    whether the devices of claims exist, and have one holder
judge_waiting    why a pod waits for a node
judge_extended   why no node has the extended resources of a pod
judge_node       whether a pod may run on a node
judge_fit        what a node has for a claim
judge_device     why a device does not serve a request
judge_lack       why no node has the devices of a claim: the cause
"""
