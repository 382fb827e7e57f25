"""Drivers with a mistake in Unprepare."""

from typing import Any

from tests.check.grpc_driver.api import ApiError
from tests.check.grpc_driver.cdi import CdiFiles
from tests.check.grpc_driver.claims import Refused
from tests.check.grpc_driver.defects.registry import defect
from tests.check.grpc_driver.service import Devices, Service
from tests.check.grpc_driver.state import Claims

_NO_DEVICE = "there is no device"


@defect("unprepare.cleans")
class LeavesItsFile(CdiFiles):
    def remove(self, uid: str) -> None:
        pass


@defect("unprepare.twice")
class RefusesASecondUnprepare(Service):
    def __init__(self, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        self.ended: set[str] = set()

    def prepare(self, claim: Any, context: Any, left: int) -> Devices:
        self.ended.discard(claim.uid)
        return super().prepare(claim, context, left)

    def unprepare(self, claim: Any) -> None:
        if claim.uid in self.ended:
            raise Refused("the claim is not prepared")
        super().unprepare(claim)
        self.ended.add(claim.uid)


@defect("unprepare.api-away")
class AsksTheServer(Service):
    def unprepare(self, claim: Any) -> None:
        try:
            self.api.claim(claim.namespace, claim.name, 5, lambda _: None)
        except ApiError as error:
            if self.matters(error, claim):
                raise
        super().unprepare(claim)

    def matters(self, error: ApiError, claim: Any) -> bool:
        return error.status >= 500


@defect("unprepare.object-gone")
class NeedsTheObject(AsksTheServer):
    def matters(self, error: ApiError, claim: Any) -> bool:
        with self.state.locked() as claims:
            return error.status > 0 and claim.uid in claims


@defect("slices.api-away", "needs-the-object")
class NeedsAnyAnswer(AsksTheServer):
    def matters(self, error: ApiError, claim: Any) -> bool:
        return not error.status


@defect("unprepare.others")
class EmptiesItsDirectory(CdiFiles):
    def remove(self, uid: str) -> None:
        for each in self.directory.glob(f"{self.driver}-*"):
            each.unlink()


@defect("unprepare.half")
class HoldsWhatItRefused(Service):
    def __init__(self, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        self.lost: set[str] = set()

    def read(self, claim: Any, context: Any, left: int) -> Devices:
        try:
            return super().read(claim, context, left)
        except Refused as error:
            if str(error).startswith(_NO_DEVICE):
                found = self.api.claim(claim.namespace, claim.name, 5, lambda _: None)
                results = self.reader.results(found["status"]["allocation"])
                self.lost |= {each["device"] for each in results}
            raise

    def check_holders(self, claims: Claims, uid: str, wanted: Devices) -> None:
        for each in wanted:
            if each["device"] in self.lost:
                raise Refused(f"the device {each['device']} is in use")
        super().check_holders(claims, uid, wanted)


@defect("unprepare.unknown")
class RefusesWhatItNeverSaw(Service):
    def __init__(self, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        self.seen: set[str] = set()

    def prepare(self, claim: Any, context: Any, left: int) -> Devices:
        self.seen.add(claim.uid)
        return super().prepare(claim, context, left)

    def take_down(self, claims: Claims, uid: str) -> None:
        if uid not in claims and uid not in self.seen:
            raise Refused("the claim is unknown")
        super().take_down(claims, uid)


@defect("unprepare.device-gone")
class LooksTheDeviceUp(Service):
    def take_down(self, claims: Claims, uid: str) -> None:
        for each in claims.get(uid, {"devices": []})["devices"]:
            if each["device"] not in self.inventory.devices:
                raise Refused(f"there is no device {each['device']}")
        super().take_down(claims, uid)


@defect("unprepare.cleans", "keeps-the-device")
class KeepsTheDevice(Service):
    def take_down(self, claims: Claims, uid: str) -> None:
        self.files.remove(uid)
