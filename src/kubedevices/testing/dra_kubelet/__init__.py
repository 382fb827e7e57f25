"""The kubelet's side of Dynamic Resource Allocation, for tests of DRA drivers without a cluster.

It acts as a kubelet: finds drivers by their registration sockets, prepares and unprepares the
claims of pods with the checks and error texts of a kubelet, stores the health of devices, and
deletes ResourceSlices. It uses only the sockets of a driver and imports nothing of
`kubedevices.dra`. Its calls to an API server are in `claim_manager.ClusterApi`, which
`kubedevices.testing.api_server` implements.

claim_cache    the prepared claims, the pods that use them, and the check of a driver's answer
health         the health of devices, with the time until it becomes unknown
connection     the connection to one instance of a driver
drivers        the registered instances of drivers, and the deletion of their slices
claim_manager  `ClaimManager`: prepares and unprepares the claims of a pod
"""
