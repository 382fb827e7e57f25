"""A driver for Dynamic Resource Allocation, from the scanner of a device plugin. Imports nothing.

names      names of drivers, devices and CDI devices
limits     what an API server accepts as a device
slices     a device tree as the devices of ResourceSlices
reconcile  what to write so that the API server has the slices that are wanted
claims     what a ResourceClaim asks of us, and whether it can have it
prepared   the file that says which claims are prepared
"""
