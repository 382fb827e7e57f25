"""The answering end over a Unix socket: `GrpcServer` offers methods until it is stopped."""

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
"""Seconds a client has to say that it speaks HTTP/2."""

REQUEST_TIMEOUT = 30.0
"""Seconds a client has to send the rest of a request it has begun."""

MAX_CONNECTIONS = 512
"""At this limit the longest idle connection is closed: silent clients lock nobody out."""

IDLE_TIMEOUT = 300.0
"""Seconds without a call after which a connection ends; gRPC clients then make another."""

_TELL_AGAIN = 60.0
STOP_TIME, STOP_STEPS = 0.08, 4
"""Seconds in which everything ends, in steps: a machine that stands still takes one of them."""


class UnaryMethod:
    """One request, one answer: at once, or by a task if the handler has to wait."""

    __slots__ = ("handler",)

    def __init__(self, handler: Callable[[bytes], bytes | Awaitable[bytes]]) -> None:
        self.handler = handler


class StreamMethod:
    """One message in, any number out."""

    __slots__ = ("handler",)

    def __init__(self, handler: Callable[[bytes], AsyncIterator[bytes]]) -> None:
        self.handler = handler


Methods = Mapping[str, UnaryMethod | StreamMethod]
"""`/package.Service/Method` → what answers it."""


class _Served:
    """One call that is being answered: its task, its timer, and what it sleeps on."""

    __slots__ = ("answer", "drained", "is_running", "method", "task", "timer")

    def __init__(self, method: UnaryMethod | StreamMethod) -> None:
        self.method = method
        self.task: asyncio.Task[None] | None = None
        self.answer: Awaitable[bytes] | AsyncIterator[bytes] | None = None  # its work
        self.is_running = False  # it has begun
        self.timer: asyncio.TimerHandle | None = None
        self.drained: asyncio.Future[None] | None = None


class _ServerLink(GrpcLink[ServerConnection]):
    def __init__(self, server: "GrpcServer", connection: ServerConnection) -> None:
        super().__init__(connection)
        self._server = server
        self._running = 0  # tasks that have not ended, also those of calls that have
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
        """Whether no call is being answered: requests may still be on their way."""
        return all(call.owner.task is None for call in self.calls)

    def end_idle(self) -> None:
        """Say goodbye and close; a call that comes at the same moment is made again elsewhere."""
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
        # Each call has three events, and `match` takes twice as long as this.
        if isinstance(event, CallOpened):
            self._open(event.call)
        elif isinstance(event, RequestReceived):
            self._serve(event.call, event.payload)
        elif isinstance(event, Drained):
            served: _Served = event.call.owner
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
            # Cancelled handlers that do not end: clients must not be able to pile them up.
            text = "too many calls are still ending"
            self.connection.finish(call, StatusCode.RESOURCE_EXHAUSTED, text)
        else:
            served = call.owner = _Served(method)
            self.calls.add(call)
            if not call.is_ended:
                allowed = REQUEST_TIMEOUT if call.timeout is None else call.timeout
                served.timer = self.loop.call_later(allowed, self._expire, call)

    def _serve(self, call: Call, payload: bytes) -> None:
        if call.ended:
            return
        served: _Served = call.owner
        # Without a deadline of the client's, only the request had to come in time.
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
        self, call: Call, served: _Served, answer: Awaitable[bytes] | AsyncIterator[bytes]
    ) -> None:
        task, served.is_running = served.task, True
        assert task is not None
        try:
            if isinstance(answer, AsyncIterator):
                await self._answer_stream(call, served, answer)
            else:
                self.connection.send(call, await answer)
            served.task = None  # it ends by itself
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
        self, call: Call, served: _Served, messages: AsyncIterator[bytes]
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
            close = getattr(messages, "aclose", None)  # now, not by the garbage collector
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
        served: _Served | None = call.owner
        if served is not None:
            if served.timer is not None:
                served.timer.cancel()
            if served.task is not None:
                served.task.cancel()
                if not served.is_running:  # its `finally` will never run
                    self._on_task_done(served.task)
                    if asyncio.iscoroutine(served.answer):
                        served.answer.close()

    def end_calls(self) -> None:
        """End what is open, and the connection: the server stops."""
        for call in list(self.calls):
            # After half a message no status can follow. To grpc-go a reset there is INTERNAL, the
            # end of the connection UNAVAILABLE.
            if not call.is_cut:
                self._finish(call, StatusCode.UNAVAILABLE, f"{self._server.name} is stopping")
        self.connection.go_away()
        self.close()


