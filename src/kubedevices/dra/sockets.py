"""The two sockets of a driver, and other instances of it on this node. asyncio.

While a driver is updated two instances run. Each has sockets of its own, whose names tell which was
started later (`plugin.siblings`). The newer publishes and registers; when a kubelet has it, the
older takes its registration away and stands by. It still answers calls, and comes back when the
newer is gone. An instance touches no socket of another that lives.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

from kubedevices.allocation import PluginInfo
from kubedevices.errors import CannotAsk
from kubedevices.host.file_watch import FileWatch
from kubedevices.kubelet_api.services import plugin_registration_methods
from kubedevices.plugin import hook_threads
from kubedevices.plugin.served_type import run_together
from kubedevices.plugin.siblings import Siblings
from kubedevices.plugin.timing import Timing, back_off
from kubedevices.socket_paths import InstanceSocket
from kubedevices.wire.unix_grpc import GrpcServer, Methods
from kubedevices.wire.unix_socket import unlink_if_dead

_LISTENS_SOON = 1.0
"""Seconds in which a socket that was bound must listen, or nobody ever will."""

_log = logging.getLogger(__name__)


class DriverSockets:
    """Serves `driver` at the socket `service`, and lets a kubelet find it by `registration`.

    `changed` is called when this instance may have to begin or to end something.
    """

    def __init__(self, driver: str, service: Path, registration: Path, timing: Timing) -> None:
        self._driver, self._timing = driver, timing
        self.service, self.registration = service, registration
        self._servers: dict[Path, GrpcServer] = {}
        self._siblings = Siblings(service, driver, timing)
        self._siblings.on_change, self._siblings.leave = self._wake, self._leave
        self._is_serving, self._is_known = asyncio.Event(), asyncio.Event()
        # One event for each task that waits: each clears its own.
        self._events = {name: asyncio.Event() for name in ("lead", "relieve", "clear", "register")}
        self.is_registered = False
        """Whether a kubelet accepted the driver when it found it last."""

    @property
    def has_started(self) -> bool:
        """Whether both sockets are served, or a newer instance is in our place."""
        return self._owns(self.service) and (
            self._owns(self.registration) or self._siblings.successor is not None
        )

    def unlink(self) -> None:
        """Remove our socket files at once: for an exit that cannot wait."""
        for path in (self.registration, self.service):
            if self._owns(path):
                path.unlink(missing_ok=True)

    async def stop(self, grace: float) -> None:
        """Serve no more; calls under way have `grace` seconds. A kubelet takes leave first."""
        # The registration socket goes first: its end tells a kubelet that the driver leaves, while
        # the service still answers what is under way.
        self._siblings.end_streams()
        for path in (self.registration, self.service):
            if path in self._servers:
                await self._servers[path].stop(grace)
        await self._siblings.close()

    async def run(self, watch: FileWatch, methods: Methods, info: PluginInfo) -> NoReturn:
        """Serve `methods` at one socket and `info` at the other, until cancelled."""
        await run_together(
            ("service", self._keep(watch, self.service, {**methods, **self._siblings.methods})),
            ("registration", self._keep_registered(watch, info)),
            ("older instances", self._relieve()),
            ("dead instances", self._clear_dead()),
        )
        raise AssertionError("unreachable: all run until cancelled or until one raises")

    async def lead(self) -> None:
        """Return when the slices are ours to keep: no newer instance is there."""
        await self._is_known.wait()
        await self._until(lambda: not self._siblings.is_awaited)

    async def yield_lead(self) -> None:
        """Return when a newer instance is there."""
        await self._until(lambda: self._siblings.is_awaited)
        _log.info("%s: a newer instance keeps the slices from now on", self._driver)

    def registered(self, *, value: bool) -> None:
        """Take what a kubelet says of our registration."""
        self.is_registered = value
        self._siblings.say(registered=value)
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
        """Wait for news of instances, or for the time `until` of the loop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._events[name].wait()
        self._events[name].clear()

    async def _leave(self) -> bool:
        """A newer instance is registered: a kubelet need not know us any more."""
        self.registered(value=False)
        if self.registration in self._servers:
            await self._servers[self.registration].stop()
        # A registration of DRA carries no list of devices, so that no devices were away.
        return False

    async def _relieve(self) -> NoReturn:
        """Ask the older instances to leave when a kubelet has registered us."""
        while True:
            if self.is_registered and self._siblings.are_to_leave:
                await self._siblings.relieve()
            await self._wait("relieve", None)

    async def _clear_dead(self) -> NoReturn:
        """Remove the registration sockets of instances that were killed: a kubelet dials them."""
        await self._is_known.wait()
        rounds = 0
        while True:
            if await hook_threads.call(self._clear):
                pause = back_off(1.2 * _LISTENS_SOON, self._timing.sibling_ping, rounds)
                await self._wait("clear", asyncio.get_running_loop().time() + pause)
                rounds += 1
            else:
                await self._wait("clear", None)
                rounds = 0

    def _clear(self) -> bool:
        """Return whether others are left: they may live, or be too young to be known as dead."""
        mine, are_left = InstanceSocket.parse(self.registration.name), False
        own = InstanceSocket.parse(self.service.name)
        assert mine is not None
        assert own is not None
        for path in self.registration.parent.glob(f"*.{mine.mark}.*.sock"):
            name = InstanceSocket.parse(path.name)
            if name is None or name.instance == mine.instance or not path.is_socket():
                continue
            service = self.service.with_name(str(own._replace(instance=name.instance)))
            unlink_if_dead(service, min_age=_LISTENS_SOON)
            if unlink_if_dead(path, min_age=_LISTENS_SOON):
                _log.info("%s: removed %s, whose driver was killed", self._driver, path)
            else:
                are_left = True
        return are_left

    # ------------------------------------------------------------ sockets

    async def _keep_registered(self, watch: FileWatch, info: PluginInfo) -> NoReturn:
        methods = plugin_registration_methods(_Registration(self, info))
        siblings = self._siblings
        await self._is_serving.wait()  # a kubelet calls the service as soon as it finds us
        siblings.look()
        await siblings.contact_older()
        self._is_known.set()
        self._wake()
        while True:
            await siblings.wait_for_newer(lambda: True, partial(self._wait, "register"), lambda: 0)
            await self._keep(
                watch,
                self.registration,
                methods,
                lambda: siblings.successor is None,
                self._events["register"],
            )

    async def _keep(
        self,
        watch: FileWatch,
        path: Path,
        methods: Methods,
        goes_on: Callable[[], bool] = lambda: True,
        event: asyncio.Event | None = None,
    ) -> None:
        """Serve `methods` at `path` while `goes_on`, again whenever the socket's file is gone."""
        failures = 0
        with watch.subscribe(path, event=event) as files:
            while goes_on():
                server = GrpcServer(methods, name=f"{self._driver} {path.name}")
                try:
                    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
                    await server.start(path)
                except (CannotAsk, FileNotFoundError) as error:
                    if not isinstance(error.__cause__ or error, FileNotFoundError):
                        raise
                    failures += 1  # the directory was removed under our hands
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
                    _log.warning("%s: %s is gone: serving there again", self._driver, path)


class _Registration:
    """Answers the kubelet that found the registration socket."""

    def __init__(self, sockets: DriverSockets, info: PluginInfo) -> None:
        self._sockets, self._info = sockets, info

    async def get_info(self) -> PluginInfo:
        """Say what is served and where."""
        return self._info

    async def notify_registration_status(self, registered: bool, error: str) -> None:
        """Learn whether the kubelet accepted the driver; if not, it tries again by itself."""
        self._sockets.registered(value=registered)
        if registered:
            _log.info("%s: registered by the kubelet that found it", self._info.name)
        else:
            _log.error("%s: the kubelet refused the driver: %s", self._info.name, error)
