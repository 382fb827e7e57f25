"""What the machine says; reads files, knows no protocol. A map; imports nothing.

sysfs         attributes in /sys, and the NUMA nodes of a device file
device_files  numbers, links and neighbours of device files
file_watch    something changed at these paths
"""
