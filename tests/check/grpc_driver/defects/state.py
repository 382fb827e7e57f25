"""Drivers that do not survive a reboot, a crash or a damaged file."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.check.grpc_driver.cdi import CdiFiles, Prepared
from tests.check.grpc_driver.claims import ClaimReader, Refused
from tests.check.grpc_driver.defects.holders import NotesItsOwn
from tests.check.grpc_driver.defects.registry import defect
from tests.check.grpc_driver.driver import Driver
from tests.check.grpc_driver.service import Devices, Service
from tests.check.grpc_driver.state import Claims, State

Object = dict[str, Any]
_DEVICE = "/dev/full"


@defect("state.cdi-wiped")
class AnswersFromMemory(NotesItsOwn):
    def repeated(self, uid: str, devices: Devices) -> Devices:
        return devices if uid in self.mine else super().repeated(uid, devices)


@defect("state.reboot")
class AnswersFromItsCheckpoint(NotesItsOwn):
    def __init__(self, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        self.state.boot = "any"

    def repeated(self, uid: str, devices: Devices) -> Devices:
        return super().repeated(uid, devices) if uid in self.mine else devices


@defect("state.reboot", "refuses")
class RefusesClaimsOfAnotherBoot(Service):
    def check_present(self, wanted: Devices) -> None:
        raise Refused("the claim was prepared before the last reboot")


@defect("state.reboot", "old-numbers")
class SavesDeviceNumbers(ClaimReader):
    def wanted(self, result: Object, parameters: Mapping[str, Any]) -> Object:
        number = Path(_DEVICE).stat().st_rdev
        numbers = {"major": os.major(number), "minor": os.minor(number)}
        return super().wanted(result, parameters) | {"numbers": numbers}


@defect("state.reboot", "old-numbers")
class WritesDeviceNumbers(CdiFiles):
    def edits(self, each: Prepared) -> Object:
        node = {"path": f"/dev/grpc/{each['device']}", "hostPath": _DEVICE, "type": "c"}
        return super().edits(each) | {"deviceNodes": [node | each["numbers"]]}


@defect("state.killed")
class LocksByFiles(Service):
    def set_up(self, claims: Claims, uid: str, wanted: Devices) -> None:
        lock = self.files.directory / f".{uid}.lock"
        try:
            lock.touch(exist_ok=False)
        except FileExistsError as error:
            raise Refused("another call prepares the claim") from error
        time.sleep(0.2)
        super().set_up(claims, uid, wanted)
        lock.unlink()


@defect("state.checkpoint-cut")
class EndsWithoutItsCheckpoint(State):
    def __init__(self, directory: Path, log: Callable[[str], None]) -> None:
        super().__init__(directory, log)
        self.load()

    def lost(self, reason: str) -> Claims:
        self._log(f"cannot read the checkpoint: {reason}")
        os._exit(1)


@defect("state.leftovers")
class CleansItsDirectory(Driver):
    def build(self) -> None:
        super().build()
        for each in self.options.cdi_dir.glob("*.json"):
            if not each.name.startswith(self.service.files.driver):
                each.unlink()


@defect("state.restart-held")
class NamesItsProcess(CdiFiles):
    def name(self, uid: str, each: Prepared) -> str:
        return f"{super().name(uid, each)}-{os.getpid()}"


@defect("state.growth")
class LeaksDescriptors(Service):
    def prepare(self, claim: Any, context: Any, left: int) -> Devices:
        os.open(os.devnull, os.O_RDONLY)
        return super().prepare(claim, context, left)


@defect("state.checkpoint-write")
class KeepsItInMemory(State):
    remembered: Claims

    @contextmanager
    def locked(self) -> Iterator[Claims]:
        if self._directory.exists() and not os.access(self._directory, os.W_OK):
            yield self.remembered
        else:
            with super().locked() as claims:
                self.remembered = claims
                yield claims

    def save(self, claims: Claims) -> None:
        with suppress(OSError):
            super().save(claims)


@defect("state.restart-held", "forgets")
class ForgetsAtARestart(NotesItsOwn):
    def unprepare(self, claim: Any) -> None:
        if claim.uid in self.mine:
            super().unprepare(claim)


@defect("state.growth", "threads")
class LeavesThreads(Service):
    def prepare(self, claim: Any, context: Any, left: int) -> Devices:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        return super().prepare(claim, context, left)


@defect("state.growth", "memory")
class KeepsEachCall(Service):
    def prepare(self, claim: Any, context: Any, left: int) -> Devices:
        self.calls = [*getattr(self, "calls", ()), os.urandom(2**20)]
        return super().prepare(claim, context, left)


@defect("state.restart-held", "parameters")
class ForgetsParametersAtARestart(NotesItsOwn):
    def repeated(self, uid: str, devices: Devices) -> Devices:
        if uid not in self.mine:
            devices = [each | {"parameters": {"mode": "lost"}} for each in devices]
        return super().repeated(uid, devices)


@defect("state.checkpoint-cut", "newer")
class EndsAtANewerVersion(State):
    def lost(self, reason: str) -> Claims:
        if "version" in reason:
            os._exit(1)
        return super().lost(reason)


@defect("state.checkpoint-cut", "silent")
class SaysNothing(State):
    def __init__(self, directory: Path, log: Callable[[str], None]) -> None:
        super().__init__(directory, lambda _: None)
