"""Drivers with a mistake in Prepare."""

import time
from collections.abc import Container, Iterator
from typing import Any

from tests.check.grpc_driver.cdi import CdiFiles, Prepared
from tests.check.grpc_driver.claims import ClaimReader, Refused
from tests.check.grpc_driver.defects.registry import defect
from tests.check.grpc_driver.service import Devices, Service

Object = dict[str, Any]


@defect("prepare.answers")
class NamesNoDeviceOfItsFile(CdiFiles):
    def device_id(self, uid: str, each: Prepared) -> str:
        return f"{self.driver}/claim=x{self.name(uid, each)}"


@defect("prepare.repeat")
class AnswersInAnyOrder(Service):
    is_reversed = False

    def prepare(self, claim: Any, context: Any, left: int) -> Devices:
        prepared = super().prepare(claim, context, left)
        self.is_reversed = not self.is_reversed
        return prepared[::-1] if self.is_reversed else prepared


@defect("prepare.batch")
class AllOrNothing(Service):
    def answered(self, response: Any) -> Any:
        if errors := [each.error for each in response.claims.values() if each.error]:
            for each in response.claims.values():
                each.error = errors[0]
                del each.devices[:]
        return response


@defect("prepare.concurrent")
class RefusesASecondCall(Service):
    def prepare(self, claim: Any, context: Any, left: int) -> Devices:
        if claim.uid in self._busy:
            raise Refused("in progress")
        return super().prepare(claim, context, left)

    def read(self, claim: Any, context: Any, left: int) -> Devices:
        time.sleep(0.2)
        return super().read(claim, context, left)


@defect("prepare.order")
class PreparesTooLate(Service):
    def read(self, claim: Any, context: Any, left: int) -> Devices:
        found = self.api.claim(claim.namespace, claim.name, 15, lambda _: None)
        return self.reader.read(found, claim.uid, self.inventory.devices)

    def check_waited_for(self, context: Any) -> None:
        pass

    def unprepare(self, claim: Any) -> None:
        with self.state.locked() as claims:
            self.take_down(claims, claim.uid)


@defect("prepare.uid")
class LooksOnlyAtTheName(ClaimReader):
    def check_uid(self, claim: Object, uid: str) -> None:
        pass


@defect("prepare.no-allocation")
class PreparesNothing(ClaimReader):
    def read(self, claim: Object, uid: str, devices: Container[str]) -> list[Object]:
        if not claim.get("status", {}).get("allocation"):
            return []
        return super().read(claim, uid, devices)


@defect("prepare.unknown-device")
class TakesEachName(ClaimReader):
    def check_device(self, result: Object, devices: Container[str]) -> None:
        pass


@defect("prepare.unknown-device", "any-pool")
class LooksOnlyAtDeviceNames(ClaimReader):
    def check_device(self, result: Object, devices: Container[str]) -> None:
        super().check_device(result | {"pool": self.node}, devices)


@defect("prepare.foreign")
class TakesEachDriver(ClaimReader):
    def results(self, allocation: Object) -> Iterator[Object]:
        yield from allocation["devices"]["results"]

    def check_device(self, result: Object, devices: Container[str]) -> None:
        if result["driver"] == self.driver:
            super().check_device(result, devices)


@defect("prepare.requests")
class OneRequestForAll(ClaimReader):
    def read(self, claim: Object, uid: str, devices: Container[str]) -> list[Object]:
        wanted = super().read(claim, uid, devices)
        return [each | {"request": wanted[0]["request"]} for each in wanted]


@defect("prepare.subrequest")
class NamesTheSubrequest(ClaimReader):
    def request_name(self, request: str) -> str:
        return request


@defect("prepare.reserved")
class OnlyForOnePod(ClaimReader):
    def check_reservation(self, claim: Object) -> None:
        if len(claim["status"].get("reservedFor", ())) != 1:
            raise Refused("the claim is not reserved for exactly one pod")


@defect("prepare.answers", "one-more")
class AnswersOneMoreDevice(Service):
    def answered(self, response: Any) -> Any:
        for each in response.claims.values():
            if each.devices:
                pool = each.devices[0].pool_name
                each.devices.add(pool_name=pool, device_name="control")
        return response


@defect("prepare.requests", "for-all")
class AnswersADeviceForAllRequests(Service):
    def answered(self, response: Any) -> Any:
        for each in response.claims.values():
            if each.devices:
                each.devices.add().CopyFrom(each.devices[0])
                del each.devices[-1].request_names[:]
        return response


@defect("prepare.batch", "no-errors")
class AnswersWithoutErrors(Service):
    def answered(self, response: Any) -> Any:
        if len(response.claims) > 1:
            for each in response.claims.values():
                each.error = ""
        return response


@defect("prepare.reserved", "no-devices")
class PreparesNothingForNobody(ClaimReader):
    def read(self, claim: Object, uid: str, devices: Container[str]) -> list[Object]:
        wanted = super().read(claim, uid, devices)
        return wanted if claim["status"].get("reservedFor") else []


@defect("prepare.answers", "no-device-file")
class NamesNoDeviceFile(CdiFiles):
    def edits(self, each: Prepared) -> Object:
        edits = super().edits(each)
        edits["deviceNodes"][0]["hostPath"] = "/dev/no-such-device"
        return edits


@defect("prepare.answers", "no-pool")
class NamesNoPool(Service):
    def answered(self, response: Any) -> Any:
        for each in response.claims.values():
            for device in each.devices:
                device.pool_name = ""
        return response


@defect("prepare.requests", "all-ids")
class GivesAllIdsToAll(Service):
    def answered(self, response: Any) -> Any:
        for answer in response.claims.values():
            names = {name for each in answer.devices for name in each.cdi_device_ids}
            for each in answer.devices:
                del each.cdi_device_ids[:]
                each.cdi_device_ids.extend(sorted(names))
        return response
