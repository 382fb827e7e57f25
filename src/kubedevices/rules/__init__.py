"""The rules that change devices and answers: a scanner in, a scanner out. Imports nothing.

Every class is a `Scanner` made of another, so they compose: `Shared(Filtered(found, …), …)`.
Nearest to the plugin first, the order is: record, repair, filter, split, rename, cordon,
health, share, inject, hold, faults.

middleware         the base class: passes trees, abilities and calls on
record             writes down what a node and a plugin send to each other
record_format      the lines of a record
record_file        the files of a record, and the thread that writes them
presence           whether the plugin behind a scanner is connected
repair             corrects what a plugin gets wrong
health_rule        the keys of the health rule, with those of damping
health             the health rule of devices: damped, checked, or ignored
damping            decides by seconds when a change of health counts; takes out flapping devices
health_gate        decides by failed checks in a row; `Check`: the settings of one check
health_checks      runs the checks of devices: reads a file or runs a command
check_threads      the threads of health checks, eight at once
faults             breaks a plugin on purpose, for tests
step_control       a socket at which simulated devices take steps: service and client
cordon             lets no new pod have the devices that a file names
cordon_file        reads and writes this file
hold_rule          decides what a node gets of a plugin that is away
hold               offers the list of a plugin that is away, and lets calls wait
device_selector    which devices a rule means: by ID, NUMA node or PCI function
device_facts       looks up on the host what rules need: NUMA nodes, PCI functions
filter             leaves devices out
rename             lists resources under other names
split              lists one resource as several
replicas           several IDs for one device: their names and numbers
replica_choice     which replicas a container gets: limits and preferences
share              lists replicas of devices, so that several containers may have one device
inject_rule        what the inject rule adds to an answer; numbered variables
inject             adds to every answer to Allocate
answer_cdi         writes device files and mounts of answers into CDI files
"""
