"""The devices that plugins listed.

list_plan         what a new list changes, worked out in slices
free_devices      the free devices of a resource, by NUMA nodes, in natural order
resource_devices  the devices of one resource, updated by the differences between two lists
inventory         all resources; capacity, allocatable, grace period, reservations
health_updates    a queue of the pods whose devices changed their health
"""
