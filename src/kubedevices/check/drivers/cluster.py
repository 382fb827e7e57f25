"""What the driver published, and the faults of the API server."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kubedevices.check.drivers.rights import Right
from kubedevices.errors import ApiRefused
from kubedevices.testing.api_server import ApiServer
from kubedevices.testing.api_server.faults import ApiFault
from kubedevices.testing.api_server.http import ApiRequest
from kubedevices.testing.api_server.store import Store
from kubedevices.values.scheduling.kinds import ApiPath, Object
from kubedevices.values.scheduling.scheduler import complete_devices

_INVALID = 422
_VARYING = ("resourceVersion", "timeoutSeconds", "timeout", "continue")
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class NotingStore(Store):
    """Notes what it refuses, and can drop fields as a server with a disabled feature gate.

    `refused` are the texts for slices that it found invalid (422). `dropped` are the fields of
    devices that it does not keep.
    """

    def __init__(self) -> None:
        super().__init__(admit=self._drop)
        self.refused: list[str] = []
        self.dropped: frozenset[str] = frozenset()

    def _drop(self, _plural: str, made: Object) -> None:
        for device in made.get("spec", {}).get("devices") or () if self.dropped else ():
            for name in self.dropped:
                device.pop(name, None)

    def create(self, place: ApiPath, made: Object, now: str) -> Object:
        """Create an object; raises `ApiRefused`."""
        return self._noted(super().create, place, made, now)

    def update(self, place: ApiPath, made: Object, now: str) -> Object:
        """Replace an object; raises `ApiRefused`."""
        return self._noted(super().update, place, made, now)

    def _noted(
        self,
        write: Callable[[ApiPath, Object, str], Object],
        place: ApiPath,
        made: Object,
        now: str,
    ) -> Object:
        try:
            return write(place, made, now)
        except ApiRefused as error:
            if error.status == _INVALID and place.plural == "resourceslices":
                self.refused.append(error.message)
            raise


class Cluster:
    """The API server of one `DriverNode`. The node's own calls have no faults."""

    def __init__(self, node_name: str) -> None:
        self.node_name = node_name
        self.api = ApiServer(tls=True)
        self.store = self.api.store = NotingStore()

    def slices(self) -> list[Object]:
        """Return all ResourceSlices."""
        return self.api.find("resourceslices")

    def devices(self, driver: str = "") -> dict[str, Object]:
        """Return the devices of complete pools by name."""
        return {
            each.device["name"]: each.device
            for each in complete_devices(self.slices(), self.node_name)
            if driver in ("", each.driver)
        }

    def content(self) -> list[Object]:
        """Return the slices of this node without generations and names, in a stable order."""
        found = [
            {**each["spec"], "pool": {**each["spec"]["pool"], "generation": 0}}
            for each in self.slices()
            if each["spec"].get("nodeName", self.node_name) == self.node_name
        ]
        return sorted(found, key=repr)

    def writes(self, since: int) -> list[ApiRequest]:
        """Return the writes of slices after the first `since` requests."""
        return [each for each in self.api.requests[since:] if is_slice_write(each)]

    def claim_reads(self, since: int) -> list[ApiRequest]:
        """Return the reads of claims after the first `since` requests."""
        return [each for each in self.api.requests[since:] if is_claim_read(each)]

    @contextmanager
    def broken(self, fault: Callable[[ApiRequest], ApiFault | None]) -> Iterator[None]:
        """Answer with `fault` inside the block."""
        before, self.api.fault = self.api.fault, fault
        try:
            yield
        finally:
            self.api.fault = before

    def asked(self) -> Counter[str]:
        """Return how often the driver asked what, without the names of claims and slices."""
        return Counter(map(_in_words, self.api.requests))

    def used_rights(self) -> set[Right]:
        """Return the rights that the driver used, refused ones too."""
        return {
            Right(each.resource, each.verb)
            for each in self.api.requests
            if each.resource and each.verb
        }


def _in_words(request: ApiRequest) -> str:
    path, place = request.path, request.place
    if place is None:
        return f"{request.method} {path} (unknown to the check: 404)"
    if place.plural in ("resourceclaims", "resourceslices") and place.name:
        path = path.replace(f"/{place.name}", "/NAME")
    query = [f"{name}={value}" for name, value in request.query.items() if name not in _VARYING]
    return f"{request.method} {path}" + (f"?{'&'.join(query)}" if query else "")


def on_slices(
    status: int, message: str, reason: str, *, retry_after: int | None = None
) -> Callable[[ApiRequest], ApiFault | None]:
    """Return a fault for each write of a slice."""
    fault = ApiFault(status, message, reason, retry_after)
    return lambda request: fault if is_slice_write(request) else None


def is_slice_write(request: ApiRequest) -> bool:
    """Whether a request writes or deletes slices."""
    return request.resource == "resourceslices" and request.verb in WRITES


def on_claims(fault: ApiFault) -> Callable[[ApiRequest], ApiFault | None]:
    """Return a fault for each read of a claim."""
    return lambda request: fault if is_claim_read(request) else None


def is_claim_read(request: ApiRequest) -> bool:
    """Whether a request reads a claim."""
    return request.resource == "resourceclaims" and request.verb in ("get", "list")


def everywhere(fault: ApiFault) -> Callable[[ApiRequest], ApiFault | None]:
    """Return a function that answers each request with `fault`."""
    return lambda _request: fault
