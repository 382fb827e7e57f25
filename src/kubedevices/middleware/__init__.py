"""A scanner in, a scanner out: changes devices and answers. A map; imports nothing.

Every class is a `Scanner` made of another, so they compose: `Shared(Filtered(found, …), …)`.
Nearest to the plugin first, the order is: record, mend, filter, split, rename, maintenance,
health, hold, share, inject, faults.

middleware         the base: passes trees, abilities and calls on
record             writes down what a node and a plugin say to each other
record_format      the lines of such a record
record_file        its file, and the thread that writes it
presence           whether somebody behind a scanner is there
mend               makes good what a plugin gets wrong
health             health that can be relied on: damped, checked, overruled
damping            when a word about health counts, by seconds
health_gate        when it counts, by looks in a row
check              what is checked of a device
health_checks      is a device well? by file or command
faults             breaks a plugin on purpose
step_control       a socket at which devices take steps, both ends
maintenance        takes devices out of service that a file names
maintenance_file   this file: read, and changed by one writer after the other
absence            how long a plugin may be away
hold               keeps the list of a plugin that is away, and lets calls wait
kept_list          this list on disk, for the next boot
choice             which devices a rule means
device_facts       what the host knows about them: NUMA nodes, PCI functions
filter             leaves devices out
rename             other names for resources
split              one resource as several
replicas           several IDs for one device: which, and who may have them
share              several containers per device
additions          what is added to an answer; variables numbered within a container
inject             adds to every answer of Allocate
answer_cdi         device files and mounts of answers, in CDI files
"""
