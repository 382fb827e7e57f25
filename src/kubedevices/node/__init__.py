"""The kubelet's half: plugins register here, and pods get their devices.

A package may import the packages above it in this list, and no others:

events               what happens on a node, for whoever listens
loop_slices          long work on the event loop, with pauses for others in between
pods                 a pod as the node sees it, and which devices it holds
inventory            devices and health per resource; capacity, allocatable, grace period
arrival              plugins register, are dialled and listed, and end
topology             which NUMA nodes a container gets
checkpoint           the kubelet's file kubelet_internal_checkpoint
ledger               which pods were admitted, durable
admission            a pod gets its devices, all or nothing; and its containers start
node_view            what can be read from a node: the reading half of the next one
settings             the settings of a device manager, as one value
device_manager       DeviceManager: wires the above; the only stateful entry point
overview             what a node knows, as JSON-ready documents
doors                the services that clients call: our control service, the podresources service
"""
