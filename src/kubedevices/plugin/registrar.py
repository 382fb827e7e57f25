"""Owns the socket of one plugin server: binds it, serves at it, and binds it again after a loss.

A kubelet forgets its plugins when it restarts: it empties the plugin directory, or only replaces
kubelet.sock, or only ends our stream. The plugin learns of each case from file events and from the
state of the streams. If our socket is gone, this module binds a new socket. In the other cases
`registration_loop` calls Register again while the service goes on. If the kubelet finds plugins by
itself (`watched_plugin`), no Register call is made, and a new socket file is the only repair.

`server` has the answers of the service. `served_type` says what happens after an error.
"""

import asyncio
import contextlib
import logging
import stat
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import NoReturn

from kubedevices.errors import CannotAsk
from kubedevices.host.file_watch import FileWatch, Subscription
from kubedevices.kubelet_api.cordon import Follower, cordon_methods
from kubedevices.kubelet_api.services import device_plugin_methods, plugin_registration_methods
from kubedevices.plugin.other_instances import OtherInstances
from kubedevices.plugin.register_call import RegisterCall
from kubedevices.plugin.registration_loop import RegistrationLoop, log_no_stream, wait_for
from kubedevices.plugin.registration_state import RegistrationState
from kubedevices.plugin.server import PluginServer
from kubedevices.plugin.timing import Timing, back_off
from kubedevices.plugin.watched_plugin import WatchedPlugin
from kubedevices.wire.unix_grpc import FileIdentity, GrpcServer

# Seconds in which ended streams close. Running calls have longer: `Timing.call_grace`.
_STREAMS_END = 0.02

_log = logging.getLogger(__name__)


