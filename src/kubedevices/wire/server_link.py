"""One connection that a `GrpcServer` accepted: starts the handlers, answers the calls."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import NamedTuple, Protocol

from kubedevices.errors import KubedevicesError, RpcError, StatusCode
from kubedevices.wire.grpc_events import (
    Call,
    CallEnded,
    CallOpened,
    Drained,
    Event,
    PeerReady,
    RequestReceived,
)
from kubedevices.wire.grpc_link import GrpcLink
from kubedevices.wire.peers import NOBODY, Peer, peer_of
from kubedevices.wire.server_connection import ServerConnection
from kubedevices.wire.server_load import ServerLoad

logger = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT = 10.0
"""Seconds until a new client must have sent its SETTINGS."""

SMALL_READ = 2**14
"""Bytes of one read, if no long message arrives: some eighty calls."""

REQUEST_TIMEOUT = 30.0
"""Seconds until a client without a deadline must have sent its whole request."""


class UnaryMethod(NamedTuple):
    """One request, one response. A handler that waits returns an awaitable, which a task runs."""

    handler: Callable[[bytes], bytes | Awaitable[bytes]]


class StreamMethod(NamedTuple):
    """One request, any number of responses."""

    handler: Callable[[bytes], AsyncIterator[bytes]]


Methods = Mapping[str, UnaryMethod | StreamMethod]
"""`/package.Service/Method` → its handler."""


class ServedCall:
    """A call that the server answers: its task, its timer, and the future of a full window."""

    __slots__ = ("answer", "drained", "is_running", "link", "method", "task", "timer")

    def __init__(self, method: UnaryMethod | StreamMethod) -> None:
        self.method = method
        self.task: asyncio.Task[None] | None = None
        self.answer: Awaitable[bytes] | AsyncIterator[bytes] | None = None  # of the handler
        self.is_running = False  # the task has begun
        self.timer: asyncio.TimerHandle | None = None
        self.drained: asyncio.Future[None] | None = None
        self.link: ServerLink | None = None  # of a stream


CALLER: ContextVar[Peer] = ContextVar("caller", default=NOBODY)
"""The process whose call a handler answers."""


class Server(Protocol):
    """The server of a connection."""

    methods: Methods
    name: str
    tasks: set[asyncio.Task[None]]
    load: ServerLoad

    def admit(self, link: "ServerLink") -> bool:
        """Add a new connection; return False if it is refused."""

    def forget(self, link: "ServerLink") -> None:
        """Remove a connection that ended."""


class ServerLink(GrpcLink[ServerConnection]):
    """A connection of `server`. It is a `server_load.Link`."""

    def __init__(self, server: Server, connection: ServerConnection) -> None:
        super().__init__(connection)
        self._server = server
        self._small_buffer = self._buffer[:SMALL_READ]
        self._running = 0  # unfinished tasks, also tasks of ended calls
        self._handshake: asyncio.TimerHandle | None = None
        self.calls: set[Call] = set()
        # The calls that a task answers. Incomplete requests do not count.
        self._answering: set[Call] = set()
        self._unary = 0  # how many of them are no streams
        self.idle_since = self.busy_since = self.loop.time()
        self.peer, self._key, self._counted = NOBODY, NOBODY.key, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Find out who connected, and whether there is a place."""
        self.peer = peer_of(transport.get_extra_info("socket"))
        self._key = self.peer.key
        if (guard := self._server.load.guard_of(self.peer)) is not None:
            self.connection.guard = guard
        super().connection_made(transport)
        if self._server.admit(self):
            self._handshake = self.loop.call_later(HANDSHAKE_TIMEOUT, self.abort)
        else:
            self.abort()

    @property
    def is_idle(self) -> bool:
        """Whether no task answers a call; incomplete requests do not count."""
        return not self._answering

    @property
    def is_streaming(self) -> bool:
        """Whether each call that a task answers is a stream."""
        return not self._unary

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return a small part of the buffer, except while a long message arrives.

        So a flood of small calls on one connection takes a short turn of the event loop.
        """
        is_long = self.connection.buffered > SMALL_READ
        return self._buffer if is_long else self._small_buffer

    @property
    def held(self) -> int:
        """Bytes that the peer makes us keep. The answer to its only call may have any size."""
        held = super().held
        return held if not held or len(self.calls) > 1 else held - self.connection.unsent

    def count_bytes(self) -> None:
        """Tell the load of the server how many bytes this connection holds."""
        held = self.held
        if held != self._counted:  # mostly both are 0
            self._counted = held
            self._server.load.count_bytes(self)

    def end(self, reason: str = "") -> None:
        """End open calls with RESOURCE_EXHAUSTED, send GOAWAY and close.

        The client repeats a call that arrives now on a new connection.
        """
        self.connection.refuse_calls()
        for call in [*self.calls]:
            if not call.is_partly_sent:
                self._finish(call, StatusCode.RESOURCE_EXHAUSTED, reason)
        self.connection.go_away()
        self.close()

    def on_lost(self) -> None:
        """Free the place in the server."""
        self._end_handshake()
        self._server.forget(self)

    def _end_handshake(self) -> None:
        if self._handshake is not None:
            self._handshake.cancel()
            self._handshake = None

    def on_event(self, event: Event) -> None:
        """Open, serve or drop a call."""
        # Hot path, three events per call: `match` takes twice as long as `isinstance`.
        if isinstance(event, CallOpened):
            self._open(event.call)
        elif isinstance(event, RequestReceived):
            self._serve(event.call, event.payload)
        elif isinstance(event, Drained):
            served: ServedCall = event.call.owner
            if served.drained is not None and not served.drained.done():
                served.drained.set_result(None)
        elif isinstance(event, CallEnded):
            self._drop(event.call)
        elif isinstance(event, PeerReady):
            self._end_handshake()

    # ------------------------------------------------------------ one call

    def _open(self, call: Call) -> None:
        method = self._server.methods.get(call.method)
        if method is None:
            text = f"unknown method {call.method}"
            self.connection.finish(call, StatusCode.UNIMPLEMENTED, text)
        elif self._running >= 2 * self.connection.limits.max_streams:
            # Cancelled handlers may not end at once: clients must not be able to collect them.
            text = "too many calls are still ending"
            self.connection.finish(call, StatusCode.RESOURCE_EXHAUSTED, text)
        elif not self._server.load.begin_call(self._key):
            text = "too many calls are open"
            self.connection.finish(call, StatusCode.RESOURCE_EXHAUSTED, text)
        else:
            served = call.owner = ServedCall(method)
            self.calls.add(call)
            if not call.is_remote_closed:
                allowed = REQUEST_TIMEOUT if call.timeout is None else call.timeout
                served.timer = self.loop.call_later(allowed, self._expire, call)

    def _serve(self, call: Call, payload: bytes) -> None:
        if call.ended:
            return
        served: ServedCall = call.owner
        # Without a deadline of the client the timer was for the arrival of the request only.
        if call.timeout is None and served.timer is not None:
            served.timer.cancel()
        CALLER.set(self.peer)
        try:
            answer = served.method.handler(payload)
        except Exception as error:
            self._fail(call, error)
            return
        if isinstance(answer, bytes):
            self.connection.send(call, answer)
            self._finish(call, StatusCode.OK, "")
            return
        served.answer = answer
        work, name = self._answer(call, served, answer), f"{self._server.name}: {call.method}"
        served.task = self.loop.create_task(work, name=name)
        if call.timeout is not None and served.timer is None:
            served.timer = self.loop.call_later(call.timeout, self._expire, call)
        self._running += 1
        self._server.tasks.add(served.task)
        self.has_started_tasks = True
        self._answering.add(call)
        self.busy_since = self.loop.time()
        if isinstance(served.method, UnaryMethod):
            self._unary += 1
        else:
            served.link = self
            self._make_room_for(call)

    def _make_room_for(self, stream: Call) -> None:
        leaves = self._server.load.streams.enter(stream, self.peer)
        if leaves is not None:
            link: ServerLink = leaves.owner.link
            text = "a newer stream took the place of this stream"
            link._finish(leaves, StatusCode.RESOURCE_EXHAUSTED, text)

    def _is_answered(self, call: Call) -> None:
        if call in self._answering:
            self._answering.discard(call)
            if isinstance(call.owner.method, UnaryMethod):
                self._unary -= 1
            else:
                self._server.load.streams.leave(call)

    async def _answer(
        self, call: Call, served: ServedCall, answer: Awaitable[bytes] | AsyncIterator[bytes]
    ) -> None:
        task, served.is_running = served.task, True
        assert task is not None
        try:
            if isinstance(answer, AsyncIterator):
                await self._answer_stream(call, served, answer)
            else:
                self.connection.send(call, await answer)
            served.task = None  # `_drop` need not cancel it
            self._is_answered(call)
            self._finish(call, StatusCode.OK, "")
        except asyncio.CancelledError:
            self._finish(call, StatusCode.CANCELLED, "the call was cancelled by the server")
            raise
        except Exception as error:
            served.task = None
            self._is_answered(call)
            self._fail(call, error)
        finally:
            self._on_task_done(task)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._running -= 1
        self._server.tasks.discard(task)

    def _fail(self, call: Call, error: Exception) -> None:
        if isinstance(error, RpcError):
            self._finish(call, error.code or StatusCode.UNKNOWN, error.message)
        elif isinstance(error, KubedevicesError):
            self._finish(call, StatusCode.UNKNOWN, str(error))
        else:
            logger.error("%s: %s failed", self._server.name, call.method, exc_info=error)
            text = f"internal error: {type(error).__name__}: {error}"
            self._finish(call, StatusCode.UNKNOWN, text)

    async def _answer_stream(
        self, call: Call, served: ServedCall, messages: AsyncIterator[bytes]
    ) -> None:
        try:
            async for message in messages:
                self.connection.send(call, message)
                self.flush()
                if call.ended:
                    return
                if call.pending:
                    served.drained = self.loop.create_future()
                    await served.drained  # no queue: a slow reader gets the newest list next
        finally:
            close = getattr(messages, "aclose", None)  # at once, not in the garbage collector
            if close is not None:
                await close()

    def _expire(self, call: Call) -> None:
        self._finish(call, StatusCode.DEADLINE_EXCEEDED, "the deadline passed")

    def _finish(self, call: Call, code: StatusCode, text: str) -> None:
        self.connection.finish(call, code, text)
        if call.ended:
            self._drop(call)
        self.flush()

    def _drop(self, call: Call) -> None:
        if call in self.calls:
            self.calls.discard(call)
            self._is_answered(call)
            self._server.load.end_call(self._key)
        self.idle_since = self.loop.time()
        served: ServedCall | None = call.owner
        if served is not None:
            if served.timer is not None:
                served.timer.cancel()
            if served.task is not None:
                served.task.cancel()
                if not served.is_running:  # the `finally` of `_answer` will never run
                    self._on_task_done(served.task)
                    if asyncio.iscoroutine(served.answer):
                        served.answer.close()

    def end_calls(self) -> None:
        """End the open calls and the connection, because the server stops."""
        for call in list(self.calls):
            # No status may follow half a message. grpc-go takes a reset there for INTERNAL, the end
            # of the connection for UNAVAILABLE, which is right: so send neither status nor reset.
            if not call.is_partly_sent:
                self._finish(call, StatusCode.UNAVAILABLE, f"{self._server.name} is stopping")
        self.connection.go_away()
        self.close()
