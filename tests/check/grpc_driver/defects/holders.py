"""Drivers with a mistake in who holds a device."""

from collections.abc import Iterator
from typing import Any

from tests.check.grpc_driver.cdi import CdiFiles, Prepared
from tests.check.grpc_driver.defects.registry import defect
from tests.check.grpc_driver.service import Devices, Service
from tests.check.grpc_driver.state import Claims

Object = dict[str, Any]


class NotesItsOwn(Service):
    """Knows which claims this process has prepared."""

    def __init__(self, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        self.mine: set[str] = set()

    def set_up(self, claims: Claims, uid: str, wanted: Devices) -> None:
        super().set_up(claims, uid, wanted)
        self.mine.add(uid)


@defect("prepare.exclusive")
class ForgetsHoldersAtARestart(NotesItsOwn):
    def holders(self, claims: Claims) -> Iterator[tuple[str, Object]]:
        return (each for each in super().holders(claims) if each[0] in self.mine)


@defect("prepare.admin")
class RefusesMonitoring(Service):
    def excludes(self, one: Object, other: Object) -> bool:
        return super().excludes(one | {"admin": False}, other | {"admin": False})


@defect("prepare.shares")
class OverlooksShares(Service):
    def excludes(self, one: Object, other: Object) -> bool:
        return not other["share"] and super().excludes(one, other)


@defect("prepare.exclusive", "never-looks")
class NeverLooksForHolders(Service):
    def check_holders(self, claims: Claims, uid: str, wanted: Devices) -> None:
        pass


@defect("prepare.shares", "beside-exclusive")
class SharesWhatOneHolds(Service):
    def excludes(self, one: Object, other: Object) -> bool:
        return not one["share"] and super().excludes(one, other)


@defect("prepare.shares", "one-holder")
class RefusesASecondShare(Service):
    def excludes(self, one: Object, other: Object) -> bool:
        return super().excludes(one | {"share": ""}, other)


@defect("prepare.twice")
class NamesOnlyTheDevice(CdiFiles):
    def name(self, uid: str, each: Prepared) -> str:
        return "-".join(word for word in (uid, each["device"], each["share"]) if word)


@defect("prepare.admin", "holder-changed")
class MonitorsInTheFileOfTheHolder(Service):
    def set_up(self, claims: Claims, uid: str, wanted: Devices) -> None:
        super().set_up(claims, uid, wanted)
        for holder, held in self.holders(claims):
            if holder != uid and any(each["admin"] for each in wanted):
                self.files.ensure(holder, [held | {"admin": True}])


@defect("prepare.shares", "one-end-for-all")
class EndsAllShares(Service):
    def take_down(self, claims: Claims, uid: str) -> None:
        mine = {each["device"] for each in claims.get(uid, {"devices": []})["devices"]}
        super().take_down(claims, uid)
        for other in [*claims]:
            if mine & {each["device"] for each in claims[other]["devices"] if each["share"]}:
                super().take_down(claims, other)


@defect("prepare.admin", "ends-the-holder")
class EndsTheHolder(Service):
    def take_down(self, claims: Claims, uid: str) -> None:
        watched = [each for each in claims.get(uid, {"devices": []})["devices"] if each["admin"]]
        names = {each["device"] for each in watched}
        super().take_down(claims, uid)
        for other in [*claims]:
            if names & {each["device"] for each in claims[other]["devices"]}:
                super().take_down(claims, other)
