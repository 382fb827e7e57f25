"""A well-behaved DRA driver on grpcio and http.client: `kubedevices check` must find nothing wrong.

It imports nothing of kubedevices, so that the rules are not judged by code that has the opinions of
their authors. Not for use on a node; tests start it::

    python -m tests.check.grpc_driver --kubeconfig FILE --node-name NAME [--kubelet-dir DIR]
           [--cdi-dir DIR] [--pod-uid UID] [--devices FILE] [--defect RULE]

`--devices FILE` has the names of the devices; `!` behind a name means broken, `*` means shared.
`--defect` breaks the rule with this ID, and no other.

api           requests to the API server
cdi           one CDI file for each prepared claim
claims        what a ResourceClaim asks of this driver
defects       drivers that break one rule each
driver        the life of the process: sockets, SIGTERM
health        the health of the devices, v1 and v1alpha1
inventory     the devices
messages      messages and handlers of the gRPC services
parts         which classes a driver consists of
publisher     keeps the ResourceSlices of the node right
registration  what a kubelet asks first
service       NodePrepareResources and NodeUnprepareResources
slices        which ResourceSlices are right, and what to write
state         the prepared claims, in a file
"""
