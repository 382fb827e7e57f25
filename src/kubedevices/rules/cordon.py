"""Cordons the devices that a file names: they are Unhealthy, and Allocate is refused.

`kubedevices cordon` writes the file (`cordon_file`). This middleware reads it at each start
and after each change, so a device stays cordoned until `kubedevices uncordon`. Pods that hold
the device go on.
"""

import logging
import math
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kubedevices.errors import CannotRead, DeviceCordoned
from kubedevices.host import deadlines
from kubedevices.host.file_watch import FileWatch
from kubedevices.plugin import hook_threads
from kubedevices.plugin.capabilities import AllocateAnswer, Allocator
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.scanner import Scanner
from kubedevices.rules.middleware import Middleware, OwnedRelay
from kubedevices.rules.replicas import device_of
from kubedevices.values.allocation import AllocateRequest
from kubedevices.values.device import Health
from kubedevices.values.device_tree import DeviceTree

if TYPE_CHECKING:
    from kubedevices.rules.cordon_file import CordonEntry

FILE_NAME = "maintenance.json"
"""The name of the file in a state directory."""

LOOK_INTERVAL = 10.0
"""Interval in seconds of the look at the file that also finds changes without a file event."""

_SHORTEST_PAUSE = 0.01

_log = logging.getLogger(__name__)


class CordonList:
    """The cordoned devices of a domain: `(resource, ID, reason)` as in the file.

    If the plugin lists only the device, the ID of a replica (`GPU-1::2`) means its device. If the
    plugin lists replicas, the ID of a device means all its replicas.
    """

    def __init__(self, domain: str = "", cordoned: Iterable[tuple[str, str, str]] = ()) -> None:
        self._reasons: dict[str, dict[str, str]] = {}
        self._by_replica: dict[str, dict[str, str]] = {}
        for resource, device_id, reason in cordoned:
            its_domain, _, device_type = resource.partition("/")
            if its_domain == domain:
                self._reasons.setdefault(device_type, {})[device_id] = reason
                of_device = self._by_replica.setdefault(device_type, {})
                of_device.setdefault(device_of(device_id), reason)

    def __bool__(self) -> bool:
        return bool(self._reasons)

    def reason(self, device_type: str, device_id: str) -> str | None:
        """Return why a device is cordoned; None for any other device."""
        reasons = self._reasons.get(device_type)
        if reasons is None:
            return None
        for known in (device_id, device_of(device_id)):
            if known in reasons:
                return reasons[known]
        return self._by_replica[device_type].get(device_id)

    def applied(self, tree: DeviceTree) -> DeviceTree:
        """Return `tree` with these devices Unhealthy; `tree` itself if nothing changes."""
        return tree.replaced(
            {
                name: {
                    each.id: each.with_health(Health.UNHEALTHY, f"cordoned: {reason}")
                    for each in tree.devices(name).values()
                    if each.is_healthy and (reason := self.reason(name, each.id)) is not None
                }
                for name in self._reasons
            }
        )


class Cordoned(Middleware):
    """Cordons the devices that `file` names for resources `domain/device type`.

    Without the file no device is cordoned. Events: `cordoned`, `uncordoned`, `refused`,
    `failed_readings`.
    """

    def __init__(self, scanner: Scanner, domain: str, file: Path) -> None:
        super().__init__(scanner)
        self.out = CordonList()
        self.domain, self.file = domain, file
        self._problem = ""
        self._ends = math.inf
        """When the first device comes back by itself, in seconds since the epoch."""

        self._known: frozenset[tuple[str, str, str]] = frozenset()

    @property
    def cordoned(self) -> frozenset[tuple[str, str, str]]:
        """All devices of the domain that are out: `(resource, ID, reason)`."""
        return self._known

    def line(self) -> str:
        """Return the file, if devices are cordoned."""
        return f"cordon: {self.file} has cordoned devices" if self.out else ""

    def change(self, tree: DeviceTree, now: float) -> DeviceTree:
        """Return `tree` with the cordoned devices Unhealthy."""
        del now
        return self.out.applied(tree)

    def relay(self, inner: Hooks, device_type: str, inner_type: str) -> "CordonedRelay":
        """Return the relay that refuses the cordoned devices."""
        return CordonedRelay(self, inner, device_type, inner_type)

    async def scan(self, notifier: Notifier) -> None:
        """Read the file before the first devices, and watch it."""
        with FileWatch(interval=LOOK_INTERVAL) as watch, watch.subscribe(self.file) as changes:
            self._changes = changes  # subscribed before the first reading: no change gets lost
            await self.read_now()
            await super().scan(notifier)

    async def run_beside(self) -> NoReturn:
        """Read the file after each change, and when a device comes back by itself."""
        while True:
            # A clock that jumps is noticed within one interval.
            left = None if self._ends == math.inf else min(self._ends - time.time(), LOOK_INTERVAL)
            pause = left if left is None else max(left, _SHORTEST_PAUSE)
            await deadlines.within(pause, self._changes.changed())
            await self.read_now()

    async def read_now(self) -> None:
        """Read the file. A damaged file is logged and changes nothing."""
        try:
            cordoned = await self._cordoned()
        except CannotRead as error:
            if str(error) != self._problem:
                self.count("failed_readings")
                _log.error("%s; what was cordoned before stays cordoned", error)
            self._problem = str(error)
            return
        self._problem = ""
        prefix = f"{self.domain}/"
        named = [each for each in cordoned if each.resource.startswith(prefix)]
        now = time.time()
        self._ends = now + min((each.seconds_left(now) for each in named), default=math.inf)
        ours = frozenset(each[:3] for each in named)
        if ours != self._known:
            self._report(ours)
            self._known, self.out = ours, CordonList(self.domain, ours)
            self.look_again()

    async def _cordoned(self) -> "tuple[CordonEntry, ...]":
        try:
            os.lstat(self.file)
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:  # unreadable: the file may name devices, so do not return ()
            raise CannotRead(str(self.file), error.strerror or str(error)) from error
        # Imported here: few hosts have the file.
        from kubedevices.rules.cordon_file import read_cordoned  # noqa: PLC0415

        return await hook_threads.call(read_cordoned, self.file)

    def _report(self, now: frozenset[tuple[str, str, str]]) -> None:
        before = {each[:2] for each in self._known}
        for resource, device_id, reason in sorted(now - self._known):
            self.count("cordoned", resource.partition("/")[2])
            _log.warning("%s: %s is cordoned: %s", resource, device_id, reason)
        for resource, device_id in sorted(before - {each[:2] for each in now}):
            self.count("uncordoned", resource.partition("/")[2])
            _log.info("%s: %s is uncordoned", resource, device_id)


class CordonedRelay(OwnedRelay[Cordoned]):
    """Refuses cordoned devices: a kubelet may just have chosen one."""

    adds = frozenset({Allocator})

    def __init__(self, owner: Cordoned, inner: Hooks, device_type: str, inner_type: str) -> None:
        super().__init__(owner, inner, device_type, inner_type)
        self.cordon_file = owner.file

    async def allocate(self, request: AllocateRequest) -> AllocateAnswer:
        """Ask the inner type. Raises `DeviceCordoned` for a cordoned device."""
        if out := self.owner.out:
            for container in request.containers:
                for device_id in container.device_ids:
                    reason = out.reason(self.device_type, device_id)
                    if reason is not None:
                        self.owner.count("refused", self.device_type)
                        raise DeviceCordoned(device_id, reason)
        return await super().allocate(request)
