"""Withholds devices of the node's device plugin API from ResourceSlices and claims. asyncio.

The guard asks the kubelet's podresources socket: every 0.5 s while a device is withheld, otherwise
every 10 s, and before a claim gets a device that the claim did not have before.
"""

import asyncio
import errno
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol

from kubedevices.dra.device_plugin_view import PluginView
from kubedevices.dra.names import DeviceKey
from kubedevices.errors import WireError
from kubedevices.host import deadlines
from kubedevices.kubelet_api.pod_resources import DeviceEntry, PodEntry, PodResourcesClient
from kubedevices.values.device_tree import DeviceTree
from kubedevices.wire.unix_grpc import GrpcChannel

_log = logging.getLogger(__name__)


class Guard(Protocol):
    """Decides which devices a driver must not publish or give to a claim."""

    @property
    def publishes(self) -> bool:
        """Whether the driver may have slices at all."""

    def withheld(self, tree: DeviceTree) -> Mapping[DeviceKey, str] | None:
        """Return the devices that must not be in a slice, each with the reason.

        None means that this is still unknown: slices of an earlier process stay unchanged.
        """

    async def refusal(self, keys: Collection[DeviceKey]) -> str:
        """Return why a claim cannot have devices that are new to it; empty if it can."""

    async def claims_of_pods(self) -> Collection[tuple[str, str]] | None:
        """Ask the kubelet for the claims of its containers, by namespace and name.

        None if the kubelet does not answer, or may not know all its pods yet.
        """

    async def run(self, changed: Callable[[], None]) -> NoReturn:
        """Call `changed` each time the result of `withheld` may have changed."""


class GuardTiming(NamedTuple):
    """All in seconds."""

    pending: float = 0.5
    """Time between two questions to the kubelet while a device is withheld."""

    idle: float = 10.0
    """Time between two questions while no device is withheld: another program may start a device
    plugin at any time."""

    answer: float = 5.0
    """Deadline of a question."""

    young: float = 10.0
    """A kubelet may not know all its pods until it has served for this time."""


