"""The kubelet's half: plugins register here, and pods get their devices.

In the order a device takes:

registration         the Registration service on kubelet.sock
plugin_directory     the directory plugins register in, cleaned before it is used
plugin_watcher       the other way to arrive: sockets in the plugin registry directory
registry_state       which of those sockets need something done
endpoint             one connected plugin: its calls, its stream of lists
reopening            when a lost stream is opened again
endpoint_table       every connected plugin, and which instance of it counts
inventory            devices and health per resource; capacity, allocatable, grace period
list_plan            what a new list changes, worked out in slices before it counts
resource_devices     the devices of one resource, kept up to date by the difference of two lists
free_devices         which devices of a resource are free, per set of NUMA nodes, in natural order
pod                  a pod as the node sees it, from a Kubernetes manifest
quantity             "2" and "1500m" as whole units
topology_hints       which sets of NUMA nodes could serve a request
topology_policy      which of them a container gets: the merge of all hints
topology_manager     asks for hints and remembers what was decided
topology_options     the settings of the topology manager, checked
subset_sums          sums over all sets of NUMA nodes at once
allocator            which devices a container gets: decides, calls nobody
admission            a whole pod, all or nothing: plan, ask the plugins, commit or roll back
under_way            what is being given or given back right now, and who waits for it
reservation          what a pod is about to get: taken, and committed or given back as a whole
pod_devices          who holds what, with the response that came along
pod_devices_store    where admitted pods are kept
admitted_pods        the pods that were admitted: in memory and in the store, always the same
ledger               that store made durable: one transaction per pod, on one thread
ledger_file          its SQLite file, and whether it can be trusted
set_aside            puts a file that cannot be trusted out of the way
restart_gate         what may be believed of the time before our start
after_restart        waits for plugins that are late after a restart of the node
checkpoint_writer    keeps kubelet_internal_checkpoint up to date behind every answer
checkpoint_file      that file: read to move in from a kubelet, replaced atomically
checkpoint           the text of kubelet_internal_checkpoint, both ways, byte for byte
checkpoint_reader    its JSON into values, by the rules of the kubelet's reader
checkpoint_checksum  its checksum, fast
node_status          what the status of a pod or node says about devices
container_options    stored responses as one set of run options
container_start      what happens right before a container starts
health_updates       pods whose devices changed their health, for whoever reports statuses
node_view            what can be read from a node: the reading half of the next one
device_manager       DeviceManager: wires the above; the only stateful entry point
loop_slices          long work on the event loop, with turns for others in between
events               what happens on a node, for whoever listens
concurrently         several calls at once, all or nothing
turns                one thing after the other per pod
pod_resources        the podresources service: which pod holds which device
token_bucket         how often something may be done
hold_owner           whose command a pod's devices are held for, and whether it still runs
overview             what a node knows, as JSON-ready documents
control              our own local service
control_client       asks that service, for the command line
"""
