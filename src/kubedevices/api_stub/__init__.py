"""An API server in the process of a test: what DRA drivers and a kubelet need of it, with faults.

Nodes, pods, DeviceClasses, ResourceClaims and ResourceSlices over HTTP/1.1, with versions,
selectors, preconditions and watches. Every object is checked as Kubernetes 1.36 does it. The little
scheduler gives devices to claims. `ApiServer.fault` breaks any call. For example:

    async with ApiServer().running() as server:
        server.put("nodes", {"metadata": {"name": "node1"}})
        config.write_text(server.kubeconfig())

kinds          the kinds of objects, and where they are in URLs
selectors      field selectors
gates          fields that a server drops because a feature gate is off
quantities     quantities as a server writes them
slice_rules    what a server accepts as a ResourceSlice
claim_rules    what a server accepts as a ResourceClaim or DeviceClass
store          the objects, their versions, and what happened to them
expressions    the part of CEL that selectors of device classes are made of here
scheduler      gives devices to claims
http           requests and answers on a connection
server         `ApiServer`
"""

from kubedevices.api_stub.http import HANG_UP, SILENCE, ApiFault, ApiRequest
from kubedevices.api_stub.server import ApiServer

__all__ = ["HANG_UP", "SILENCE", "ApiFault", "ApiRequest", "ApiServer"]
