"""The kubelet's half of Dynamic Resource Allocation, for tests of DRA drivers without a cluster.

It finds drivers by their registration sockets, prepares the claims of pods and gives them back with
the checks and words of a kubelet, keeps what drivers say about health, and deletes ResourceSlices
as a kubelet does. It knows no driver of ours, only the sockets. What it needs of an API server is
`claim_manager.ClusterApi`; `kubedevices.api_stub` has it.

answers        what is wrong with a driver's answer
claim_cache    which claims are prepared, and for which pods
health         what drivers said about their devices, and for how long that is believed
connection     the connection to one instance of a driver, kept open
drivers        the instances that are registered, and when slices are deleted
claim_manager  `ClaimManager`: prepares the claims of a pod, and gives them back
"""
