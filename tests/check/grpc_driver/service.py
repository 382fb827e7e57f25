"""NodePrepareResources and NodeUnprepareResources."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.check.grpc_driver import messages
from tests.check.grpc_driver.api import Api, ApiError
from tests.check.grpc_driver.cdi import CdiFiles
from tests.check.grpc_driver.claims import ClaimReader, Refused
from tests.check.grpc_driver.inventory import Inventory
from tests.check.grpc_driver.state import Claims, State

Devices = list[dict[str, Any]]
_KUBELET_WAITS, _RESERVE, _LONGEST_READ = 45.0, 5.0, 15.0
"""Seconds of the kubelet for a call, for all but reading claims, and to read one claim."""


class Service:
    """Each claim has a lock of its own; the state has one for all claims and instances."""

    def __init__(
        self,
        api: Api,
        inventory: Inventory,
        reader: ClaimReader,
        *,
        state: State,
        files: CdiFiles,
        log: Callable[[str], None],
    ) -> None:
        self.api, self.inventory, self.reader = api, inventory, reader
        self.state, self.files, self.log = state, files, log
        self._busy: set[str] = set()
        self._free = threading.Condition()

    # ------------------------------------------------------------ gRPC

    def NodePrepareResources(self, request: Any, context: Any) -> Any:  # noqa: N802
        response = messages.PrepareResponse()
        for left, claim in zip(range(len(request.claims), 0, -1), request.claims, strict=True):
            answer = response.claims[claim.uid]
            try:
                prepared = self.prepare(claim, context, left)
            except (Refused, ApiError, OSError) as error:
                self.log(f"Prepare of {claim.namespace}/{claim.name}: {error}")
                answer.error = self.error_text(error)
                continue
            for each in prepared:
                made = answer.devices.add(
                    request_names=[each["request"]],
                    pool_name=each["pool"],
                    device_name=each["device"],
                    cdi_device_ids=[self.files.device_id(claim.uid, each)],
                )
                if each["share"]:
                    made.share_id = each["share"]
        return self.answered(response)

    def answered(self, response: Any) -> Any:
        """Return the answer of a call of Prepare."""
        return response

    def error_text(self, error: Exception) -> str:
        """Return the event of the pod."""
        return str(error)

    def NodeUnprepareResources(self, request: Any, context: Any) -> Any:  # noqa: N802
        response = messages.UnprepareResponse()
        for claim in request.claims:
            answer = response.claims[claim.uid]
            try:
                self.unprepare(claim)
            except (Refused, ApiError, OSError) as error:
                self.log(f"Unprepare of {claim.namespace}/{claim.name}: {error}")
                answer.error = str(error)
        return response

    # ------------------------------------------------------------ Prepare

    def prepare(self, claim: Any, context: Any, left: int) -> Devices:
        """Return what is prepared; raises `Refused`, `ApiError` and OSError.

        `left` claims of the call have to be prepared in the time that is left.
        """
        with self.alone(claim.uid):
            with self.state.locked() as claims:
                known = claims.get(claim.uid)
                if known and known["boot"] == self.state.boot:
                    return self.repeated(claim.uid, known["devices"])
            wanted = known["devices"] if known else self.read(claim, context, left)
            self.check_waited_for(context)
            if known:
                self.check_present(wanted)
            with self.state.locked() as claims:
                self.check_holders(claims, claim.uid, wanted)
                self.set_up(claims, claim.uid, wanted)
            return wanted

    @contextmanager
    def alone(self, uid: str) -> Iterator[None]:
        """Let other calls for this claim wait."""
        with self._free:
            self._free.wait_for(lambda: uid not in self._busy)
            self._busy.add(uid)
        try:
            yield
        finally:
            with self._free:
                self._busy.discard(uid)
                self._free.notify_all()

    def read(self, claim: Any, context: Any, left: int) -> Devices:
        """Read the claim; the request ends when the kubelet cancels the call."""
        seconds = context.time_remaining() or _KUBELET_WAITS
        limit = min(max(seconds - _RESERVE, 1) / left, _LONGEST_READ)
        found = self.api.claim(claim.namespace, claim.name, limit, context.add_callback)
        return self.reader.read(found, claim.uid, self.inventory.devices)

    def check_waited_for(self, context: Any) -> None:
        """Refuse when the call was cancelled: Unprepare may have been called already."""
        if not context.is_active():
            raise Refused("the kubelet has cancelled the call")

    def check_present(self, wanted: Devices) -> None:
        """Look at the devices afresh: the claim comes from before a reboot."""
        devices = self.inventory.scan()
        for each in wanted:
            if each["device"] not in devices:
                raise Refused(f"the device {each['device']} is not there any more")

    def check_holders(self, claims: Claims, uid: str, wanted: Devices) -> None:
        """Refuse devices that other claims hold."""
        for each in wanted:
            for holder, held in self.holders(claims):
                if holder != uid and self.excludes(each, held):
                    raise Refused(f"the device {each['device']} is in use by the claim {holder}")

    def holders(self, claims: Claims) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the prepared devices of all claims."""
        for uid, known in claims.items():
            for each in known["devices"]:
                yield uid, each

    def excludes(self, one: dict[str, Any], other: dict[str, Any]) -> bool:
        """Whether one claim cannot have a device beside another; monitoring excludes nobody."""
        if (one["pool"], one["device"]) != (other["pool"], other["device"]):
            return False
        is_monitoring = one["admin"] or other["admin"]
        return not is_monitoring and not (one["share"] and other["share"])

    def set_up(self, claims: Claims, uid: str, wanted: Devices) -> None:
        """Save what is going to be, then do it: after a crash Unprepare knows what to undo."""
        claims[uid] = {"boot": self.state.boot, "devices": wanted}
        self.state.save(claims)
        try:
            self.files.ensure(uid, wanted)
        except OSError:
            del claims[uid]
            self.state.save(claims)
            raise

    def repeated(self, uid: str, devices: Devices) -> Devices:
        """Return the answer of a prepared claim; its file may be gone."""
        self.files.ensure(uid, devices)
        return devices

    # ------------------------------------------------------------ Unprepare

    def unprepare(self, claim: Any) -> None:
        """Undo Prepare, by the UID alone: the object may be gone. Raises OSError."""
        with self.alone(claim.uid), self.state.locked() as claims:
            self.take_down(claims, claim.uid)

    def take_down(self, claims: Claims, uid: str) -> None:
        """Remove the file, then forget the claim: after a crash Unprepare is repeated."""
        self.files.remove(uid)
        if claims.pop(uid, None) is not None:
            self.state.save(claims)