class KubeletGuard:
    """Asks the podresources socket of the kubelet about the resources of `domain`.

    If the directory of the socket does not exist, no device is withheld. If the kubelet does not
    answer, its last answer counts.
    """

    def __init__(self, domain: str, socket: Path, timing: GuardTiming | None = None) -> None:
        self._domain, self._socket = domain, socket
        self._timing = timing or GuardTiming()
        self._problem, self._has_logged_youth = "", False
        # Identity of the kubelet's socket, and the time until which this kubelet is young.
        self._young_until: tuple[tuple[int, int, int], float] | None = None
        self._asking, self._hurry = asyncio.Lock(), asyncio.Event()
        # Numbers of questions: the last that began, and the last that ended.
        self._questions, self._answered = 0, 0
        self._logged_reasons: Mapping[DeviceKey, str] = {}
        self.view: PluginView | None = None
        """The kubelet's last answers; None before the first reliable answer."""

        self.is_waiting = True
        """Whether a device waits to be published: the guard asks often then."""

    publishes = True

    def withheld(self, tree: DeviceTree) -> Mapping[DeviceKey, str] | None:
        """Return the devices that the kubelet's device plugins have."""
        if self.view is None:
            return None
        keys = ((kind, name) for kind in tree for name in tree.devices(kind))
        reasons = {key: why for key in keys if (why := self.reason(key))}
        self.wait_for(reasons)
        return reasons

    def wait_for(self, reasons: Mapping[DeviceKey, str]) -> None:
        """Ask often while devices are withheld for `reasons`; log devices that are new or gone."""
        for kind, name in reasons.keys() - self._logged_reasons.keys():
            _log.info("%s: device %s is withheld: %s", kind, name, reasons[kind, name])
        for kind, name in self._logged_reasons.keys() - reasons.keys():
            _log.info("%s: device %s is no longer withheld", kind, name)
        self._logged_reasons = reasons
        if reasons and not self.is_waiting:
            self._hurry.set()
        self.is_waiting = bool(reasons)

    def reason(self, key: DeviceKey) -> str:
        """Return why a device is withheld; empty if it is not."""
        if self.view is None:
            return "the kubelet has not yet answered which pods hold devices"
        return self.view.reason(key)

    async def refusal(self, keys: Collection[DeviceKey]) -> str:
        """Ask the kubelet again: new pods may hold devices since its last answer."""
        await self.ask()
        for key in keys:
            if why := self.reason(key):
                return f"device {key[1]} cannot be used: {why}"
        return ""

    async def claims_of_pods(self) -> Collection[tuple[str, str]] | None:
        """Ask the kubelet again: an older answer does not count."""
        began = asyncio.get_running_loop().time()
        await self.ask()
        return self.view.claims if self.view is not None and self.view.at >= began else None

    async def run(self, changed: Callable[[], None]) -> NoReturn:
        """Ask the kubelet at intervals."""
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
            pause = asyncio.sleep(self._timing.pending) if self.is_waiting else self._hurry.wait()
            await deadlines.within(self._timing.idle, pause)

    async def ask(self) -> None:
        """Update `view`. An error is logged, the same error again is not.

        Calls that wait for a running question share the next question: an answer counts only if the
        question began after the call.
        """
        wanted = self._questions + 1
        async with self._asking:
            if self._answered >= wanted:
                return
            self._questions += 1
            await self._ask()
            self._answered = self._questions

    async def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        # The time before the questions: changes after this time may be missing in the answers.
        asked_at, timeout = loop.time(), self._timing.answer
        try:
            is_young = self._is_young(loop.time())
            async with await GrpcChannel.dial(self._socket, timeout=timeout) as channel:
                client = PodResourcesClient(channel)
                # This order matters. A device that is missing in the first answer can no longer
                # be allocated before the second answer. In the other order, a device that is
                # allocated and withdrawn in between would be in neither answer.
                allocatable = await client.get_allocatable(timeout=timeout)
                pods = await client.list_pods(timeout=timeout)
        except (OSError, WireError) as error:
            self._log_error(error)
            return
        self._problem = ""
        view = _view_of(self._domain, asked_at, allocatable, pods)
        if not is_young:
            self.view = view
        elif self.view is not None:
            # A kubelet that has just started may not list all its pods yet. So pods from its
            # answers before the restart still count.
            self.view = view.with_pods_of(self.view)
        elif not self._has_logged_youth:
            self._has_logged_youth = True
            _log.info(
                "the kubelet at %s has just started and may not know all pods yet: devices are "
                "published %g s after its start", self._socket, self._timing.young,
            )  # fmt: skip

    def _is_young(self, now: float) -> bool:
        """Whether the kubelet has just started, by the age of its socket.

        The host's clock may be wrong. So a socket also counts as old when the guard has seen it for
        `young` seconds.
        """
        found = os.stat(self._socket)  # noqa: PTH116 - one number of it is enough
        socket = (found.st_dev, found.st_ino, found.st_ctime_ns)
        if self._young_until is None or self._young_until[0] != socket:
            age = max(0.0, time.time() - found.st_ctime)
            self._young_until = socket, now + self._timing.young - age
        return now < self._young_until[1]

    def _log_error(self, error: OSError | WireError) -> None:
        number = error.errno if isinstance(error, OSError) else None
        if number == errno.ENOENT and not self._socket.parent.is_dir():
            self.view = PluginView(asyncio.get_running_loop().time())
            problem = (
                f"{self._socket.parent} does not exist: devices that pods hold through the device "
                "plugin API are not withheld (in a container, mount the directory from the host)"
            )
        else:
            reason = error.strerror if isinstance(error, OSError) else error
            problem = f"cannot ask the kubelet at {self._socket} which pods hold devices: {reason}"
        if problem != self._problem:
            _log.warning("%s", problem)
        self._problem = problem


def _view_of(
    domain: str, at: float, allocatable: Iterable[DeviceEntry], pods: Collection[PodEntry]
) -> PluginView:
    """Return the devices of the resources `domain/…` in two answers of a kubelet."""
    held = {
        key: f"{pod.namespace}/{pod.name}"
        for pod in pods
        for container in pod.containers
        for key in _keys(domain, container.devices)
    }
    claims = {
        (claim.namespace, claim.name)
        for pod in pods
        for container in pod.containers
        for claim in container.claims
    }
    return PluginView(at, held, frozenset(_keys(domain, allocatable)), frozenset(claims))


def _keys(domain: str, entries: Iterable[DeviceEntry]) -> Iterable[DeviceKey]:
    for entry in entries:
        its_domain, _, device_type = entry.resource.partition("/")
        if its_domain == domain:
            for device_id in entry.device_ids:
                yield device_type, device_id
