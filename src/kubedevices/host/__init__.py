"""Access to the machine: /sys, /dev, files, inotify, systemd. No module here knows gRPC.

This package's `__init__` imports nothing.

sysfs             attributes in /sys, and the NUMA nodes of a device file
pci               PCI functions, by vendor, device, class, driver, SR-IOV
usb               USB devices, by vendor, product, serial number
vfio              the device files of an IOMMU group
device_files      device numbers, /dev/char links, all device files of one device
device_links      the real device files behind symbolic links
machine_numa      the NUMA nodes of this machine and their distances
boot_id           the ID of the current boot
programs          says why a program could not be started
stopping          the signals that stop a program that serves
service_manager   reports readiness to systemd
heap              makes glibc return large free blocks to the system
device_names_file  the file in which `expose` keeps the IDs of devices
descriptors       raises the limit of open files of this process
memory_limit      how much memory this process may use
file_watch        tells when files at given paths change
inotify           the kernel's file events, for `file_watch`
rotated_file      a file of limited size, with older files beside it
untrusted_files   reads files that other users may have created
shared_directory  writes and removes files in directories that strangers may reach
private_directory  which state directories are safe: only this user and root may change them
state_file        a small file of JSON with state of ours
lock_holder       locks between processes, and the process that holds one
kept_output       the beginning and the end of the output of another program
listing           the names in a directory that strangers fill
cdi_host_paths    paths in CDI files that this host does not have
cdi_specs         CDI files of the host: reads all, writes one safely; names our files
cdi_inventory     keeps the CDI files of a plugin up to date
runtimes          container options in the syntax of each container engine
deadlines         time limits for `async with`, and for single waits
terminal          the only module that prints; colours and width of a terminal
unblocked_output  stdout and stderr that never wait for a reader
"""
