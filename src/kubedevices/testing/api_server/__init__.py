"""An API server in the process of a test, with faults: the part that drivers and kubelets call.

It serves nodes, pods, DeviceClasses, ResourceClaims, ResourceSlices, events, leases and a few more
kinds over HTTP/1.1 to any client, in JSON (it reads protobuf too): discovery, selectors, pages,
watches with bookmarks and initial events, all kinds of patch, preconditions. It checks every object
as Kubernetes 1.36 does.
`values.scheduling` allocates devices to claims. `ApiServer.fault` can break any call. Example:

    async with ApiServer().running() as server:
        server.put("nodes", {"metadata": {"name": "node1"}})
        config.write_text(server.kubeconfig())

selections       field selectors, label selectors, pages
slice_rules      the checks of a ResourceSlice
claim_rules      the checks of a ResourceClaim or DeviceClass
patches          the kinds of PATCH
discovery        what the server says of itself
store            the objects, their versions, and the events for watches
protobuf_table   the fields of messages that drivers write
protobuf_bodies  bodies in protobuf, as JSON
faults           the answer of a call that a test breaks
http             requests and answers on a connection
certificate      its certificate and its public key
watching         the events of watches
server           `ApiServer`
"""

from kubedevices.testing.api_server.faults import HANG_UP, SILENCE, ApiFault
from kubedevices.testing.api_server.http import ApiRequest
from kubedevices.testing.api_server.server import ApiServer

__all__ = ["HANG_UP", "SILENCE", "ApiFault", "ApiRequest", "ApiServer"]
