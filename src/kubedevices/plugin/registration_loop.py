"""Registers a plugin server at kubelet.sock, and registers again after each loss.

It waits for a kubelet, registers (`register_call`), watches the stream that the kubelet opens, and
registers again when the stream ends (`registration_state`) or kubelet.sock is replaced. It leaves
the resource to the newest instance of the plugin (`other_instances`). The registrar owns the
socket, and runs this loop as long as the socket exists.
"""

import asyncio
import contextlib
import logging
from typing import NamedTuple

from kubedevices.errors import DialError, WireError
from kubedevices.errors.words import counted
from kubedevices.host import deadlines
from kubedevices.plugin.other_instances import OtherInstances
from kubedevices.plugin.register_call import (
    KubeletAway,
    RegisterCall,
    ignore_peer,
    is_known_already,
)
from kubedevices.plugin.registration_state import RegistrationState
from kubedevices.plugin.server import PluginServer
from kubedevices.plugin.timing import Reminder, Timing, back_off
from kubedevices.wire.unix_grpc import FileIdentity, GrpcServer

# Seconds for the Register call in `leave`. The kubelet dials back and asks for the options before
# it answers; on one machine this takes much less time.
_LEAVE_TIME = 1.0
_QUICK_LOSSES = 2
"""Streams in a row that a kubelet may end when it cleans up after another instance."""

_log = logging.getLogger(__name__)


class _Registration(NamedTuple):
    """The kubelet that accepted the plugin, and how many streams were opened before."""

    kubelet: FileIdentity
    streams_before: int


