"""A claim that a rule creates, allocates, prepares and unprepares, as scheduler and kubelet do."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from kubedevices.check.check import Broken, NotTried
from kubedevices.check.drivers.node import DriverNode
from kubedevices.errors import ApiRefused, RpcError
from kubedevices.kubelet_api.dra import ClaimAnswer
from kubedevices.values.allocation import ClaimDevice, ClaimReference
from kubedevices.values.scheduling.kinds import Object
from kubedevices.values.scheduling.scheduler import NotAllocatable

CLASS = "check"
ONE: Object = {"name": "one", "exactly": {"deviceClassName": CLASS}}
"""A request for one device of any kind."""

POD = {"resource": "pods"}
"""Who may use a claim, as in its status; or a `POD_GROUP`."""

_numbers = itertools.count(1)


class TestClaim:
    """One ResourceClaim, reserved for one pod. Use it as a context: the end unprepares it."""

    __test__ = False  # not a class of tests

    def __init__(self, node: DriverNode, *requests: Object, name: str = "") -> None:
        self.node = node
        self.name = name or f"claim-{next(_numbers)}"
        spec = {"devices": {"requests": [*requests] or [ONE]}}
        made = {"metadata": {"name": self.name}, "spec": spec}
        self.object = node.cluster.api.put("resourceclaims", made)
        self.reference = ClaimReference("default", self.object["metadata"]["uid"], self.name)

    def __repr__(self) -> str:
        return f"<TestClaim {self.name} {[each['device'] for each in self.results]}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.end()

    @property
    def uid(self) -> str:
        """The UID of the claim."""
        return self.reference.uid

    @property
    def results(self) -> list[Object]:
        """The allocated devices, as in the status of the claim."""
        allocation = self.object.get("status", {}).get("allocation", {})
        return [*allocation.get("devices", {}).get("results", ())]

    def allocate(self) -> "TestClaim":
        """Allocate devices as a scheduler does; raises `NotTried` if there are too few."""
        api = self.node.cluster.api
        try:
            api.allocate(self.name, f"pod-of-{self.name}", self.node.node_name)
        except NotAllocatable as error:
            raise NotTried(
                f"the published devices are not enough for this rule: {error}"
            ) from error
        self.object = api.get("resourceclaims", self.name)
        return self

    def set_results(self, results: Iterable[Mapping[str, Any]], **more: Any) -> "TestClaim":
        """Write an allocation that no scheduler has made."""
        devices = {"results": [dict(each) for each in results], **more}
        self.object.setdefault("status", {})["allocation"] = {"devices": devices}
        return self.reserve(f"pod-of-{self.name}")

    def reserve(self, *names: str, kind: Mapping[str, str] = POD) -> "TestClaim":
        """Reserve the claim for these pods, or for others of a kind, instead of its own pod."""
        reserved = [{**kind, "name": name, "uid": name} for name in names]
        api, status = self.node.cluster.api, {**self.object["status"], "reservedFor": reserved}
        api.put("resourceclaims", {**api.get("resourceclaims", self.name), "status": status})
        self.object = api.get("resourceclaims", self.name)
        return self

    async def try_prepare(self) -> ClaimAnswer:
        """Return the prepared devices, or the driver's error for this claim."""
        return (await self.node.prepare([self.reference]))[self.uid]

    async def prepare(self) -> tuple[ClaimDevice, ...]:
        """Return the prepared devices; raises `Broken` with the driver's error."""
        answer = await self.try_prepare()
        if isinstance(answer, str):
            raise Broken(f"Prepare failed: {answer}", self.node.last_words())
        return answer

    async def unprepare(self) -> None:
        """Unprepare the claim; raises `Broken` with the driver's error."""
        if problem := await self.node.unprepare([self.reference]):
            raise Broken(f"Unprepare failed: {problem}", self.node.last_words())

    def delete(self) -> None:
        """Delete the object; the driver still has to unprepare the claim."""
        with suppress(ApiRefused):
            self.node.cluster.api.delete("resourceclaims", self.name)

    async def end(self) -> None:
        """Unprepare as a kubelet does when the pod has ended, and delete the object."""
        with suppress(RpcError):
            if self.node.is_connected():
                await self.node.unprepare([self.reference])
        self.delete()


def in_words(answer: ClaimAnswer) -> str:
    """Return an answer to Prepare for people: an error, or each device with its requests."""
    if isinstance(answer, str):
        return answer
    words = []
    for each in answer:
        of = ", ".join(each.requests) or "all requests"
        cdi = f" (CDI {', '.join(each.cdi_ids)})" if each.cdi_ids else ""
        words.append(f"{each.device} for {of}{cdi}")
    return "; ".join(words) or "no device"


def cdi_ids(answer: Sequence[ClaimDevice]) -> list[str]:
    """Return the CDI IDs of an answer."""
    return [name for each in answer for name in each.cdi_ids]


def needs_cdi_ids(answer: Sequence[ClaimDevice]) -> list[str]:
    """Return the CDI IDs of an answer; raises `NotTried` if the driver gives none."""
    if not (names := cdi_ids(answer)):
        raise NotTried("it gives containers no CDI devices")
    return names


def needs_devices(node: DriverNode, number: int) -> list[str]:
    """Return the names of the published devices; raises `NotTried` if they are fewer."""
    names = sorted(node.cluster.devices(node.driver))
    if len(names) < number:
        raise NotTried(f"needs a driver with {number} devices; it has {len(names)}")
    return names


def requests(*names: str, count: int = 1) -> list[Object]:
    """Return one request for each name."""
    exactly = {"deviceClassName": CLASS, "count": count}
    return [{"name": name, "exactly": exactly} for name in names]
