"""A small cluster on the stand-in for an API server: two nodes with two GPUs each, and a pod.

The pod `train` of the namespace `default` waits for one GPU by the claim `train-gpu`.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from kubedevices.testing.api_server import ApiFault, ApiServer
from kubedevices.testing.api_server.http import ApiRequest
from tests.command_line import Printed

Object = dict[str, Any]
Ask = Callable[..., Awaitable[Printed]]
DRIVER = "gpu.example.com"
LONG_AGO = "2020-01-01T00:00:00Z"
IS_OURS = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}


def gpu(name: str, model: str = "A100", **more: Any) -> Object:
    return {"name": name, "attributes": {"model": {"string": model}}, **more}


def named(name: str, **more: Any) -> Object:
    return {"metadata": {"name": name, **more.pop("metadata", {})}, **more}


class SmallCluster(ApiServer):
    """An API server with the cluster."""

    seconds_later = 0.0  # after the objects were made, somebody asks

    def __init__(self) -> None:
        super().__init__()
        for node in ("node1", "node2"):
            self.put("nodes", named(node, metadata={"labels": {"zone": node[-1]}}))
            self.publish(node, gpu("gpu-0"), gpu("gpu-1"))
        self.put("deviceclasses", named(DRIVER, spec={"selectors": [IS_OURS]}))
        self.claim("train-gpu")
        self.pod("train", claims=["train-gpu"])

    def publish(self, node: str, *devices: Object, driver: str = DRIVER, **spec: Any) -> None:
        """Write the one slice of a driver for a node."""
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        made = {"driver": driver, "pool": pool, "nodeName": node, "devices": [*devices], **spec}
        self.put("resourceslices", named(f"{node}-{driver.partition('.')[0]}", spec=made))

    def unpublish(self, node: str) -> None:
        self.delete("resourceslices", f"{node}-gpu")

    def claim(self, name: str, *requests: Object, namespace: str = "default", **more: Any) -> None:
        """Write a claim, of one request for a GPU unless there are others."""
        asked = [*requests] or [self.request()]
        metadata = {"namespace": namespace, "uid": f"{name}-uid"}
        spec = {"devices": {"requests": asked, **more}}
        self.forget("resourceclaims", name, namespace)
        self.put("resourceclaims", named(name, metadata=metadata, spec=spec))

    def request(self, *terms: str, name: str = "gpu", **more: Any) -> Object:
        """Return a request whose selector has these terms."""
        exactly: Object = {"deviceClassName": DRIVER, **more}
        if terms:
            exactly["selectors"] = [{"cel": {"expression": " && ".join(terms)}}]
        return {"name": name, "exactly": exactly}

    def pod(
        self,
        name: str,
        *,
        claims: list[str] | None = None,
        node: str = "",
        limits: Object | None = None,
        requests: Object | None = None,
        namespace: str = "default",
        status: Object | None = None,
        deleted: str = "",
        finalizers: list[str] | None = None,
        **spec: Any,
    ) -> None:
        """Write a pod; without a node it is Pending, with a node it runs.

        `deleted` is the time at which it should have ended.
        """
        uses = [{"name": each, "resourceClaimName": each} for each in claims or ()]
        container = {
            "name": "main",
            "resources": {"limits": limits or {}, "requests": requests or {}},
        }
        made = {"containers": [container], "resourceClaims": uses, **spec}
        if node:
            made["nodeName"] = node
        phase = {"phase": "Running" if node else "Pending"}
        metadata: Object = {"namespace": namespace, "uid": f"{name}-uid"}
        metadata |= {"deletionTimestamp": deleted} if deleted else {}
        metadata |= {"finalizers": finalizers} if finalizers else {}
        self.forget("pods", name, namespace)
        self.put("pods", named(name, metadata=metadata, spec=made, status=phase | (status or {})))

    def hold(self, node: str, pod: str, *requests: Object, namespace: str = "other") -> None:
        """Let a pod on a node have devices by a claim of its own."""
        self.claim(f"{pod}-gpu", *requests, namespace=namespace)
        self.pod(pod, claims=[f"{pod}-gpu"], node=node, namespace=namespace)
        self.allocate(f"{pod}-gpu", pod, node, namespace)

    def forget(self, plural: str, name: str, namespace: str = "default") -> None:
        """Delete an object if it exists."""
        if any(
            (each["metadata"]["name"], each["metadata"].get("namespace")) == (name, namespace)
            for each in self.find(plural)
        ):
            self.delete(plural, name, namespace)

    def offer(self, node: str, resource: str, capacity: int, usable: int | None = None) -> None:
        """Let a node have an extended resource, as after a device plugin has registered it."""
        found = self.get("nodes", node)
        status = found.setdefault("status", {})
        for key, number in (("capacity", capacity), ("allocatable", usable)):
            status.setdefault(key, {})[resource] = str(capacity if number is None else number)
        self.put("nodes", found)

    def limit(self, node: str, **allocatable: str) -> None:
        """Let a node have so much cpu, memory and so many pods."""
        found = self.get("nodes", node)
        found.setdefault("status", {})["allocatable"] = allocatable
        self.put("nodes", found)

    def silence(self, node: str) -> None:
        """Let a node be as after its kubelet has stopped."""
        found = self.get("nodes", node)
        ready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": LONG_AGO}
        ready["message"] = "Kubelet stopped posting node status."
        found.setdefault("status", {})["conditions"] = [ready]
        self.put("nodes", found)

    def forbid(self, *plurals: str, only_wide: bool = False) -> None:
        """Refuse these kinds, as without a rule of RBAC; `only_wide`: of all namespaces."""

        def fault(request: ApiRequest) -> ApiFault | None:
            place = request.place
            if place is None or place.plural not in plurals or (only_wide and place.namespace):
                return None
            return ApiFault(403, f"{place.plural} is forbidden", "Forbidden")

        self.fault = fault