class Registrar:
    """Serves `server` at `socket` and registers it at `kubelet_socket` (None: only serves).

    `watched` is served at the same socket, for a kubelet that finds the socket by itself.
    `watch` is started already; all registrars of the process share it. The registrar counts
    `registrations` and `failed_registrations` in `counts` of the server.
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
        # Stops of servers that gave up their socket and still finish Allocate calls. `run` waits
        # for these tasks.
        self._retiring: set[asyncio.Task[None]] = set()
        # Only with `watched`: whether a kubelet found the socket, and how many of its streams in a
        # row were short.
        self._is_found = False
        self._losses = 0
        self.other_instances = OtherInstances(socket, server.resource, self._timing)
        self._registration: RegistrationLoop | None = None
        if kubelet_socket is not None:
            call = RegisterCall(server, socket, kubelet_socket, self._timing)
            self._registration = RegistrationLoop(
                server, call, self.other_instances, self._wake, self._timing
            )

    def __repr__(self) -> str:
        state = "registered" if self.is_registered else "not registered"
        return f"<Registrar {self._server.resource} at {self._socket}, {state}>"

    @property
    def is_serving(self) -> bool:
        """Whether our socket is bound, and its file is still ours."""
        return self._grpc is not None and self._grpc.owns_socket()

    @property
    def is_registered(self) -> bool:
        """Whether a kubelet accepted the plugin and has not lost the registration since."""
        return self._is_found if self._registration is None else self._registration.is_registered

    def unlink_socket(self) -> None:
        """Remove our socket file if it is still ours; for an exit that cannot wait for `run`."""
        if self._grpc is not None and self._grpc.owns_socket():
            self._socket.unlink(missing_ok=True)

    async def run(self) -> NoReturn:
        """Serve and stay registered until cancelled.

        Raises `RegistrationRefused`, `SocketInUse` and other lasting errors.
        """
        paths = [] if self._kubelet_socket is None else [self._kubelet_socket]
        self._server.streams.on_change = self.other_instances.on_change = self._wake.set
        self.other_instances.leave = self._leave
        if self._watched is not None:
            self._watched.on_change = self._wake.set
        try:
            # The watch begins before Register: otherwise we could miss a kubelet that restarts in
            # between.
            with self._watch.subscribe(self._socket, *paths, event=self._wake) as files:
                losses = 0
                while True:
                    await self._wait_for_directory()
                    # Looked up before the bind: a kubelet that empties the directory right
                    # afterwards has another kubelet.sock. So the loss counts as the start of a
                    # kubelet and needs no pause.
                    bound_at, kubelet = self._now(), self._kubelet()
                    try:
                        async with self._serving(files) as grpc:
                            if self._registration is not None:
                                await self._registration.run(grpc)
                            else:
                                await self._stay_found(grpc)
                    except CannotAsk as error:
                        if not isinstance(error.__cause__, FileNotFoundError):
                            raise  # else somebody removed the directory before the bind
                    lasted = self._now() - bound_at >= self._timing.socket_lasted
                    losses = 0 if lasted else losses + 1
                    level = logging.WARNING if losses > 1 else logging.INFO
                    _log.log(level, "%s: %s is gone", self._server.resource, self._socket)
                    if await self._pause_after_loss(losses, kubelet):
                        losses = 0
        finally:
            self._server.streams.on_change = self.other_instances.on_change = None
            self.other_instances.leave = None
            await self.other_instances.close()
            if self._retiring:
                await asyncio.wait(self._retiring)

    # ------------------------------------------------------------ our own socket

    async def _wait_for_directory(self) -> None:
        """Wait until the first kubelet of this host has created the directory of our socket."""
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
        if found.st_nlink == 0:  # a container keeps the deleted directory, even if a new one exists
            raise CannotAsk(f"{directory} was deleted while it was mounted here: start again")
        return True

    @contextlib.asynccontextmanager
    async def _serving(self, files: Subscription) -> AsyncIterator[GrpcServer]:
        methods = dict(device_plugin_methods(self._server, self._server.allocate_at_once))
        methods |= self.other_instances.methods
        methods |= cordon_methods(partial(_describe, self._server))
        if self._watched is not None:
            methods |= plugin_registration_methods(self._watched)
        limit = self._server.request_limit
        grpc = GrpcServer(methods, name=self._server.resource, max_receive=limit)
        self._grpc = grpc
        try:
            await grpc.start(self._socket)
            # The last look was before the bind: without this look, a socket that is removed at once
            # would look unchanged.
            files.look()
            _log.info("%s: serving at %s", self._server.resource, self._socket)
            # After the bind: an older instance that gets our Greet call connects to this socket at
            # once.
            await self.other_instances.contact_older()
            yield grpc
        finally:
            self._is_found = False
            if self._registration is not None:
                self._registration.is_registered = False
            if self._watched is not None:
                self._watched.is_registered = False
            self._server.end_streams()
            self.other_instances.end_streams()
            # `run` waits for running calls at its end. Here we wait shortly for the streams: the
            # kubelet must see the end of the old streams before it sees the new socket.
            retire = asyncio.create_task(
                grpc.stop(grace=self._timing.call_grace), name=f"stop {self._socket.name}"
            )
            self._retiring.add(retire)
            retire.add_done_callback(self._retiring.discard)
            await asyncio.wait({retire}, timeout=_STREAMS_END)

    async def _pause_after_loss(self, losses: int, kubelet: FileIdentity | None) -> bool:
        """Pause before the next bind; return whether a kubelet started.

        The pause is for a program that deletes our socket again and again. After the start of a
        kubelet no pause is needed: then kubelet.sock is another file than `kubelet`, its identity
        at the last bind.
        """
        timing = self._timing
        pause = back_off(timing.rebind_first, timing.rebind_last, losses - 2) if losses > 1 else 0
        # The first loss needs no pause, so the second loss is failure 0 of the back-off.
        until = self._now() + pause
        while self._now() < until and self._kubelet() == kubelet:
            await self._wait(until)
        return self._kubelet() != kubelet

    def _kubelet(self) -> FileIdentity | None:
        return None if self._kubelet_socket is None else FileIdentity.of(self._kubelet_socket)

    # ------------------------------------------------------------ the kubelet finds the socket

    async def _stay_found(self, grpc: GrpcServer) -> None:
        """Serve until our socket is lost, or until we remove it.

        A kubelet looks at each socket file once. If a stream ended or never began, and the kubelet
        does not open a stream again, we replace the socket. Without a kubelet nothing happens.
        """
        streams, watched = self._server.streams, self._watched
        # Streams up to this number belong to an earlier socket and say nothing about this one.
        before = streams.opened
        state: RegistrationState | None = None
        while grpc.owns_socket():
            if self.other_instances.successor is not None:
                await self.other_instances.wait_for_newer(
                    grpc.owns_socket, self._wait, lambda: len(streams)
                )
                self.unlink_socket()
                return
            has_news = state is not None or streams.opened > before
            if watched is not None and (has_news or watched.is_registered):
                state = state or RegistrationState(self._timing, self._now(), self._losses)
                state.observe(streams.opened - before, streams.count_after(before), self._now())
                self._is_found = watched.is_registered and not state.is_lost
                self.other_instances.report_state(registered=self._is_found)
                if self._is_found and state.has_stream:
                    # Only now: until a kubelet reads our list, the devices come from the older
                    # instance.
                    await self.other_instances.ask_older_to_leave()
                if state.again_at is not None and self._now() >= state.again_at:
                    if not state.had_stream:
                        log_no_stream(self._server.resource)
                    # A kubelet before 1.36 registers each socket file only once, so it needs a new
                    # file: `run` binds the socket again when this file is gone.
                    self._losses = state.losses
                    self.unlink_socket()
                    return
            await self._wait(state.again_at if state else None)

    async def _leave(self) -> bool:
        """Leave the resource to a newer instance; return whether a kubelet had devices from us."""
        if self._registration is not None:
            return await self._registration.leave()
        had_streams = len(self._server.streams) > 0
        self._server.end_streams()
        return had_streams

    # ------------------------------------------------------------ waiting

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _wait(self, until: float | None) -> None:
        """Wait until the time `until`, or until a file or a stream changed."""
        await wait_for(self._wake, until)


def _describe(server: PluginServer) -> Follower:
    """Return what `cordon` asks. Not a method: the methods of a server must not hold its owner."""
    return Follower(server.resource, str(server.cordon_file or ""), frozenset(server.devices))
