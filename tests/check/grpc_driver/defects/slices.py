"""Drivers with a mistake in what they publish."""

import os
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from tests.check.grpc_driver.api import SLICES, ApiError
from tests.check.grpc_driver.defects.registry import defect
from tests.check.grpc_driver.driver import CannotServe, Driver
from tests.check.grpc_driver.inventory import Device, Inventory
from tests.check.grpc_driver.publisher import Publisher
from tests.check.grpc_driver.slices import Pool, Writes, equal

Object = dict[str, Any]
_STANDARD = "resource.kubernetes.io/pciBusID"


@defect("slices.valid")
class TriesABadVersion(Publisher):
    was_refused = False

    def parts(self) -> list[list[Object]]:
        parts = super().parts()
        if not self.was_refused:
            parts[0][0]["attributes"]["firmware"] = {"version": "1.0"}
        return parts

    def failed(self, error: ApiError, failures: int) -> None:
        if error.status == 422 and not self.was_refused:
            self.was_refused = True
        else:
            super().failed(error, failures)


@defect("slices.standard-attributes")
class HasItsOwnNames(Publisher):
    def parts(self) -> list[list[Object]]:
        parts = super().parts()
        for each in (device["attributes"] for devices in parts for device in devices):
            each["pciBusID"] = each.pop(_STANDARD)
        return parts


@defect("slices.quiet")
class WritesAgainAndAgain(Publisher):
    def sync(self) -> None:
        super().sync()
        for each in self.api.slices()["items"]:
            self.update(0, each)

    def until_woken(self) -> None:
        self.woken.wait(0.5)


@defect("slices.again")
class PublishesWhenRegistered(Publisher):
    def seen(self, event: Object) -> None:
        pass

    def registered(self) -> None:
        self.wake()


@defect("slices.deleted-one")
class LooksOnlyAtNames(Publisher):
    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.sent: dict[str, Object] = {}

    def keep(self, number: int, sent: Object, answer: Object) -> None:
        super().keep(number, sent, answer)
        self.sent[answer["metadata"]["name"]] = sent

    def as_sent(self, found: Object) -> Object:
        return found | {"spec": self.sent.get(found["metadata"]["name"], found["spec"])}


@defect("slices.change-one")
class MakesSlicesAnew(Publisher):
    def write(self, found: list[Object], parts: list[list[Object]]) -> None:
        known = [*map(self.as_sent, found)]
        if self.pool.writes(known, parts, self.newest).update:
            for each in found:
                self.delete(each)
            found = []
        super().write(found, parts)


@defect("slices.unhealthy")
class StaysBroken(Inventory):
    def scan(self) -> dict[str, Device]:
        known: dict[str, Device] = getattr(self, "devices", {})
        stays = {name for name, each in known.items() if each.is_broken}
        found = super().scan()
        return found | {name: found[name]._replace(is_broken=True) for name in stays & found.keys()}


@defect("slices.conflict")
class NeverRests(Publisher):
    def failed(self, error: ApiError, failures: int) -> None:
        self.rest(0.02)


@defect("slices.refused")
class GivesUpAfterARefusal(Publisher):
    def failed(self, error: ApiError, failures: int) -> None:
        if error.status == 422:
            threading.Event().wait()
        super().failed(error, failures)


@defect("slices.dropped")
class ComparesWithWhatItSent(Publisher):
    def keep(self, number: int, sent: Object, answer: Object) -> None:
        if not equal(sent, answer["spec"]):
            self.rest(0.3)
            self.wake()


@defect("slices.api-away")
class EndsWithoutApiServer(Publisher):
    def failed(self, error: ApiError, failures: int) -> None:
        if isinstance(error.__cause__, ConnectionRefusedError) and failures > 1:
            os._exit(1)
        super().failed(error, failures)


@defect("slices.node-recreated")
class RemembersTheNode(Publisher):
    known = ""

    def node_uid(self) -> str:
        self.known = self.known or super().node_uid()
        return self.known


@defect("slices.empty")
class EndsWithoutDevices(Driver):
    def build(self) -> None:
        super().build()
        if not self.inventory.devices:
            raise CannotServe("no devices")


@defect("slices.generation")
class KeepsTheGeneration(Pool):
    def writes(
        self, found: Iterable[Object], parts: Sequence[list[Object]], newest: int = 0
    ) -> Writes:
        slices = [*found]
        planned = super().writes(slices, parts, newest)
        known = max([each["spec"]["pool"]["generation"] for each in slices], default=1)
        for spec in (*(made["spec"] for _, made in planned.update), *dict(planned.create).values()):
            spec["pool"]["generation"] = known
        return planned


@defect("slices.many")
class PutsAllIntoOneSlice(Pool):
    def parts(self, entries: Sequence[Object]) -> list[list[Object]]:
        return [[*entries]]


@defect("slices.valid", "no-owner")
class NamesNoOwner(Pool):
    def new(self, number: int, spec: Object, node_uid: str) -> Object:
        made = super().new(number, spec, node_uid)
        del made["metadata"]["ownerReferences"]
        return made


@defect("slices.valid", "incomplete")
class CountsOneMore(Pool):
    def spec(self, devices: Sequence[Object], count: int, generation: int) -> Object:
        return super().spec(devices, count + 1, generation)


@defect("slices.standard-attributes", "own-domain")
class RepeatsItsDomain(Publisher):
    def parts(self) -> list[list[Object]]:
        parts = super().parts()
        for each in (device["attributes"] for devices in parts for device in devices):
            each[f"{self.pool.driver}/kind"] = each.pop("kind")
        return parts


@defect("slices.conflict", "old-watch")
class StopsAtAnOldWatch(Publisher):
    def too_old(self) -> None:
        threading.Event().wait()


@defect("slices.refused", "silent")
class GivesNoReasonInItsLog(Publisher):
    def failed(self, error: ApiError, failures: int) -> None:
        super().failed(ApiError(error.status, "", error.retry_after), failures)


@defect("slices.valid", "no-such-node")
class NamesAnotherNode(Publisher):
    def node_uid(self) -> str:
        return "00000000-0000-4000-8000-000000000000"


@defect("slices.again", "others")
class DeletesSlicesOfOtherNodes(Publisher):
    def sync(self) -> None:
        mine = {"fieldSelector": f"spec.driver={self.pool.driver}"}
        for each in self.api.call("GET", SLICES, query=mine)["items"]:
            if each["spec"]["nodeName"] != self.pool.node:
                self.delete(each)
        super().sync()


@defect("slices.conflict", "too-often")
class RestsTooShort(Publisher):
    def failed(self, error: ApiError, failures: int) -> None:
        self.rest(0.2)
