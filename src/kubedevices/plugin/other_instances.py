"""Talks to other instances that serve the same resource on this node: the newest instance gets it.

During an upgrade two instances of a plugin run on a node. The newer instance registers while the
older instance still serves, and then asks the older to leave. The older instance stands by: it
takes the resource back when the newer instance is gone. The names of their sockets say which
instance started later, so that two instances never both claim the resource. They call each other
at these sockets with a gRPC service of ours. The registrar owns this object and decides when to
register.
"""

import asyncio
import contextlib
import errno
import itertools
import logging
import math
import os
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TypeGuard

from kubedevices.errors import DialError, RpcError, StatusCode, WireError
from kubedevices.host import deadlines, listing
from kubedevices.kubelet_api.clients import JsonClient
from kubedevices.kubelet_api.services import JsonObject, json_methods
from kubedevices.plugin.newer_instance import NewerInstance, doubt, ping
from kubedevices.plugin.timing import Reminder, Timing
from kubedevices.values.socket_paths import InstanceSocket
from kubedevices.wire.unix_grpc import GrpcChannel, Methods
from kubedevices.wire.unix_socket import unlink_if_dead

SERVICE = "kubedevices.Instance"
_MOST_SOCKETS = 64
"""At most so many sockets of a resource are examined: every plugin may create files here."""

_LISTENS_SOON = 1.0
"""A socket that does not listen so many seconds after its bind counts as dead."""

_log = logging.getLogger(__name__)


