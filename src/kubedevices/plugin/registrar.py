"""Puts one plugin server on its socket and keeps it registered until cancelled.

A kubelet forgets its plugins when it restarts: it wipes the plugin directory, or only replaces
kubelet.sock, or just ends our stream. Each of these is noticed here, by file events and by the
state of the streams, and answered with the least that mends it: a new socket when ours is gone,
else a new Register call beside the running service. Not for what the service answers (`server`),
nor for what happens when it cannot go on (`served_type`).
"""

import asyncio
import contextlib
import errno
import logging
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from kubedevices.allocation import API_VERSION, RegisterRequest
from kubedevices.errors import (
    CannotAsk,
    DialError,
    RegistrationRefused,
    RpcError,
    StatusCode,
    WireError,
)
from kubedevices.host.file_watch import FileWatch, Subscription
from kubedevices.plugin.reminder import Reminder
from kubedevices.plugin.server import PluginServer
from kubedevices.plugin.tenure import Tenure
from kubedevices.plugin.timing import Timing, back_off
from kubedevices.plugin.watched import WatchedPlugin
from kubedevices.wire.clients import RegistrationClient
from kubedevices.wire.services import device_plugin_methods, plugin_registration_methods
from kubedevices.wire.unix_grpc import FileIdentity, GrpcChannel, GrpcServer
from kubedevices.words import counted

_TRANSIENT = frozenset({StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED})
_NOT_REACHED = ("failed to dial device plugin", "failed to get device plugin options")
"""How a kubelet begins when it could not reach us, which is no refusal: it or we are too busy."""

_NO_PERMISSION = frozenset({errno.EACCES, errno.EPERM})
_STREAMS_END = 0.02

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Registration:
    """What was true when the kubelet accepted us."""

    kubelet: FileIdentity
    streams_before: int


