"""The kubelet's side: plugins register here, and pods get their devices.

A module may import the modules above it in this list, and no others:

damaged_file         renames a damaged ledger or checkpoint
events               the events of a node, and their streams
loop_slices          runs long work on the event loop in slices of time
pods                 a pod as the node sees it, and which devices it holds
inventory            devices and health per resource; capacity, allocatable, grace period
arrival              plugins register, are dialled, list their devices, and end
topology             which NUMA nodes a container gets
checkpoint           the kubelet's file kubelet_internal_checkpoint
ledger               the admitted pods, stored on disk
admission            a pod gets all its devices or none; then its containers start
settings             the settings of a device manager, as one value
node_view            the reading half of the device manager
device_manager       DeviceManager: connects the modules above, and changes their state
overview             the state of a node as JSON objects
services             the services that clients call: our control service, the podresources service
"""
