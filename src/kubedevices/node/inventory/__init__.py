"""The devices that plugins listed.

list_plan         what a new list changes, worked out in slices before it counts
free_devices      which devices of a resource are free, per set of NUMA nodes, in natural order
resource_devices  the devices of one resource, kept up to date by the difference of two lists
inventory         devices and health per resource; capacity, allocatable, grace period
node_status       what the status of a pod or node says about devices
health_updates    pods whose devices changed their health, for whoever reports statuses
"""
