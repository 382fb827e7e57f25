"""Keeps a plugin server registered at kubelet.sock for as long as its socket is its own.

It waits for a kubelet, registers, watches the stream that the kubelet opens, and registers again
when the stream ends or kubelet.sock is replaced. Beside other instances it leaves the resource to
the newest (`siblings`). Owned by the registrar, which owns the socket.
"""

import asyncio
import contextlib
import logging
from typing import NamedTuple

from kubedevices.errors import DialError, WireError
from kubedevices.plugin.register_call import KubeletAway, RegisterCall, is_known_already
from kubedevices.plugin.registration_state import RegistrationState
from kubedevices.plugin.reminder import Reminder
from kubedevices.plugin.server import PluginServer
from kubedevices.plugin.siblings import Siblings
from kubedevices.plugin.timing import Timing, back_off
from kubedevices.wire.unix_grpc import FileIdentity, GrpcServer
from kubedevices.words import counted

# The kubelet dials back and asks for our options before it answers: 1 s is plenty on one machine.
_LEAVE_TIME = 1.0
_QUICK_LOSSES = 2
"""So many lost streams in a row may come from a kubelet that cleans up after another instance."""

_log = logging.getLogger(__name__)


class _Registration(NamedTuple):
    """The kubelet that accepted us, and how many streams had been opened before."""

    kubelet: FileIdentity
    streams_before: int


