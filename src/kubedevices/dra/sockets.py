"""The two sockets of a driver, and other instances of the driver on this node. asyncio.

During an update of a driver two instances run. Each has its own two sockets, whose names show which
instance started later (`plugin.other_instances`). The newer instance publishes slices and
registers. When the kubelet has registered the newer instance, the older removes its registration
socket and stands by: it still answers calls, and registers again if the newer instance ends. No
instance touches the sockets of another running instance.
"""

import asyncio
import contextlib
import logging
import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

from kubedevices.errors import CannotAsk
from kubedevices.host import deadlines
from kubedevices.host.file_watch import FileWatch
from kubedevices.host.listing import names
from kubedevices.host.shared_directory import SharedDirectory
from kubedevices.kubelet_api.services import plugin_registration_methods
from kubedevices.plugin import hook_threads
from kubedevices.plugin.other_instances import OtherInstances
from kubedevices.plugin.served_type import run_together
from kubedevices.plugin.timing import Timing, back_off
from kubedevices.values.allocation import PluginInfo
from kubedevices.values.socket_paths import InstanceSocket
from kubedevices.wire.unix_grpc import GrpcServer, Methods
from kubedevices.wire.unix_socket import unlink_if_dead

_LISTEN_LIMIT = 1.0
"""Seconds after which a socket file without listener belongs to a killed process.

A younger socket may be bound by a process that does not listen yet.
"""

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_REQUEST_LIMIT = 2**18
"""Bytes of a request: a thousand claims."""

_log = logging.getLogger(__name__)


