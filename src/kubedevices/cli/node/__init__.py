"""Verbs for a node without Kubernetes, and for a look at the node of a kubelet.

node             runs a node: accepts plugins, one line per event
node_services    options of node: NUMA, and the services beside kubelet.sock
devices          lists devices: health, NUMA nodes, holder
dra_listing      the DRA drivers and claims in the list of devices
devices_cluster  devices --cluster, and kubectl devices: the devices of all nodes
wait             returns as soon as a resource has devices to allocate
allocate         admits a pod and prints the options of its containers
with_devices     `with`: runs a command with devices
foreground       the command that `with` runs, with its signals and its end
run_options      the options of a container as text, for allocate and with
release          takes the devices of a pod or of a claim back
"""
