"""The stand-in for an API server with one node, and short ways to what the driver's tests ask."""

import json
from pathlib import Path
from typing import Any

from kubedevices.dra.claims import ClaimSource
from kubedevices.dra.kubeconfig import ApiAccess
from kubedevices.dra.preparation import Preparation
from kubedevices.dra.service import ClaimService
from kubedevices.plugin.hooks import Hooks
from kubedevices.testing.api_server import ApiFault, ApiServer
from kubedevices.testing.api_server.http import ApiRequest
from kubedevices.values.scheduling.kinds import Object

NODE = "node1"
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"


class OneNode(ApiServer):
    """An API server with the node `node1`."""

    def __init__(self) -> None:
        super().__init__()
        self.put("nodes", {"metadata": {"name": NODE, "uid": "node-uid"}})

    @property
    def access(self) -> ApiAccess:
        return ApiAccess(self.url)

    @property
    def slices(self) -> list[Object]:
        return self.find("resourceslices")

    @property
    def devices(self) -> list[list[str]]:
        """The names of the devices of each slice."""
        return [[each["name"] for each in made["spec"]["devices"]] for made in self.slices]

    @property
    def writes(self) -> list[str]:
        """The verbs of all requests that write."""
        return [each.verb for each in self.requests if each.method != "GET"]

    def calls(self, path: str) -> int:
        """Return how often a path was asked for."""
        return [each.path for each in self.requests].count(path)

    def delete_slices_of_all(self) -> None:
        """Delete all slices, as a kubelet does when it starts."""
        for each in self.slices:
            self.delete("resourceslices", each["metadata"]["name"])

    def give(self, name: str, claim: Object) -> None:
        """Store a claim instead of the claim of this name."""
        self.take(name)
        self.put("resourceclaims", claim | {"metadata": {**claim["metadata"], "name": name}})

    def take(self, name: str = "") -> None:
        """Delete a claim if it exists, or all claims."""
        for each in self.find("resourceclaims"):
            if name in ("", each["metadata"]["name"]):
                self.delete("resourceclaims", each["metadata"]["name"])

    def label_node(self, labels: dict[str, str]) -> None:
        """Let the node have these labels. An equal node changes all the same."""
        found = self.get("nodes", NODE)
        count = int(found["metadata"].get("annotations", {}).get("count", 0)) + 1
        found["metadata"] |= {"labels": labels, "annotations": {"count": str(count)}}
        self.put("nodes", found)

    def answer_all(self, *fault: Any) -> None:
        """Answer all requests with `ApiFault(*fault)`, or right again without arguments."""
        self.fault = lambda _request: ApiFault(*fault) if fault else None

    def refuse(self, verb: str, resource: str, *fault: Any) -> None:
        """Answer the requests of this verb and resource with `ApiFault(*fault)`."""

        def answer(request: ApiRequest) -> ApiFault | None:
            is_it = (request.verb, request.resource) == (verb, resource)
            return ApiFault(*fault) if is_it else None

        self.fault = answer


def claim_of(uid: str, *devices: str, driver: str = "example.com", **more: Any) -> Object:
    """Return a claim to which devices of the request `gpu` are allocated."""
    results = [
        {"request": "gpu", "driver": driver, "pool": NODE, "device": each, **more}
        for each in devices
    ]
    return {"metadata": {"uid": uid}, "status": {"allocation": {"devices": {"results": results}}}}


def write_kubeconfig(file: Path, url: str) -> None:
    """Write a kubeconfig for an API server."""
    content = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    file.write_text(json.dumps(content))


def claim_service(
    source: ClaimSource, preparation: Preparation, plugin: object, **options: Any
) -> ClaimService:
    """Return the service of the driver example.com, with the hooks of `plugin`."""
    hooks = Hooks(plugin)
    options = {"dev_root": Path("/dev"), **options}
    return ClaimService("example.com", NODE, source, preparation, lambda _type: hooks, **options)
