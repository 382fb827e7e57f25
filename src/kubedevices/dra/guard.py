"""Keeps a driver from offering what the device plugin API of the node still has. asyncio.

It asks the kubelet's podresources socket: often while a device is withheld, else rarely, and once
more before a claim gets a device for the first time.
"""

import asyncio
import contextlib
import errno
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol

from kubedevices.device_tree import DeviceTree
from kubedevices.dra.names import DeviceKey
from kubedevices.dra.plugin_view import PluginView
from kubedevices.errors import WireError
from kubedevices.kubelet_api.pod_resources import DeviceEntry, PodEntry, PodResourcesClient
from kubedevices.wire.unix_grpc import GrpcChannel

_log = logging.getLogger(__name__)


class Guard(Protocol):
    """Says which devices of a driver are not to be published, and which claims may not have."""

    @property
    def publishes(self) -> bool:
        """Whether the driver is to have slices at all."""

    def withheld(self, tree: DeviceTree) -> Mapping[DeviceKey, str] | None:
        """Return the devices that must not be in a slice, and why.

        None while it is not known: slices of an earlier process stay as they are.
        """

    async def refusal(self, keys: Collection[DeviceKey]) -> str:
        """Return why a claim cannot have devices that it never had; empty if it can."""

    async def run(self, changed: Callable[[], None]) -> NoReturn:
        """Call `changed` whenever `withheld` may say something else."""


class GuardTiming(NamedTuple):
    """All in seconds."""

    pending: float = 0.5
    """Between two questions to the kubelet while a device is withheld."""

    idle: float = 10.0
    """The same while none is: another program may become a device plugin at any time."""

    answer: float = 5.0

    young: float = 10.0
    """A kubelet that began to serve less long ago may not know all its pods yet."""