class DriverSockets:
    """Serves `driver` at the socket `service`; a kubelet finds it by the socket `registration`."""

    def __init__(self, driver: str, service: Path, registration: Path, timing: Timing) -> None:
        self._driver, self._timing = driver, timing
        self.service, self.registration = service, registration
        self._servers: dict[Path, GrpcServer] = {}
        # The names that other libraries for drivers choose, some with the UID of the pod.
        self._usual_names = re.compile(rf"{re.escape(driver)}(-{_UUID})?-reg\.sock")
        # A kubelet watches the sockets of all instances, and no file says whose it uses. So nobody
        # doubts a newer instance that says it is registered.
        timing = timing._replace(stand_by_limit=math.inf)
        self._other_instances = OtherInstances(service, driver, timing)
        self._other_instances.on_change, self._other_instances.leave = self._wake, self._leave
        self._is_serving, self._is_known = asyncio.Event(), asyncio.Event()
        # Each waiting task has its own event, which only this task clears.
        self._events = {name: asyncio.Event() for name in ("lead", "relieve", "clear", "register")}
        self.is_registered = False
        """Whether the kubelet's last answer accepted this instance."""

    @property
    def has_started(self) -> bool:
        """Whether both sockets are served, or a newer instance has replaced this instance."""
        return self._owns(self.service) and (
            self._owns(self.registration) or self._other_instances.successor is not None
        )

    def unlink(self) -> None:
        """Remove the socket files of this instance at once: for an exit that cannot wait."""
        for path in (self.registration, self.service):
            if self._owns(path):
                path.unlink(missing_ok=True)

    async def stop(self, grace: float) -> None:
        """Stop serving; running calls have `grace` seconds."""
        # The registration socket first: its end tells the kubelet that the driver leaves, while the
        # service still answers running calls.
        self._other_instances.end_streams()
        for path in (self.registration, self.service):
            if path in self._servers:
                await self._servers[path].stop(grace)
        await self._other_instances.close()

    async def run(self, watch: FileWatch, methods: Methods, info: PluginInfo) -> NoReturn:
        """Serve `methods` at one socket and `info` at the other, until cancelled."""
        methods = {**methods, **self._other_instances.methods}
        await run_together(
            ("service", self._serve_at(watch, self.service, methods)),
            ("registration", self._serve_registration(watch, info)),
            ("older instances", self._relieve()),
            ("dead instances", self._remove_dead_sockets()),
        )
        raise AssertionError("unreachable: all run until cancelled or until one raises")

    async def lead(self) -> None:
        """Wait until no newer instance runs: this instance writes the slices then."""
        await self._is_known.wait()
        await self._until(lambda: not self._other_instances.has_newer)

    async def yield_lead(self) -> None:
        """Wait until a newer instance runs."""
        await self._until(lambda: self._other_instances.has_newer)
        _log.info("%s: a newer instance writes the slices from now on", self._driver)

    def set_registered(self, *, is_registered: bool) -> None:
        """Record whether the kubelet has registered this instance, and tell other instances."""
        self.is_registered = is_registered
        self._other_instances.report_state(registered=is_registered)
        self._wake()

    def _owns(self, path: Path) -> bool:
        return path in self._servers and self._servers[path].owns_socket()

    # ------------------------------------------------------------ other instances

    def _wake(self) -> None:
        for event in self._events.values():
            event.set()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._wait("lead", None)

    async def _wait(self, name: str, until: float | None) -> None:
        """Wait for a change of instances, or until the loop's time `until`."""
        await deadlines.until(until, self._events[name].wait())
        self._events[name].clear()

    async def _leave(self) -> bool:
        """Record that the kubelet has registered a newer instance.

        Then `_serve_registration` removes the registration socket.
        """
        self.set_registered(is_registered=False)
        return False  # a DRA registration has no device list, so no devices were missing meanwhile

    async def _relieve(self) -> NoReturn:
        """Ask older instances to leave after the kubelet has registered this instance."""
        while True:
            if self.is_registered and self._other_instances.has_older_to_ask:
                await self._other_instances.ask_older_to_leave()
            await self._wait("relieve", None)

    async def _remove_dead_sockets(self) -> NoReturn:
        """Remove the sockets of killed instances: the kubelet would dial them."""
        await self._is_known.wait()
        await hook_threads.call(self._remove_dead_predecessors)
        rounds = 0
        while True:
            if await hook_threads.call(self._remove_dead):
                # Slightly longer than the limit, so that a young socket is old in the next round.
                pause = back_off(1.2 * _LISTEN_LIMIT, self._timing.instance_ping, rounds)
                await self._wait("clear", asyncio.get_running_loop().time() + pause)
                rounds += 1
            else:
                await self._wait("clear", None)
                rounds = 0

    def _remove_dead_predecessors(self) -> None:
        """Remove registration sockets with usual names for this driver that nobody listens on.

        A killed process of another program left them, such as the driver that this one replaces.
        """
        for path in self._registry(self._usual_names.fullmatch):
            if unlink_if_dead(path, min_age=_LISTEN_LIMIT):
                _log.info("%s: removed %s, whose driver was killed", self._driver, path)

    def _remove_dead(self) -> bool:
        """Return whether sockets of other instances are left: live, or too young to be judged."""
        mine, are_left = InstanceSocket.parse(self.registration.name), False
        own = InstanceSocket.parse(self.service.name)
        assert mine is not None
        assert own is not None
        mark = f".{mine.mark}."
        for path in self._registry(lambda name: mark in name):
            name = InstanceSocket.parse(path.name)
            if name is None or name.instance == mine.instance or not path.is_socket():
                continue
            service = self.service.with_name(str(own._replace(instance=name.instance)))
            unlink_if_dead(service, min_age=_LISTEN_LIMIT)
            if unlink_if_dead(path, min_age=_LISTEN_LIMIT):
                _log.info("%s: removed %s, whose driver was killed", self._driver, path)
            else:
                are_left = True
        return are_left

    def _registry(self, matches: Callable[[str], object]) -> list[Path]:
        """Return the files of the plugin registry; none while there is no such directory."""
        directory = self.registration.parent
        with contextlib.suppress(FileNotFoundError):
            return [directory / name for name in names(directory, matches)]
        return []

    # ------------------------------------------------------------ sockets

    async def _serve_registration(self, watch: FileWatch, info: PluginInfo) -> NoReturn:
        methods = plugin_registration_methods(_RegistrationService(self, info))
        others = self._other_instances
        # The kubelet calls the service as soon as it finds the registration socket.
        await self._is_serving.wait()
        await others.contact_older()
        self._is_known.set()
        while True:
            # This looks for newer instances before a task that waits for `_is_known` goes on.
            await others.wait_for_newer(lambda: True, partial(self._wait, "register"), lambda: 0)
            await self._serve_at(
                watch,
                self.registration,
                methods,
                lambda: others.successor is None,
                self._events["register"],
            )

    async def _serve_at(
        self,
        watch: FileWatch,
        path: Path,
        methods: Methods,
        goes_on: Callable[[], bool] = lambda: True,
        event: asyncio.Event | None = None,
    ) -> None:
        """Serve `methods` at `path` while `goes_on`; serve again each time the file is removed."""
        failures = 0
        with watch.subscribe(path, event=event) as files:
            while goes_on():
                server = GrpcServer(
                    methods, name=f"{self._driver} {path.name}", max_receive=_REQUEST_LIMIT
                )
                try:
                    _create(path.parent)
                    await server.start(path)
                except (CannotAsk, FileNotFoundError) as error:
                    if not isinstance(error.__cause__ or error, FileNotFoundError):
                        raise
                    failures += 1  # somebody removed the directory after mkdir
                    await asyncio.sleep(back_off(0.01, 1.0, failures))
                    continue
                failures = 0
                self._servers[path] = server
                self._is_serving.set()
                _log.info("%s: serving at %s", self._driver, path)
                files.look()
                while server.owns_socket() and goes_on():
                    await files.changed()
                await server.stop()
                if goes_on():
                    _log.warning("%s: %s was removed: serving there again", self._driver, path)


def _create(directory: Path) -> None:
    """Create the directory of a socket; raises `CannotAsk`, also if it is a link."""
    try:
        SharedDirectory.at(directory).create()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CannotAsk(f"cannot use {directory}: {error.strerror}") from error


class _RegistrationService:
    """Answers the kubelet that found the registration socket."""

    def __init__(self, sockets: DriverSockets, info: PluginInfo) -> None:
        self._sockets, self._info = sockets, info

    async def get_info(self) -> PluginInfo:
        """Return the name of the driver, its socket and its services."""
        return self._info

    async def notify_registration_status(self, registered: bool, error: str) -> None:
        """Record whether the kubelet accepted the driver. If not, the kubelet tries again."""
        self._sockets.set_registered(is_registered=registered)
        if registered:
            _log.info("%s: registered by the kubelet that found it", self._info.name)
        else:
            _log.error("%s: the kubelet refused the driver: %s", self._info.name, error)
