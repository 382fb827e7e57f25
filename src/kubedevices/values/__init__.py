"""Plain values that all rooms share: devices and their tree, names, NUMA, answers, CDI. No I/O.

device          one device as the kubelet sees it, with health and NUMA nodes
device_tree     the devices that one scan found, by type
resource_name   DOMAIN/NAME, and the rules for both
socket_paths    the directories of a kubelet, and how long the path of a socket may be
allocation      requests and answers of the calls of a plugin, as dataclasses
numa            the text of sysfs about NUMA nodes, and hints
proxied_plugin  what a proxy says of one plugin behind it
wildcards       texts and hexadecimal IDs that match a pattern
quantities      quantities such as 1Gi: values, and the canonical form
cdi             content of CDI files: names, edits, rules, resolution
selectors       CEL, the language of device selectors
scheduling      which devices fit a claim, and which a scheduler chooses
"""