class GrpcServer:
    """Offers methods on one Unix socket from `start` to `stop`; may be started again."""

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
        self._told_at = -_TELL_AGAIN
        self._listener: Acceptor | None = None
        self._path: Path | None = None
        self._identity: FileIdentity | None = None

    def __repr__(self) -> str:
        where = self._path if self._listener is not None else "stopped"
        return f"<GrpcServer {self.name} {where} connections={len(self._links)}>"

    @property
    def identity(self) -> FileIdentity | None:
        """Which file our socket is, None before `start`."""
        return self._identity

    def owns_socket(self) -> bool:
        """Whether the file at our path is still our socket."""
        return (
            self._path is not None
            and self._identity is not None
            and FileIdentity.of(self._path) == self._identity
        )

    def open_streams(self, method: str) -> int:
        """Return how many calls of `method` are being answered."""
        return sum(call.method == method for link in self._links for call in link.calls)

    async def start(self, path: Path, *, mode: int = 0o600, by_rename: bool = False) -> None:
        """Listen at `path`; with `by_rename` the file appears there already listening."""
        if self._listener is not None:
            raise RuntimeError(f"{self.name} is already started")
        listening = listen(path, mode=mode, by_rename=by_rename)
        self._listener = Acceptor(listening.socket, self._new_link, self.name)
        self._path, self._identity = path, listening.identity

    def _new_link(self) -> _ServerLink:
        loop = asyncio.get_running_loop()
        return _ServerLink(self, ServerConnection(clock=loop.time, limits=self._limits))

    async def stop(self, grace: float = 0) -> None:
        """Take no more calls, give open calls `grace` seconds, end everything within 100 ms.

        The socket file goes only if it is still ours.
        """
        if self._listener is None:
            return
        listener, self._listener = self._listener, None
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        if self._path is not None:
            unlink_own(self._path, self._identity)  # first: who dials now finds no socket
        listener.close()
        for link in list(self._links):
            link.connection.refuse_calls()
        if grace > 0 and self._open_tasks():
            await asyncio.wait(self._open_tasks(), timeout=grace)
        for link in list(self._links):
            link.end_calls()
        await self._wait_for_the_end()  # a link that does not close by itself aborts before that
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
        # stop() may be called by a handler, which must not wait for itself.
        return {task for task in self.tasks if task is not asyncio.current_task()}

    # ------------------------------------------------------------ called by links

    def admit(self, link: _ServerLink) -> bool:
        """Take a new connection, unless we are stopped or have too many."""
        if self._listener is None:
            return False
        if len(self._links) >= self._max_connections and not self._make_room(link.loop.time()):
            return False
        self._links.add(link)
        if self._sweep is None:
            self._sweep = link.loop.call_later(IDLE_TIMEOUT, self._end_idle_links)
        return True

    def _make_room(self, now: float) -> bool:
        """Close the connection that is idle for longest; return whether there was any."""
        idle = [link for link in self._links if link.is_idle]
        if now - self._told_at >= _TELL_AGAIN:
            self._told_at = now
            what = "ending those that are idle" if idle else "taking no more"
            logger.warning("%s: %d connections, %s", self.name, self._max_connections, what)
        if not idle:
            return False
        oldest = min(idle, key=lambda link: link.idle_since)
        self._links.discard(oldest)
        oldest.end_idle()
        return True

    def _end_idle_links(self) -> None:
        """Close connections that are idle for too long; repeat while there are connections."""
        loop = asyncio.get_running_loop()
        for link in [*self._links]:
            if link.is_idle and loop.time() - link.idle_since >= IDLE_TIMEOUT:
                link.end_idle()
        self._sweep = (
            loop.call_later(IDLE_TIMEOUT / 2, self._end_idle_links) if self._links else None
        )

    def forget(self, link: _ServerLink) -> None:
        """Let go of a connection that has ended."""
        self._links.discard(link)
