"""The server over a Unix socket: `GrpcServer` serves methods from `start` to `stop`."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

from kubedevices.errors import KubedevicesError, RpcError, StatusCode
from kubedevices.wire.acceptor import Acceptor
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
from kubedevices.wire.http2_limits import Limits
from kubedevices.wire.server_connection import ServerConnection
from kubedevices.wire.unix_socket import FileIdentity, listen, unlink_own

logger = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT = 10.0
"""Seconds until a new client must have sent its SETTINGS."""

REQUEST_TIMEOUT = 30.0
"""Seconds until a client without a deadline must have sent its whole request."""

MAX_CONNECTIONS = 512
"""At this limit we close the connection that is idle longest: silent clients lock nobody out."""

IDLE_TIMEOUT = 300.0
"""Seconds without a call after which we close a connection; gRPC clients then reconnect."""

_WARN_INTERVAL = 60.0  # seconds between two warnings about too many connections
STOP_TIME, STOP_STEPS = 0.08, 4
"""Seconds for the end of everything, in steps: a pause of the machine uses up only one step."""


class UnaryMethod:
    """One request, one response. A handler that waits returns an awaitable, which a task runs."""

    __slots__ = ("handler",)

    def __init__(self, handler: Callable[[bytes], bytes | Awaitable[bytes]]) -> None:
        self.handler = handler


class StreamMethod:
    """One request, any number of responses."""

    __slots__ = ("handler",)

    def __init__(self, handler: Callable[[bytes], AsyncIterator[bytes]]) -> None:
        self.handler = handler


Methods = Mapping[str, UnaryMethod | StreamMethod]
"""`/package.Service/Method` → its handler."""


class _ServedCall:
    """A call that the server answers: its task, its timer, and the future of a full window."""

    __slots__ = ("answer", "drained", "is_running", "method", "task", "timer")

    def __init__(self, method: UnaryMethod | StreamMethod) -> None:
        self.method = method
        self.task: asyncio.Task[None] | None = None
        self.answer: Awaitable[bytes] | AsyncIterator[bytes] | None = None  # of the handler
        self.is_running = False  # the task has begun
        self.timer: asyncio.TimerHandle | None = None
        self.drained: asyncio.Future[None] | None = None


class _ServerLink(GrpcLink[ServerConnection]):
    def __init__(self, server: "GrpcServer", connection: ServerConnection) -> None:
        super().__init__(connection)
        self._server = server
        self._running = 0  # unfinished tasks, also tasks of ended calls
        self._handshake: asyncio.TimerHandle | None = None
        self.calls: set[Call] = set()
        self.idle_since = self.loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._server.admit(self):
            self._handshake = self.loop.call_later(HANDSHAKE_TIMEOUT, self.abort)
        else:
            self.abort()

    @property
    def is_idle(self) -> bool:
        """Whether no task answers a call; incomplete requests do not count."""
        return all(call.owner.task is None for call in self.calls)

    def end_idle(self) -> None:
        """Send GOAWAY and close; the client repeats a call that arrives now on a new connection."""
        self.connection.refuse_calls()
        self.connection.go_away()
        self.close()

    def on_lost(self) -> None:
        self._end_handshake()
        self._server.forget(self)

    def _end_handshake(self) -> None:
        if self._handshake is not None:
            self._handshake.cancel()
            self._handshake = None

    def on_event(self, event: Event) -> None:
        # Hot path, three events per call: `match` takes twice as long as `isinstance`.
        if isinstance(event, CallOpened):
            self._open(event.call)
        elif isinstance(event, RequestReceived):
            self._serve(event.call, event.payload)
        elif isinstance(event, Drained):
            served: _ServedCall = event.call.owner
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
        else:
            served = call.owner = _ServedCall(method)
            self.calls.add(call)
            if not call.is_remote_closed:
                allowed = REQUEST_TIMEOUT if call.timeout is None else call.timeout
                served.timer = self.loop.call_later(allowed, self._expire, call)

    def _serve(self, call: Call, payload: bytes) -> None:
        if call.ended:
            return
        served: _ServedCall = call.owner
        # Without a deadline of the client the timer was for the arrival of the request only.
        if call.timeout is None and served.timer is not None:
            served.timer.cancel()
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

    async def _answer(
        self, call: Call, served: _ServedCall, answer: Awaitable[bytes] | AsyncIterator[bytes]
    ) -> None:
        task, served.is_running = served.task, True
        assert task is not None
        try:
            if isinstance(answer, AsyncIterator):
                await self._answer_stream(call, served, answer)
            else:
                self.connection.send(call, await answer)
            served.task = None  # `_drop` need not cancel it
            self._finish(call, StatusCode.OK, "")
        except asyncio.CancelledError:
            self._finish(call, StatusCode.CANCELLED, "the call was cancelled by the server")
            raise
        except Exception as error:
            served.task = None
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
        self, call: Call, served: _ServedCall, messages: AsyncIterator[bytes]
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
        self.calls.discard(call)
        self.idle_since = self.loop.time()
        served: _ServedCall | None = call.owner
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


class GrpcServer:
    """Serves methods on one Unix socket from `start` to `stop`; may be started again."""

    def __init__(
        self,
        methods: Methods,
        *,
        name: str,
        max_receive: int = 4 * 2**20,
        max_streams: int = 1000,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self.methods = methods
        self.name = name
        self.tasks: set[asyncio.Task[None]] = set()
        self._limits = Limits(
            max_receive=max_receive,
            max_streams=max_streams,
            max_buffered=max(2**24, 4 * max_receive),
        )
        self._max_connections = max_connections
        self._links: set[_ServerLink] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._warned_at = -_WARN_INTERVAL
        self._listener: Acceptor | None = None
        self._path: Path | None = None
        self._identity: FileIdentity | None = None

    def __repr__(self) -> str:
        where = self._path if self._listener is not None else "stopped"
        return f"<GrpcServer {self.name} {where} connections={len(self._links)}>"

    @property
    def identity(self) -> FileIdentity | None:
        """Identity of our socket file, None before `start`."""
        return self._identity

    def owns_socket(self) -> bool:
        """Whether the file at our path is still our socket."""
        return (
            self._path is not None
            and self._identity is not None
            and FileIdentity.of(self._path) == self._identity
        )

    async def start(self, path: Path, *, mode: int = 0o600, by_rename: bool = False) -> None:
        """Listen at `path`; with `by_rename` the file appears only when the socket listens."""
        if self._listener is not None:
            raise RuntimeError(f"{self.name} is already started")
        listening = listen(path, mode=mode, by_rename=by_rename)
        self._listener = Acceptor(listening.socket, self._new_link, self.name)
        self._path, self._identity = path, listening.identity

    def _new_link(self) -> _ServerLink:
        loop = asyncio.get_running_loop()
        return _ServerLink(self, ServerConnection(clock=loop.time, limits=self._limits))

    async def stop(self, grace: float = 0) -> None:
        """Refuse new calls, give open calls `grace` seconds, then end everything within 100 ms.

        Removes the socket file if it is still ours.
        """
        if self._listener is None:
            return
        listener, self._listener = self._listener, None
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        if self._path is not None:
            unlink_own(self._path, self._identity)  # first: a client that dials now finds no socket
        if self._identity is not None:
            # Not left to the garbage collector: a plugin gets a new server with each kubelet.
            self._identity.release()
            self._identity = None
        listener.close()
        for link in list(self._links):
            link.connection.refuse_calls()
        if grace > 0 and self._open_tasks():
            await asyncio.wait(self._open_tasks(), timeout=grace)
        for link in list(self._links):
            link.end_calls()
        await self._wait_for_the_end()  # longer than CLOSE_TIMEOUT, after which links abort
        for task in self._open_tasks():
            logger.warning("%s: %s does not end although cancelled", self.name, task.get_name())

    async def _wait_for_the_end(self) -> None:
        loop = asyncio.get_running_loop()
        ends = [
            loop.create_task(link.lost.wait(), name=f"{self.name}: end of a connection")
            for link in self._links
        ]
        left: set[asyncio.Task[None] | asyncio.Task[bool]] = {*ends, *self._open_tasks()}
        for _ in range(STOP_STEPS):
            if left:
                _, left = await asyncio.wait(left, timeout=STOP_TIME / STOP_STEPS)
        for end in ends:
            end.cancel()

    def _open_tasks(self) -> set[asyncio.Task[None]]:
        # A handler may call stop(); then it must not wait for its own task.
        return {task for task in self.tasks if task is not asyncio.current_task()}

    # ------------------------------------------------------------ called by links

    def admit(self, link: _ServerLink) -> bool:
        """Add a new connection; return False if the server stopped or has too many."""
        if self._listener is None:
            return False
        if len(self._links) >= self._max_connections and not self._make_room(link.loop.time()):
            return False
        self._links.add(link)
        if self._sweep is None:
            self._sweep = link.loop.call_later(IDLE_TIMEOUT, self._end_idle_links)
        return True

    def _make_room(self, now: float) -> bool:
        """Close the connection that is idle longest; return False if none is idle."""
        idle = [link for link in self._links if link.is_idle]
        if now - self._warned_at >= _WARN_INTERVAL:
            self._warned_at = now
            action = "closing idle ones" if idle else "refusing new ones"
            logger.warning("%s: %d connections, %s", self.name, self._max_connections, action)
        if not idle:
            return False
        oldest = min(idle, key=lambda link: link.idle_since)
        self._links.discard(oldest)
        oldest.end_idle()
        return True

    def _end_idle_links(self) -> None:
        """Close connections that are idle for `IDLE_TIMEOUT`; repeat while connections exist."""
        loop = asyncio.get_running_loop()
        for link in [*self._links]:
            if link.is_idle and loop.time() - link.idle_since >= IDLE_TIMEOUT:
                link.end_idle()
        self._sweep = (
            loop.call_later(IDLE_TIMEOUT / 2, self._end_idle_links) if self._links else None
        )

    def forget(self, link: _ServerLink) -> None:
        """Remove a connection that ended."""
        self._links.discard(link)