class RegistrationLoop:
    """Registers `server` with `call`.

    The registrar, the server and the other instances set `wake` after a change of a file or stream.
    """

    def __init__(
        self,
        server: PluginServer,
        call: RegisterCall,
        other_instances: OtherInstances,
        wake: asyncio.Event,
        timing: Timing,
    ) -> None:
        self._server, self._call = server, call
        self._kubelet_socket = call.kubelet_socket
        self._other_instances, self._wake, self._timing = other_instances, wake, timing
        # Registrations in a row without a lasting stream. If the plugin binds its socket again, the
        # count stays; a new kubelet resets the count.
        self._losses = 0
        self._last_kubelet: FileIdentity | None = None
        # When an older instance has left, we register a second time. The first registration still
        # works meanwhile, and is stored here. The kubelet may refuse the second registration
        # ("already connected"), or accept it and keep the first stream.
        self._repeated: _Registration | None = None
        self._reminder = Reminder(timing)
        self._is_registered = False

    @property
    def is_registered(self) -> bool:
        """Whether a kubelet accepted the plugin and has not lost the registration since."""
        return self._is_registered

    @is_registered.setter
    def is_registered(self, value: bool) -> None:
        self._is_registered = value
        self._other_instances.report_state(registered=value)

    async def run(self, grpc: GrpcServer) -> None:
        """Register until the socket file is no longer ours; then return."""
        self._repeated = None
        self._call.dialled = grpc.favour
        try:
            await self._run(grpc)
        finally:
            # Server and call must not hold each other, and with them the file of the kubelet.
            self._call.dialled = ignore_peer

    async def _run(self, grpc: GrpcServer) -> None:
        while registration := await self._register(grpc):
            self.is_registered = not self._other_instances.has_older_to_ask
            self._server.counts["registrations"] += 1
            _log.info(
                "%s: registered at %s with %s", self._server.resource, self._kubelet_socket,
                counted(len(self._server.devices), "device"),
            )  # fmt: skip
            self._repeated = await self._until_over(grpc, registration)
            self.is_registered = False

    async def leave(self) -> bool:
        """Leave the resource to a newer instance; return whether a stream was open.

        Kubelets up to 1.36 store one client per resource. When the stream of any instance ends,
        they disconnect this client, which is the newest instance. But if a registration fails, they
        forget the client, and then disconnect nothing. So we register once more, make this
        registration fail, and only then end our streams. The newer instance registers again a
        second later. The devices never disappear.
        """
        had_streams = len(self._server.streams) > 0
        if had_streams:
            with self._server.refusing(), contextlib.suppress(WireError, OSError):
                await self._call.register(_LEAVE_TIME)
        self._server.end_streams()
        return had_streams

    # ------------------------------------------------------------ until a kubelet accepts us

    async def _register(self, grpc: GrpcServer) -> _Registration | None:
        """Try until a kubelet accepts the plugin; return None if our socket was lost meanwhile."""
        failures, failing_since = 0, self._now()
        while grpc.owns_socket():
            await self._other_instances.wait_for_newer(
                grpc.owns_socket, self._wait, lambda: len(self._server.streams)
            )
            kubelet = FileIdentity.of(self._kubelet_socket)
            if kubelet is None:
                self._remind(f"{self._kubelet_socket} does not exist")
                await self._wait(self._reminder.due)
                continue
            if kubelet != self._last_kubelet:  # failures of the last kubelet do not count
                self._server.counts["kubelet_restarts"] += self._last_kubelet is not None
                self._last_kubelet = kubelet
                failures = self._losses = 0
            # Read the number of streams before the call, because the kubelet may open its stream
            # before its answer arrives, or after we stopped waiting for the answer.
            registration = _Registration(kubelet, self._server.streams.opened)

            def is_stale(kubelet: FileIdentity = kubelet) -> bool:
                return not grpc.owns_socket() or FileIdentity.of(self._kubelet_socket) != kubelet

            problem = await self._call.attempt(is_stale, self._wake, self._wait)
            if problem is None and not grpc.owns_socket():
                return None  # the socket was removed meanwhile: the kubelet cannot reach us
            if problem is not None and not (self._repeated and is_known_already(problem)):
                failures += 1
                is_away = isinstance(problem, KubeletAway)
                self._server.counts["kubelet_away" if is_away else "failed_registrations"] += 1
                if self._now() - failing_since > self._timing.first_retry:
                    # Do not log the first refusals: between its bind and its listen, a new kubelet
                    # refuses connections for a short time.
                    self._remind(str(problem))
                timing, is_refused = self._timing, isinstance(problem, DialError)
                first = timing.quick_retry if is_refused else timing.first_retry
                until = self._now() + back_off(first, timing.last_retry, failures - 1)
                if not await self._wait_for_chance(grpc, registration, until):
                    continue
            self._reminder.reset()
            return registration
        return None

    def _remind(self, problem: str) -> None:
        """Log why the plugin waits: as INFO during a kubelet restart, otherwise as WARNING."""
        is_restart = self._reminder.due is None and self._server.counts["registrations"] > 0
        if self._reminder.is_due(self._now()):
            level = logging.INFO if is_restart else logging.WARNING
            _log.log(level, "%s: waiting for the kubelet: %s", self._server.resource, problem)

    async def _wait_for_chance(
        self, grpc: GrpcServer, attempt: _Registration, until: float
    ) -> bool:
        """Wait until the time of the next attempt; return True if no further attempt is needed.

        We may have stopped waiting for a Register call. The kubelet may still finish the call and
        open a stream.
        """
        while self._now() < until:
            if not grpc.owns_socket() or FileIdentity.of(self._kubelet_socket) != attempt.kubelet:
                return False
            if self._server.streams.count_after(attempt.streams_before):
                return True
            await self._wait(until)
        return False

    # ------------------------------------------------------------ until the registration is lost

    async def _until_over(
        self, grpc: GrpcServer, registration: _Registration
    ) -> _Registration | None:
        """Wait until the registration or our socket is lost.

        Return None after a loss. Return the registration if it works and an older instance has
        left: then the plugin registers a second time.
        """
        state = RegistrationState(self._timing, self._now(), self._losses)
        streams = self._server.streams
        while grpc.owns_socket() and self._other_instances.successor is None:
            kubelet = FileIdentity.of(self._kubelet_socket)
            # If kubelet.sock is missing, wait: no kubelet could answer a Register call.
            if kubelet not in {None, registration.kubelet}:
                _log.info("%s: %s is new", self._server.resource, self._kubelet_socket)
                return None
            # Read this again in each round, because the code below may replace `registration`.
            before = registration.streams_before
            was_lost = state.is_lost
            state.observe(streams.opened - before, streams.count_after(before), self._now())
            if state.has_stream and await self._other_instances.ask_older_to_leave():
                await self._pause_after_older_left(grpc, registration)
                return registration
            self.is_registered = not state.is_lost and not self._other_instances.has_older_to_ask
            if state.is_lost and not was_lost:
                # A kubelet up to 1.36 stores one instance per resource, so probably a newer
                # instance has registered. An older instance must not register again; `note_loss`
                # checks this.
                self._other_instances.note_loss()
                self._log_lost_stream(state)
            if state.again_at is not None and self._now() >= state.again_at:
                first, self._repeated = self._repeated, None
                if not state.had_stream and first and streams.count_after(first.streams_before):
                    registration = first  # the kubelet still uses the first stream
                    continue
                if not state.had_stream:
                    log_no_stream(self._server.resource)
                self._losses = state.losses
                return None
            await self._wait(state.again_at)
        return None

    async def _pause_after_older_left(self, grpc: GrpcServer, first: _Registration) -> None:
        """Wait `after_leave` seconds, so that the kubelet handles the end of the older streams.

        Return early if this kubelet ends our stream too, or if another kubelet has started.
        """
        until = self._now() + self._timing.after_leave
        while (
            self._now() < until
            and grpc.owns_socket()
            and FileIdentity.of(self._kubelet_socket) == first.kubelet
            and self._server.streams.count_after(first.streams_before)
        ):
            await self._wait(until)

    def _log_lost_stream(self, state: RegistrationState) -> None:
        _log.log(
            logging.WARNING if self._losses > _QUICK_LOSSES else logging.INFO,
            "%s: the kubelet ended the device list, registering again in %.2f s%s",
            self._server.resource, (state.again_at or 0) - self._now(),
            "; another plugin may own the resource name: stop one of the two"
            if self._losses > _QUICK_LOSSES
            else "",
        )  # fmt: skip

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _wait(self, until: float | None = None) -> None:
        """Wait until the time `until`, or until a file or a stream changed."""
        await wait_for(self._wake, until)


def log_no_stream(resource: str) -> None:
    """Log that a kubelet accepted a registration but opened no stream."""
    _log.warning(
        "%s: the kubelet accepted the registration but does not ask for the devices, "
        "registering again; another plugin may own the resource name",
        resource,
    )


async def wait_for(wake: asyncio.Event, until: float | None) -> None:
    """Wait until the time `until` (loop's clock), or until `wake` is set; then clear `wake`."""
    await deadlines.until(until, wake.wait())
    # Clear `wake` after the wait and not before: if it was set while the caller worked, the next
    # wait must end at once.
    wake.clear()
