"""A driver for Dynamic Resource Allocation (DRA) that uses the scanner of a device plugin.

This file imports nothing. Start to read at `driver`.

names                names of drivers, devices and CDI devices
slice_limits         limits of the API server for a device of a ResourceSlice
slices               converts a device tree to the devices of ResourceSlices
tree_lookup          adds NUMA nodes and PCI addresses to devices
slice_writes         computes the changes that bring the API server to the wanted slices
publisher            writes the ResourceSlices and keeps them up to date
api_client           the calls to the API server
api_answers          checks the answers of the API server
pauses               random pauses between calls to the API server
kubeconfig           address of the API server, and the credentials of the driver
secret               a token or key that no message shows
service              the DRAPlugin service: the kubelet's calls to prepare and unprepare claims
holder_wait          lets a claim wait for another claim that has its device
claim_work           prepares and unprepares one claim: the guard, the hooks, the files
claims               reads the allocation and the configuration of a ResourceClaim
parameters           converts the configuration of a claim to the author's dataclass
claim_hooks          calls the plugin author's hooks for a claim
shared_devices       the work on devices that several claims have
claim_cdi            the CDI file of a claim
metadata             the files that tell a container about the devices of its claim (KEP-5304)
metadata_files       writes and removes these files on the node
preparation          writes and removes all files of a claim, in an order that survives a kill
prepared_file        the file that lists the prepared claims
shared_writes        lets steps that change the checkpoint share one write
claim_lock           lets one process at a time prepare or unprepare a claim
claim_turns          lets this process work on many claims at the same time
abandoned_verdict    judges whether a pod can still use a prepared claim
abandoned_search     finds claims that nobody will unprepare, and unprepares them
allocations          finds claims to which devices are still allocated
claim_release        frees the devices of a claim by hand
claim_log            records refused claims and counts failures
device_plugin_view   the devices that the device plugin API has, from the kubelet's answers
device_plugin_guard  withholds these devices from ResourceSlices and claims
deployment_lock      keeps two deployments from being the same driver on a node
state_files          files that tell the next process which slices and claims may exist
driver_metrics       the metrics of a driver
sockets              the two sockets of a driver, and other instances of the driver
options              the options of a driver
driver               `DraDriver`: one scanner, two sockets, the slices of one node
"""
