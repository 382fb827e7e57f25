"""A driver for Dynamic Resource Allocation, from the scanner of a device plugin. Imports nothing.

names      names of drivers, devices and CDI devices
limits     what an API server accepts as a device
slices     a device tree as the devices of ResourceSlices
tree_lookup  where devices are in the machine
reconcile  what to write so that the API server has the slices that are wanted
claims     what a ResourceClaim asks of us, and whether it can have it
parameters  what a claim configures, as a dataclass of the author's
metadata   what a container may read about the devices of its claim
metadata_files  these files on the node
claim_cdi  what a container gets with a claim, in the words of CDI
prepared   the file that says which claims are prepared
preparation  prepares claims and gives them back, on disk
kubeconfig  where the API server is and who we are
plugin_view  which devices the device plugin API has
guard      keeps the driver from offering them
traces     what a driver leaves on disk for the next process
api_client  the calls to the API server
publisher  keeps the ResourceSlices as they are wanted
author_calls  the author's code, asked about claims
claim_lock  one claim at a time, also where two instances run
service    what a kubelet asks of a driver
claim_log  what a kubelet asked, and which claims were refused
driver_metrics  what is counted
sockets    the two sockets, and other instances of the driver
options    what may be chosen
driver     one scanner, two sockets, the slices of one node
"""
