"""An API server in the process of a test, with faults: the part that drivers and kubelets call.

It serves nodes, pods, DeviceClasses, ResourceClaims and ResourceSlices over HTTP/1.1, with resource
versions, field selectors, preconditions and watches. It checks every object as Kubernetes 1.36
does. A small scheduler allocates devices to claims. `ApiServer.fault` can break any call. Example:

    async with ApiServer().running() as server:
        server.put("nodes", {"metadata": {"name": "node1"}})
        config.write_text(server.kubeconfig())

kinds          the kinds of objects, their URL paths and field selectors
capacities     capacities that several allocations of one device consume
slice_rules    the checks of a ResourceSlice
claim_rules    the checks of a ResourceClaim or DeviceClass
store          the objects, their versions, and the events for watches
scheduler      allocates devices to claims
http           requests and answers on a connection
server         `ApiServer`
"""

from kubedevices.testing.api_server.http import HANG_UP, SILENCE, ApiFault, ApiRequest
from kubedevices.testing.api_server.server import ApiServer

__all__ = ["HANG_UP", "SILENCE", "ApiFault", "ApiRequest", "ApiServer"]
