"""The ready plugin `kubedevices expose`: devices of this host, chosen by a YAML file or profile.

scanner             looks at the host and reports the devices; start to read here
config              the YAML file
match_keys          what a rule of the file selects
path_patterns       device files by pattern
host                finds device files, USB and PCI devices
found               what a look at the host finds, and the further files of a device
tree                decides which devices to serve and how
names               resources that are named after their matches
recognition         recognises hardware and gives it its ID again
removed_devices     remembers devices that were removed, and their names
names_file          the IDs in a file, for the next process
held_ids            who holds which ID, as the naming needs it
witnesses           asks the kubelet and the list of `cordon` who holds devices
checks              health checks of exposed devices
abilities           which calls a resource needs
read_profiles       the profiles in `profiles/`
foreign_sources     finds the file of another plugin, also within other objects
foreign_configs     which foreign files there are
foreign_conversion  turns their devices into ours, or says what is lost
foreign_generic     the files of generic-device-plugin
foreign_smarter     the files of smarter-device-manager
"""
