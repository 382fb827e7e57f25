"""What the machine says; reads files, knows no protocol. A map; imports nothing.

sysfs          attributes in /sys, and the NUMA nodes of a device file
pci            PCI functions by vendor, device, class, driver, SR-IOV
usb            USB devices by vendor, product, serial number
vfio           the device files of an IOMMU group
device_files   numbers, links and neighbours of device files
device_links   the real device files behind symbolic links
machine_numa   the NUMA nodes of this machine and their distances
boot_id        which boot of the machine this is
service_manager  how far we are, for systemd
heap           what the C library does with free memory
file_watch     something changed at these paths
inotify        what the kernel tells of them
rotated_file     a file of a bounded size, and older ones beside it
untrusted_files  files in directories where strangers write too
cdi_specs      CDI files: read them all, write one safely
cdi_inventory  the CDI files of a plugin, kept up to date
"""