class OtherInstances:
    """The other instances of the plugin at `socket`; none if its name has no instance part.

    `leave` is called when a newer instance takes the resource over. It returns whether a kubelet
    had devices from us. `on_change` is called when a newer instance appears, ends or takes over.
    """

    def __init__(self, socket: Path, resource: str, timing: Timing) -> None:
        self._directory, self._name = socket.parent, InstanceSocket.parse(socket.name)
        self._resource, self._timing = resource, timing
        self._newer: dict[str, NewerInstance] = {}
        # Older instances that we ask to leave when a kubelet reads our list.
        self._older: list[InstanceSocket] = []
        self._is_registered = False
        # Counts `end_streams`: a Watch call that began with another number ends.
        self._ends = 0
        self._must_prove = False  # of newer instances that appear: see `newer_instance`
        self._changed = asyncio.Event()
        self.on_change: Callable[[], None] | None = None
        self.leave: Callable[[], Awaitable[bool]] | None = None

    # ------------------------------------------------------------ for the registrar

    @property
    def successor(self) -> InstanceSocket | None:
        """The newest living instance that has taken the resource over."""
        now = asyncio.get_running_loop().time()
        for each in self._newer.values():
            if each.loses_trust(now):
                self._must_prove |= each.must_prove
                _log.warning(
                    "%s: the newer instance at %s took over, but no kubelet has registered it: "
                    "registering again",
                    self._resource, each.name,
                )  # fmt: skip
        found = [each.name for each in self._newer.values() if each.took_over]
        return max(found, key=lambda name: name.instance, default=None)

    @property
    def has_newer(self) -> bool:
        """Whether a newer instance lives, which may take over at any time."""
        return bool(self._newer)

    @property
    def has_older_to_ask(self) -> bool:
        """Whether older instances live that we have not asked to leave yet."""
        return bool(self._older)

    def is_stranger(self, other: InstanceSocket) -> bool:
        """Whether `other` is another plugin that serves our resource."""
        return self._name is not None and other.stem != self._name.stem

    def report_state(self, *, registered: bool) -> None:
        """Tell the older instances whether a kubelet has the devices from us."""
        if registered != self._is_registered:
            self._is_registered = registered
            self._wake()

    def end_streams(self) -> None:
        """End the Watch calls of older instances, which wait for our end."""
        self._ends += 1
        self._wake()

    def note_loss(self) -> None:
        """Record that a kubelet ended our stream: a newer instance that is registered took over."""
        self._must_prove = False
        for newer in self._newer.values():
            newer.must_prove = False
            if newer.is_registered and not newer.took_over:
                newer.take_over()

    async def close(self) -> None:
        """Stop following the newer instances."""
        tasks = [newer.task for newer in self._newer.values() if newer.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def wait_for_newer(
        self,
        goes_on: Callable[[], bool],
        wait: Callable[[float | None], Awaitable[None]],
        has_streams: Callable[[], object],
    ) -> None:
        """Return when this instance may register, or `goes_on()` is false; usually at once.

        `wait(until)` returns at `until`, or earlier when something may have changed. A slow kubelet
        may still open a stream to this instance (`has_streams`): then we ask the newer instance
        again to take over (Relieve).
        """
        loop, reminder = asyncio.get_running_loop(), Reminder(self._timing)
        self.look()
        until = loop.time() + self._timing.newer_instance_timeout
        # We do not wait longer for a newer instance to take over, because it may hang. It can still
        # ask us to leave later.
        before: InstanceSocket | None = None
        while goes_on():
            await doubt(self._newer.values(), self._directory, self._resource)
            successor = self.successor
            if successor is not None:
                self._log_successor(successor, reminder, is_new=successor != before)
                again = reminder.due
                if has_streams():
                    await self._ask(successor, "Relieve")
                    again = loop.time() + self._timing.newer_instance_timeout
                await wait(self._next_look(again))
            elif before is not None:
                _log.info("%s: the instance at %s is gone", self._resource, before)
                self.look()  # perhaps only the connection ended, and the instance lives
                until = loop.time() + self._timing.newer_instance_timeout
            elif self.has_newer and loop.time() < until:
                await wait(until)
            else:
                return
            before = successor

    def _next_look(self, again: float | None) -> float | None:
        """Return the time until which a wait for a newer instance may last."""
        ends = [each.trust_ends for each in self._newer.values()]
        times = [each for each in (again, *ends) if each is not None and each < math.inf]
        return min(times, default=None)

    def _log_successor(
        self, successor: InstanceSocket, reminder: Reminder, *, is_new: bool
    ) -> None:
        if not reminder.is_due(asyncio.get_running_loop().time()) and not is_new:
            return
        is_other = self.is_stranger(successor)
        _log.log(
            logging.WARNING if is_other or not is_new else logging.INFO,
            "%s: standing by for as long as the newer instance at %s lives%s",
            self._resource, successor,
            ": two plugins serve this resource, stop one of them" if is_other or not is_new else "",
        )  # fmt: skip

    # ------------------------------------------------------------ finding each other

    def look(self) -> None:
        """Begin to follow the newer instances in the directory."""
        for name in self._others(newer=True):
            self._follow(name)

    async def contact_older(self) -> None:
        """Greet the older instances; remove the sockets of dead instances."""
        others = self._others(newer=False)
        answers = await asyncio.gather(*(self._ask(name, "Greet") for name in others))
        pairs = zip(others, answers, strict=True)
        self._older = [name for name, answer in pairs if answer is not None]
        for name in self._older:
            _log.log(
                logging.WARNING if self.is_stranger(name) else logging.INFO,
                "%s: taking over from the instance at %s",
                self._resource, name,
            )  # fmt: skip

    async def ask_older_to_leave(self) -> bool:
        """Ask the older instances to leave; return whether a kubelet may have seen a stream end."""
        # The list is emptied before the first await: no instance is asked twice, and an instance
        # that is added meanwhile stays in the list.
        older, self._older = self._older, []
        answers = await asyncio.gather(*(self._ask(name, "Leave") for name in older))
        # An older instance that did not answer may have ended its streams, too.
        return any(answer is None or answer.get("had_streams") for answer in answers)

    async def _ask(self, name: InstanceSocket, method: str) -> JsonObject | None:
        """Call another instance; return None if the call failed."""
        path, deadline = self._directory / str(name), self._timing.instance_deadline
        try:
            async with (
                deadlines.timeout(deadline),
                await GrpcChannel.dial(path, timeout=deadline) as channel,
            ):
                request = {"resource": self._resource, "socket": str(self._name)}
                return await JsonClient(channel, SERVICE).call(method, request, timeout=deadline)
        except (WireError, OSError) as error:  # TimeoutError is an OSError
            _log.debug("%s: %s at %s: %s", self._resource, method, name, error)
            self._clear(path, error)
            return None

    def _clear(self, path: Path, error: Exception) -> None:
        if not isinstance(error, DialError) or error.errno != errno.ECONNREFUSED:
            return
        if unlink_if_dead(path, min_age=_LISTENS_SOON):
            _log.info("%s: removed %s, whose plugin was killed", self._resource, path)
        else:  # too young: its plugin was killed right after its start, or is about to listen
            look = partial(unlink_if_dead, path, min_age=_LISTENS_SOON)
            asyncio.get_running_loop().call_later(2 * _LISTENS_SOON, look)

    def _others(self, *, newer: bool) -> list[InstanceSocket]:
        """Return the other instances with a socket in the directory, the newest first."""
        mine = self._name
        if mine is None:
            return []
        with contextlib.suppress(OSError):
            of_plugin = f".{mine.mark}."
            listed = listing.names(self._directory, lambda name: of_plugin in name)
            names = map(InstanceSocket.parse, listed)
            found = [name for name in names if self._is_instance(name, newer=newer)]
            found.sort(key=lambda name: name.instance, reverse=True)
            return list(itertools.islice(filter(self._is_ours, found), _MOST_SOCKETS))
        return []

    def _is_instance(
        self, name: InstanceSocket | None, *, newer: bool
    ) -> TypeGuard[InstanceSocket]:
        """Whether `name` is of a newer, or an older, instance that serves our resource."""
        mine = self._name
        if name is None or mine is None or name.mark != mine.mark:
            return False
        return name.instance > mine.instance if newer else name.instance < mine.instance

    def _is_ours(self, name: InstanceSocket) -> bool:
        try:
            found = os.lstat(self._directory / str(name))
        except (OSError, ValueError):
            return False
        # Every plugin pod can create files here: a socket of another user is no instance of this
        # plugin.
        return stat.S_ISSOCK(found.st_mode) and found.st_uid in (0, os.geteuid())

    # ------------------------------------------------------------ newer instances

    def _follow(self, name: InstanceSocket) -> NewerInstance:
        newer = self._newer.get(str(name))
        if newer is None:
            newer = NewerInstance(name, self._timing, must_prove=self._must_prove)
            self._newer[str(name)] = newer
            newer.task = asyncio.create_task(
                self._watch(newer), name=f"{self._resource}: {name.instance}"
            )
        return newer

    async def _watch(self, newer: NewerInstance) -> None:
        """Stay connected to a newer instance for as long as it lives."""
        path, timing = self._directory / str(newer.name), self._timing
        try:
            async with await GrpcChannel.dial(path, timeout=timing.instance_deadline) as channel:
                pings = asyncio.create_task(
                    ping(channel, timing.instance_ping), name=f"pings of {newer.name.instance}"
                )
                request = {"resource": self._resource, "socket": str(self._name)}
                states = JsonClient(channel, SERVICE).stream("Watch", request)
                try:
                    async with aclosing(states):
                        async for state in states:
                            newer.note_state(registered=state.get("registered") is True)
                            self._report_change()
                finally:
                    pings.cancel()
                    await asyncio.wait({pings})
        except (WireError, OSError) as error:
            _log.debug("%s: %s: %s", self._resource, newer.name, error)
            self._clear(path, error)
        finally:
            # The end of this call says that the newer instance ended, also after SIGKILL: the
            # kernel closes its sockets. `wait_for_newer` looks again, in case that only the
            # connection broke.
            del self._newer[str(newer.name)]
            self._report_change()

    def _report_change(self) -> None:
        self._wake()
        if self.on_change is not None:
            self.on_change()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # ------------------------------------------------------------ the service

    @property
    def methods(self) -> Methods:
        """The methods that other instances call."""
        if self._name is None:
            return {}
        return json_methods(
            SERVICE,
            {
                "Greet": self._greeted,
                "Leave": self._asked_to_leave,
                "Relieve": self._asked_to_relieve,
            },
            {"Watch": self._watched},
        )

    async def _greeted(self, request: JsonObject) -> JsonObject:
        self._follow(self._instance_in(request, newer=True))
        return {}

    async def _asked_to_relieve(self, request: JsonObject) -> JsonObject:
        """Record that an older instance has a stream of a kubelet, though it should stand by."""
        self._note_older(request)
        return {}

    def _note_older(self, request: JsonObject) -> None:
        older = self._instance_in(request, newer=False)
        if older not in self._older:
            self._older.append(older)
        self._report_change()

    async def _asked_to_leave(self, request: JsonObject) -> JsonObject:
        """Leave, but only to an instance that we can watch: else we would not see its end."""
        newer = self._follow(self._instance_in(request, newer=True))
        while not newer.answered:
            if self._newer.get(str(newer.name)) is not newer:
                raise RpcError(StatusCode.FAILED_PRECONDITION, f"no plugin serves at {newer.name}")
            await self._changed.wait()  # the caller's deadline ends this call
        if newer.must_prove or (newer.failed_to_serve and not newer.is_registered):
            text = f"no kubelet had {self._resource} from {newer.name} after it took over"
            raise RpcError(StatusCode.FAILED_PRECONDITION, text)
        newer.take_over()
        had_streams = await self.leave() if self.leave is not None else False
        self._report_change()
        return {"had_streams": had_streams}

    def _instance_in(self, request: JsonObject, *, newer: bool) -> InstanceSocket:
        """Return the instance that asks; raises `RpcError` if its resource or its age is wrong."""
        self._check_resource(request)
        name = InstanceSocket.parse(str(request.get("socket", "")))
        if self._is_instance(name, newer=newer) and self._is_ours(name):
            return name
        kind = "newer" if newer else "older"
        text = f"{request.get('socket')!r} is no {kind} instance than {self._name}"
        raise RpcError(StatusCode.INVALID_ARGUMENT, text)

    def _check_resource(self, request: JsonObject) -> None:
        if request.get("resource") != self._resource:
            raise RpcError(StatusCode.NOT_FOUND, f"{self._resource} is served here, nothing else")

    async def _watched(self, request: JsonObject) -> AsyncGenerator[JsonObject, None]:
        self._check_resource(request)
        # The older instance may have bound its socket after our look: after the start of a kubelet
        # all instances bind new sockets.
        with contextlib.suppress(RpcError):
            self._note_older(request)
        ends, sent = self._ends, None
        while ends == self._ends:
            if sent != self._is_registered:
                sent = self._is_registered
                yield {"registered": sent}
            else:
                await self._changed.wait()