class KeptRegistration:
    """Registers `server` by `call`; `wake` is set when something happened."""

    def __init__(
        self,
        server: PluginServer,
        call: RegisterCall,
        siblings: Siblings,
        wake: asyncio.Event,
        timing: Timing,
    ) -> None:
        self._server, self._call = server, call
        self._kubelet_socket = call.kubelet_socket
        self._siblings, self._wake, self._timing = siblings, wake, timing
        # Registrations in a row that came to nothing. The count outlives our socket, but not the
        # kubelet.
        self._losses = 0
        self._last_kubelet: FileIdentity | None = None
        # The registration that still works while another one is made beside it, after an older
        # instance left. A kubelet may refuse the second one as known already, or accept it and keep
        # the first stream.
        self._repeated: _Registration | None = None
        self._reminder = Reminder(timing)
        self._is_registered = False

    @property
    def is_registered(self) -> bool:
        """Whether a kubelet accepted us and nothing has ended that since."""
        return self._is_registered

    @is_registered.setter
    def is_registered(self, value: bool) -> None:
        self._is_registered = value
        self._siblings.say(registered=value)

    async def keep(self, grpc: GrpcServer) -> None:
        """Return when our socket file is no longer ours."""
        self._repeated = None
        while registration := await self._register(grpc):
            self.is_registered = not self._siblings.are_to_leave
            self._server.counts["registrations"] += 1
            _log.info(
                "%s: registered at %s with %s", self._server.resource, self._kubelet_socket,
                counted(len(self._server.devices), "device"),
            )  # fmt: skip
            self._repeated = await self._until_over(grpc, registration)
            self.is_registered = False

    async def leave(self) -> bool:
        """Leave the resource to a newer instance; say whether a kubelet had devices from us.

        Kubelets up to 1.36 know a plugin by its resource alone: when the stream of any instance
        ends, they close the connection to the newest instance. A failed registration prevents
        this. So we register once more and make it fail, and only then end our streams. The newer
        instance registers again a second later. The devices never disappear.
        """
        had_streams = len(self._server.streams) > 0
        if had_streams:
            with self._server.refusing(), contextlib.suppress(WireError, OSError):
                await self._call.register(_LEAVE_TIME)
        self._server.end_streams()
        return had_streams

    # ------------------------------------------------------------ until a kubelet accepts us

    async def _register(self, grpc: GrpcServer) -> _Registration | None:
        """Try until a kubelet accepts us; None when our socket was lost meanwhile."""
        failures, failing_since = 0, self._now()
        while grpc.owns_socket():
            await self._siblings.wait_for_newer(
                grpc.owns_socket, self._wait, lambda: len(self._server.streams)
            )
            kubelet = FileIdentity.of(self._kubelet_socket)
            if kubelet is None:
                self._remind(f"{self._kubelet_socket} does not exist")
                await self._wait(self._reminder.due)
                continue
            if kubelet != self._last_kubelet:  # a new one: what the last one did does not count
                self._server.counts["kubelet_restarts"] += self._last_kubelet is not None
                self._last_kubelet = kubelet
                failures = self._losses = 0
            # The streams are counted before the call: a kubelet may open its stream before we read
            # the answer, or after we gave the call up.
            registration = _Registration(kubelet, self._server.streams.opened)

            def is_stale(kubelet: FileIdentity = kubelet) -> bool:
                return not grpc.owns_socket() or FileIdentity.of(self._kubelet_socket) != kubelet

            problem = await self._call.attempt(is_stale, self._wake, self._wait)
            if problem is None and not grpc.owns_socket():
                return None  # it was wiped under us: the kubelet cannot reach us, whatever it said
            if problem is not None and not (self._repeated and is_known_already(problem)):
                failures += 1
                is_away = isinstance(problem, KubeletAway)
                self._server.counts["kubelet_away" if is_away else "failed_registrations"] += 1
                if self._now() - failing_since > self._timing.first_retry:
                    # Not at the first refusals: a kubelet that has just bound its socket listens a
                    # moment later.
                    self._remind(str(problem))
                until = self._now() + self._retry_pause(problem, failures)
                if not await self._wait_for_chance(grpc, registration, until):
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
        """Say what we wait for; a kubelet that restarts is no reason to warn."""
        is_restart = self._reminder.due is None and self._server.counts["registrations"] > 0
        if self._reminder.is_due(self._now()):
            level = logging.INFO if is_restart else logging.WARNING
            _log.log(level, "%s: waiting for the kubelet: %s", self._server.resource, problem)

    async def _wait_for_chance(
        self, grpc: GrpcServer, attempt: _Registration, until: float
    ) -> bool:
        """Wait until the next try; True if no further try is needed.

        A kubelet goes on with a Register call that we gave up: then a stream opens after all.
        """
        while self._now() < until:
            if not grpc.owns_socket() or FileIdentity.of(self._kubelet_socket) != attempt.kubelet:
                return False
            if self._server.streams.count_after(attempt.streams_before):
                return True
            await self._wait(until)
        return False

    # ------------------------------------------------------------ until that is over

    async def _until_over(
        self, grpc: GrpcServer, registration: _Registration
    ) -> _Registration | None:
        """Wait until the kubelet no longer knows us, or our socket is lost.

        Returns the registration if it still works and another is to be made beside it.
        """
        state = RegistrationState(self._timing, self._now(), self._losses)
        streams = self._server.streams
        while grpc.owns_socket() and self._siblings.successor is None:
            kubelet = FileIdentity.of(self._kubelet_socket)
            # A kubelet.sock that is only gone changes nothing: there is nobody to register with
            # yet.
            if kubelet not in {None, registration.kubelet}:
                _log.info("%s: there is a new %s", self._server.resource, self._kubelet_socket)
                return None
            # Read in each round, because `registration` may become `first` further down.
            before = registration.streams_before
            was_lost = state.is_lost
            state.observe(streams.opened - before, streams.count_after(before), self._now())
            if state.has_stream and await self._siblings.relieve():
                await self._let_kubelet_see_the_end(grpc, registration)
                return registration
            self.is_registered = not state.is_lost and not self._siblings.are_to_leave
            if state.is_lost and not was_lost:
                # A kubelet up to 1.36 knows one instance per resource, so the likely reason is a
                # newer instance that registered: with that one we do not compete.
                self._siblings.note_loss()
                self._log_lost_stream(state)
            if state.again_at is not None and self._now() >= state.again_at:
                first, self._repeated = self._repeated, None
                if not state.had_stream and first and streams.count_after(first.streams_before):
                    registration = first  # the kubelet knew us and goes on with the first stream
                    continue
                if not state.had_stream:
                    log_no_stream(self._server.resource)
                self._losses = state.losses
                return None
            await self._wait(state.again_at)
        return None

    async def _let_kubelet_see_the_end(self, grpc: GrpcServer, first: _Registration) -> None:
        """Wait until a kubelet has dealt with the end of an older instance's streams.

        Ends early if this kubelet ends our stream too, or if another kubelet has started.
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
        """Wait until `until`, or until a file or a stream changed; the caller looks which."""
        await wait_for(self._wake, until)


def log_no_stream(resource: str) -> None:
    """Say that a kubelet accepted a registration and does not act on it."""
    _log.warning(
        "%s: the kubelet accepted the registration but does not ask for the devices, "
        "registering again; another plugin may own the resource name",
        resource,
    )


async def wait_for(wake: asyncio.Event, until: float | None) -> None:
    """Wait until `until`, by the loop's clock, or until `wake` is set, and clear it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(until):
            await wake.wait()
    # Cleared after the wait, not before: an event that comes while the caller looks ends the next
    # wait at once instead of being lost.
    wake.clear()