class Registrar:
    """Serves `server` at `socket` and registers it at `kubelet_socket` (None: only serves).

    `watched` is served beside it, for a kubelet that finds the socket by itself.
    `watch` is started and shared by all registrars of the process. `counts` of the server gets
    `registrations` and `failed_registrations`.
    """

    def __init__(
        self,
        server: PluginServer,
        socket: Path,
        kubelet_socket: Path | None,
        watch: FileWatch,
        timing: Timing | None = None,
        *,
        watched: WatchedPlugin | None = None,
    ) -> None:
        self._watched = watched
        self._server, self._socket, self._kubelet_socket = server, socket, kubelet_socket
        self._watch, self._timing = watch, timing or Timing()
        self._wake = asyncio.Event()
        self._grpc: GrpcServer | None = None
        self._retiring: set[asyncio.Task[None]] = set()
        self._is_registered = False
        self._losses = 0
        self._last_kubelet: FileIdentity | None = None
        self._reminder = Reminder(self._timing)

    def __repr__(self) -> str:
        state = "registered" if self._is_registered else "not registered"
        return f"<Registrar {self._server.resource} at {self._socket}, {state}>"

    @property
    def is_serving(self) -> bool:
        """Whether our socket is bound and is still ours."""
        return self._grpc is not None and self._grpc.owns_socket()

    @property
    def is_registered(self) -> bool:
        """Whether a kubelet accepted us and nothing has ended that since."""
        return self._is_registered

    def unlink_socket(self) -> None:
        """Remove our socket file, if it is ours: for an exit that cannot wait for `run`."""
        if self._grpc is not None and self._grpc.owns_socket():
            self._socket.unlink(missing_ok=True)

    async def run(self) -> NoReturn:
        """Serve and stay registered until cancelled.

        Raises `RegistrationRefused`, `SocketInUse` and their like: what waiting cannot mend.
        """
        paths = [] if self._kubelet_socket is None else [self._kubelet_socket]
        self._server.streams.on_change = self._wake.set
        if self._watched is not None:
            self._watched.on_change = self._wake.set
        try:
            with self._watch.subscribe(self._socket, *paths, event=self._wake) as files:
                losses = 0
                while True:
                    await self._wait_for_directory()
                    bound_at, kubelet = self._now(), self._kubelet()
                    try:
                        async with self._serving(files) as grpc:
                            await self._stay_registered(grpc)
                    except CannotAsk as error:
                        if not isinstance(error.__cause__, FileNotFoundError):
                            raise  # else the directory was removed under our hands
                    lasted = self._now() - bound_at >= self._timing.socket_lasted
                    losses = 0 if lasted else losses + 1
                    level = logging.WARNING if losses > 1 else logging.INFO
                    _log.log(level, "%s: %s is gone", self._server.resource, self._socket)
                    if await self._pause_after_loss(losses, kubelet):
                        losses = 0
        finally:
            self._server.streams.on_change = None
            if self._retiring:
                await asyncio.wait(self._retiring)

    # ------------------------------------------------------------ our own socket

    async def _wait_for_directory(self) -> None:
        """The first kubelet of a host makes the directory; until then there is nothing to do."""
        directory = self._socket.parent
        if self._is_there(directory):
            return
        if self._kubelet_socket is None and self._watched is None:
            raise CannotAsk(f"cannot serve in {directory}: it does not exist")
        _log.warning(
            "%s: waiting for %s, which does not exist: is a kubelet installed here?",
            self._server.resource, directory,
        )  # fmt: skip
        with self._watch.subscribe(directory, event=self._wake):
            while not self._is_there(directory):
                await self._wait(None)

    def _is_there(self, directory: Path) -> bool:
        try:
            found = directory.stat()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise CannotAsk(f"cannot look at {directory}: {error.strerror}") from error
        if not stat.S_ISDIR(found.st_mode):
            raise CannotAsk(f"{directory} is not a directory")
        if found.st_nlink == 0:  # it stays so in a container, whatever is made in its place
            raise CannotAsk(f"{directory} was deleted while it was mounted here: start again")
        return True

    @contextlib.asynccontextmanager
    async def _serving(self, files: Subscription) -> AsyncIterator[GrpcServer]:
        methods = {**device_plugin_methods(self._server)}
        if self._watched is not None:
            methods |= plugin_registration_methods(self._watched)
        grpc = GrpcServer(methods, name=self._server.resource)
        self._grpc = grpc
        try:
            await grpc.start(self._socket)
            files.look()  # or the next look might see no socket, as the last one before the bind
            _log.info("%s: serving at %s", self._server.resource, self._socket)
            yield grpc
        finally:
            self._is_registered = False
            if self._watched is not None:
                self._watched.is_registered = False
            self._server.end_streams()
            # Calls under way are waited for in the end; the streams now, which takes a moment: a
            # kubelet shall see the end of the old ones before the new one.
            retire = asyncio.create_task(
                grpc.stop(grace=self._timing.call_grace), name=f"stop {self._socket.name}"
            )
            self._retiring.add(retire)
            retire.add_done_callback(self._retiring.discard)
            await asyncio.wait({retire}, timeout=_STREAMS_END)

    async def _pause_after_loss(self, losses: int, kubelet: FileIdentity | None) -> bool:
        """Pause before we bind again, so that nobody who deletes our socket keeps us busy.

        Not at all when it was a kubelet's start, which is no matter how often it happens: then
        kubelet.sock is not the `kubelet` that was there when we bound. Says whether it was.
        """
        timing = self._timing
        pause = back_off(timing.rebind_first, timing.rebind_last, losses - 2) if losses > 1 else 0
        until = self._now() + pause
        while self._now() < until and self._kubelet() == kubelet:
            await self._wait(until)
        return self._kubelet() != kubelet

    def _kubelet(self) -> FileIdentity | None:
        return None if self._kubelet_socket is None else FileIdentity.of(self._kubelet_socket)

    # ------------------------------------------------------------ registration

    async def _stay_registered(self, grpc: GrpcServer) -> None:
        """Return when our socket file is no longer ours."""
        if self._kubelet_socket is None:
            await self._stay_found(grpc)
            return
        while registration := await self._register(grpc, self._kubelet_socket):
            self._is_registered = True
            self._server.counts["registrations"] += 1
            _log.info(
                "%s: registered at %s with %s", self._server.resource, self._kubelet_socket,
                counted(len(self._server.devices), "device"),
            )  # fmt: skip
            await self._until_over(grpc, self._kubelet_socket, registration)
            self._is_registered = False

    async def _stay_found(self, grpc: GrpcServer) -> None:
        """Serve until our socket is lost. A kubelet that found it looks again at a new one only.

        So a stream that ended, or never began, and is not opened again takes a new socket; without
        a kubelet there is no stream, and nothing happens.
        """
        streams, watched = self._server.streams, self._watched
        before = streams.opened
        tenure: Tenure | None = None
        while grpc.owns_socket():
            has_news = tenure is not None or streams.opened > before
            if watched is not None and (has_news or watched.is_registered):
                tenure = tenure or Tenure(self._timing, self._now(), self._losses)
                tenure.observe(streams.opened - before, streams.count_after(before), self._now())
                self._is_registered = watched.is_registered and not tenure.is_lost
                if tenure.again_at is not None and self._now() >= tenure.again_at:
                    if not tenure.had_stream:
                        self._log_no_stream()
                    self._losses = tenure.losses
                    self.unlink_socket()
                    return
            await self._wait(tenure.again_at if tenure else None)

    async def _register(self, grpc: GrpcServer, kubelet_socket: Path) -> _Registration | None:
        """Try until a kubelet accepts us; None when our socket was lost meanwhile."""
        failures, failing_since = 0, self._now()
        while grpc.owns_socket():
            kubelet = FileIdentity.of(kubelet_socket)
            if kubelet is None:
                self._remind(f"{kubelet_socket} does not exist")
                await self._wait(self._reminder.due)
                continue
            if kubelet != self._last_kubelet:  # a new one: what the last one did does not count
                self._server.counts["kubelet_restarts"] += self._last_kubelet is not None
                self._last_kubelet = kubelet
                failures = self._losses = 0
            registration = _Registration(kubelet, self._server.streams.opened)
            problem = await self._attempt(grpc, kubelet_socket, kubelet)
            if problem is None and not grpc.owns_socket():
                return None  # it was wiped under us: the kubelet cannot reach us, whatever it said
            if problem is not None:
                failures += 1
                self._server.counts["failed_registrations"] += 1
                if self._now() - failing_since > self._timing.first_retry:
                    self._remind(str(problem))
                until = self._now() + self._retry_pause(problem, failures)
                if not await self._wait_for_chance(grpc, kubelet_socket, registration, until):
                    continue
            self._reminder.reset()
            return registration
        return None

    def _retry_pause(self, problem: WireError, failures: int) -> float:
        timing = self._timing
        if isinstance(problem, DialError):
            return back_off(timing.quick_retry, timing.last_retry, failures - 1)
        return back_off(timing.first_retry, timing.last_retry, failures - 1)

    def _remind(self, problem: str) -> None:
        if self._reminder.is_due(self._now()):
            _log.warning("%s: waiting for the kubelet: %s", self._server.resource, problem)

    async def _wait_for_chance(
        self, grpc: GrpcServer, kubelet_socket: Path, attempt: _Registration, until: float
    ) -> bool:
        """Wait for a reason to try again; True if none is needed any more.

        A kubelet goes on with a Register call that we gave up: then a stream opens after all.
        """
        while self._now() < until:
            if not grpc.owns_socket() or FileIdentity.of(kubelet_socket) != attempt.kubelet:
                return False
            if self._server.streams.count_after(attempt.streams_before):
                return True
            await self._wait(until)
        return False

    async def _attempt(
        self, grpc: GrpcServer, kubelet_socket: Path, kubelet: FileIdentity
    ) -> WireError | None:
        """Call Register once; None on success, or what may be over soon. Raises what is not.

        The call ends early when one of the two sockets changes: its answer means nothing then.
        """
        call = asyncio.create_task(
            self._call_register(kubelet_socket), name=f"register {self._server.resource}"
        )
        call.add_done_callback(lambda _: self._wake.set())
        try:
            while not call.done():
                if not grpc.owns_socket() or FileIdentity.of(kubelet_socket) != kubelet:
                    return DialError(str(kubelet_socket), "a socket changed during Register")
                await self._wait(None)
            call.result()
        except RpcError as error:
            is_stale = not grpc.owns_socket() or FileIdentity.of(kubelet_socket) != kubelet
            if error.code in _TRANSIENT or is_stale or error.message.startswith(_NOT_REACHED):
                return error
            raise RegistrationRefused(self._server.resource, error) from error
        except WireError as error:
            if isinstance(error, DialError) and error.errno in _NO_PERMISSION:
                raise
            return error
        except OSError as error:  # out of file descriptors, for example
            return DialError(str(kubelet_socket), error.strerror or str(error))
        finally:
            call.cancel()
            await asyncio.wait({call})
        return None

    async def _call_register(self, kubelet_socket: Path) -> None:
        request = RegisterRequest(
            version=API_VERSION,
            endpoint=self._socket.name,
            resource_name=self._server.resource,
            options=self._server.options,
        )
        channel = await GrpcChannel.dial(kubelet_socket, timeout=self._timing.dial_deadline)
        async with channel:
            await RegistrationClient(channel).register(
                request, timeout=self._timing.register_deadline
            )

    async def _until_over(
        self, grpc: GrpcServer, kubelet_socket: Path, registration: _Registration
    ) -> None:
        """Return when it takes a new registration, or a new socket, to be known to a kubelet."""
        tenure = Tenure(self._timing, self._now(), self._losses)
        while grpc.owns_socket():
            kubelet = FileIdentity.of(kubelet_socket)
            if kubelet not in {None, registration.kubelet}:
                _log.info("%s: there is a new %s", self._server.resource, kubelet_socket)
                return
            streams, before = self._server.streams, registration.streams_before
            was_lost = tenure.is_lost
            tenure.observe(streams.opened - before, streams.count_after(before), self._now())
            self._is_registered = not tenure.is_lost
            if tenure.is_lost and not was_lost:
                self._log_lost_stream(tenure)
            if tenure.again_at is not None and self._now() >= tenure.again_at:
                if not tenure.had_stream:
                    self._log_no_stream()
                self._losses = tenure.losses
                return
            await self._wait(tenure.again_at)

    def _log_lost_stream(self, tenure: Tenure) -> None:
        _log.log(
            logging.WARNING if self._losses else logging.INFO,
            "%s: the kubelet ended the device list, registering again in %.1f s%s",
            self._server.resource, (tenure.again_at or 0) - self._now(),
            "; another plugin may own the resource name" if self._losses else "",
        )  # fmt: skip

    def _log_no_stream(self) -> None:
        _log.warning(
            "%s: the kubelet accepted the registration but does not ask for the devices, "
            "registering again; another plugin may own the resource name",
            self._server.resource,
        )

    # ------------------------------------------------------------ waiting

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _wait(self, until: float | None) -> None:
        """Wait until `until`, or until a file or a stream changed; the caller looks which."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._wake.wait()
        self._wake.clear()