class KubeletGuard:
    """Asks the podresources socket of the kubelet about the resources of `domain`.

    Where there is not even a directory for the socket, there is nobody to ask, and nothing is
    withheld. Where a kubelet does not answer, what it said last counts.
    """

    def __init__(self, domain: str, socket: Path, timing: GuardTiming | None = None) -> None:
        self._domain, self._socket = domain, socket
        self._timing = timing or GuardTiming()
        self._problem, self._has_told_of_youth = "", False
        self._young_until: tuple[tuple[int, int, int], float] | None = None
        self._asking, self._hurry = asyncio.Lock(), asyncio.Event()
        self._told: Mapping[DeviceKey, str] = {}
        self.view: PluginView | None = None
        """What the kubelet said last; None before it said anything that can be relied on."""

        self.is_waiting = True
        """Whether a device is to be published as soon as it is free: then it asks often."""

    publishes = True

    def withheld(self, tree: DeviceTree) -> Mapping[DeviceKey, str] | None:
        """Return what the kubelet's device plugins have."""
        if self.view is None:
            return None
        keys = ((kind, name) for kind in tree for name in tree.devices(kind))
        reasons = {key: why for key in keys if (why := self.reason(key))}
        self.wait_for(reasons)
        return reasons

    def wait_for(self, reasons: Mapping[DeviceKey, str]) -> None:
        """Ask often while devices are withheld for `reasons`; log what is new of them."""
        for kind, name in reasons.keys() - self._told.keys():
            _log.info("%s: device %s is withheld: %s", kind, name, reasons[kind, name])
        for kind, name in self._told.keys() - reasons.keys():
            _log.info("%s: device %s is withheld no more", kind, name)
        self._told = reasons
        if reasons and not self.is_waiting:
            self._hurry.set()
        self.is_waiting = bool(reasons)

    def reason(self, key: DeviceKey) -> str:
        """Return why a device is withheld; empty if it is not."""
        if self.view is None:
            return "the kubelet has not said yet which pods hold devices"
        return self.view.reason(key)

    async def refusal(self, keys: Collection[DeviceKey]) -> str:
        """Ask the kubelet again, because it knows of pods that it did not know of before."""
        await self.ask()
        for key in keys:
            if why := self.reason(key):
                return f"device {key[1]} cannot be used: {why}"
        return ""

    async def run(self, changed: Callable[[], None]) -> NoReturn:
        """Ask again and again."""
        while True:
            before = self.view
            await self.ask()
            if (
                before is None
                or self.view is None
                or (before.held, before.allocatable) != (self.view.held, self.view.allocatable)
            ):
                changed()
            # `_hurry` ends the long pause when a device begins to be withheld.
            self._hurry.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timing.idle):
                    if self.is_waiting:
                        await asyncio.sleep(self._timing.pending)
                    else:
                        await self._hurry.wait()

    async def ask(self) -> None:
        """Update `view`; what goes wrong is logged, the same in a row once."""
        async with self._asking:
            loop = asyncio.get_running_loop()
            # The time before the questions: an answer says nothing about what happened after it was
            # asked for.
            asked_at, timeout = loop.time(), self._timing.answer
            try:
                is_young = self._is_young(loop.time())
                async with await GrpcChannel.dial(self._socket, timeout=timeout) as channel:
                    client = PodResourcesClient(channel)
                    # In this order: what is no longer allocatable cannot be given to a pod before
                    # the second answer. The other way round, a device given in between would be in
                    # neither.
                    allocatable = await client.get_allocatable(timeout=timeout)
                    pods = await client.list_pods(timeout=timeout)
            except (OSError, WireError) as error:
                self._complain(error)
                return
            self._problem = ""
            view = _view_of(self._domain, asked_at, allocatable, pods)
            if not is_young:
                self.view = view
            elif self.view is not None:
                # A kubelet that has just started lists its pods only as it learns of them: pods
                # that it knew before its restart still count.
                self.view = view.with_pods_of(self.view)
            elif not self._has_told_of_youth:
                self._has_told_of_youth = True
                _log.info(
                    "the kubelet at %s has just started and may not know all pods yet: devices are "
                    "published %g s after its start", self._socket, self._timing.young,
                )  # fmt: skip

    def _is_young(self, now: float) -> bool:
        """Whether the kubelet has just started: it makes its socket when it does.

        The clock of the host may be wrong, so a socket counts as old too if we know it so long.
        """
        found = os.stat(self._socket)  # noqa: PTH116 - one number of it is enough
        socket = (found.st_dev, found.st_ino, found.st_ctime_ns)
        if self._young_until is None or self._young_until[0] != socket:
            age = max(0.0, time.time() - found.st_ctime)
            self._young_until = socket, now + self._timing.young - age
        return now < self._young_until[1]

    def _complain(self, error: OSError | WireError) -> None:
        number = error.errno if isinstance(error, OSError) else None
        if number == errno.ENOENT and not self._socket.parent.is_dir():
            self.view = PluginView(asyncio.get_running_loop().time())
            problem = (
                f"there is no {self._socket.parent}: devices that pods hold as those of a device "
                "plugin are not withheld (in a container, mount the directory from the host)"
            )
        else:
            reason = error.strerror if isinstance(error, OSError) else error
            problem = (
                f"the kubelet at {self._socket} does not say which pods hold devices: {reason}"
            )
        if problem != self._problem:
            _log.warning("%s", problem)
        self._problem = problem


def _view_of(
    domain: str, at: float, allocatable: Iterable[DeviceEntry], pods: Iterable[PodEntry]
) -> PluginView:
    """Return what two answers of a kubelet say of the resources `domain/…`."""
    held = {
        key: f"{pod.namespace}/{pod.name}"
        for pod in pods
        for container in pod.containers
        for key in _keys(domain, container.devices)
    }
    return PluginView(at, held, frozenset(_keys(domain, allocatable)))


def _keys(domain: str, entries: Iterable[DeviceEntry]) -> Iterable[DeviceKey]:
    for entry in entries:
        its_domain, _, device_type = entry.resource.partition("/")
        if its_domain == domain:
            for device_id in entry.device_ids:
                yield device_type, device_id
