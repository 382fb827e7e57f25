"""The client over a Unix socket: `GrpcChannel`, any number of calls over one connection.

The channel opens a second connection only after GOAWAY. After GOAWAY the server accepts no new
calls on the first connection, but completes the open calls there, for example a stream of device
lists. grpc-go's servers send GOAWAY at their MaxConnectionAge, and its clients connect again.
"""

import asyncio
import errno
import os
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from kubedevices.errors import DialError, ProtocolError, RpcError, StatusCode
from kubedevices.host import deadlines
from kubedevices.wire.byte_budget import ByteBudget
from kubedevices.wire.client_connection import ClientConnection
from kubedevices.wire.grpc_events import (
    Call,
    CallEnded,
    CallRefused,
    Event,
    MessageReceived,
    PeerReady,
    PongReceived,
)
from kubedevices.wire.grpc_link import READ_SIZE, GrpcLink
from kubedevices.wire.http2_limits import Limits
from kubedevices.wire.peers import NOBODY, Peer, peer_of
from kubedevices.wire.socket_dial import connect
from kubedevices.wire.unix_socket import FileIdentity

MAX_RECEIVE = 64 * 2**20
"""Bytes of a received message. The kubelet's limit, 4 MiB, is too small for very many devices."""

# Seconds for the second connection, after GOAWAY.
MOVE_TIMEOUT = 10.0

MAX_LAST_READS = 32
"""Limit of reads after a failed write. A socket's buffer needs fewer; a server may send forever."""

MAX_MOVES = 5
"""How often a call moves to a new connection because the server sent GOAWAY before the call."""


class _CallWaiter:
    """Wakes the coroutine that waits for the messages or the end of one call."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, wants_messages: bool) -> None:
        self._loop = loop
        self._wants_messages = wants_messages
        self._sleeper: asyncio.Future[None] | None = None
        self.is_ended = False
        self.error: RpcError | None = None

    def message_received(self) -> None:
        if self._wants_messages:
            self._wake()

    def end(self, error: RpcError | None) -> None:
        if not self.is_ended:
            self.is_ended, self.error = True, error
            self._wake()

    def _wake(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def wait(self) -> None:
        self._sleeper = self._loop.create_future()
        await self._sleeper


class _ClientLink(GrpcLink[ClientConnection]):
    def __init__(self, connection: ClientConnection, budget: ByteBudget | None) -> None:
        super().__init__(connection)
        self.budget = budget
        self.ready: asyncio.Future[bool] = self.loop.create_future()
        self.successors: list[_ClientLink] = []  # connections for new calls, after a GOAWAY
        self.pongs: deque[asyncio.Future[bool]] = deque()  # in the order of their pings
        self.peer = NOBODY

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.peer = peer_of(transport.get_extra_info("socket"))
        super().connection_made(transport)

    def on_event(self, event: Event) -> None:
        match event:
            case MessageReceived(call):
                call.owner.message_received()
            case CallEnded(call, error):
                call.owner.end(error)
            case CallRefused(call):
                pause = min(0.001 * 2**call.refusals, 0.05)
                self.loop.call_later(pause, self._retry, call)
            case PeerReady():
                self._answer([self.ready], True)
            case PongReceived() if self.pongs:
                self._answer([self.pongs.popleft()], True)

    def _retry(self, call: Call) -> None:
        self.connection.retry(call)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        # Without an error asyncio has read everything up to the end.
        if exc is not None:
            self._read_remaining()
        super().connection_lost(exc)

    def _read_remaining(self) -> None:
        """Read the bytes that the server sent before it closed the connection.

        asyncio stops reading when a write fails, but the socket may still hold answers.
        """
        assert self._transport is not None
        endpoint = self._transport.get_extra_info("socket")
        with suppress(OSError, ProtocolError):
            for _ in range(MAX_LAST_READS):
                if not (data := os.read(endpoint.fileno(), READ_SIZE)):
                    break
                self.connection.receive(data)
        self.dispatch()

    def count_bytes(self) -> None:
        if self.budget is not None and not self.lost.is_set():
            self.budget.count(self)

    def end(self, reason: str) -> None:
        self.connection.end_calls(reason, StatusCode.RESOURCE_EXHAUSTED)
        self.dispatch()
        self.close()

    def on_lost(self) -> None:
        if self.budget is not None:
            self.budget.forget(self)
        self._answer([self.ready, *self.pongs], False)
        for successor in self.successors:
            successor.close_after_calls()

    def _answer(self, questions: list[asyncio.Future[bool]], answer: bool) -> None:
        for question in questions:
            if not question.done():
                question.set_result(answer)


class GrpcChannel:
    """A connection to a server. A lost channel does not reconnect: the owner dials a new one.

    `server_file` is the identity of the socket file that was dialled, None after `close`.
    """

    def __init__(
        self,
        path: Path,
        link: _ClientLink,
        identity: FileIdentity | None,
        *,
        follow_links: bool,
    ) -> None:
        self.path, self._follow_links = path, follow_links
        self.closed = link.lost
        # The channel ends with the first connection. New calls use the newest connection.
        self._first_link = self._newest_link = link
        self._identity = self.server_file = identity
        self._loop, self.peer_uid = link.loop, link.peer_uid
        # Many calls may see the GOAWAY at once: one of them dials, the others wait for it.
        self._move_lock = asyncio.Lock()

    def __repr__(self) -> str:
        state = "closed" if self.closed.is_set() else "open"
        links = self._first_link, *self._first_link.successors
        calls = sum(link.connection.open_calls for link in links)
        return f"<GrpcChannel {self.path} {state} calls={calls}>"

    @classmethod
    async def dial(
        cls,
        path: Path,
        *,
        timeout: float = 10,
        max_receive: int = MAX_RECEIVE,
        follow_links: bool = True,
        budget: ByteBudget | None = None,
    ) -> "GrpcChannel":
        """Connect and wait for the server's SETTINGS, at most `timeout` seconds.

        With `follow_links=False` `path` must be a socket and no symbolic link: in a directory where
        others may write, a link could lead to any socket of the host. Several channels may share a
        `budget` of received bytes. Raises `DialError`.
        """
        limits = Limits(
            max_receive=max_receive,
            max_streams=0,  # streams that the server may open: none
            stream_window=2**20,
            connection_window=2**23,
            max_buffered=2 * max_receive + 2**24,
            max_header_block=2**16,
        )
        identity = FileIdentity.of(path)
        try:
            link = await _open(path, None if follow_links else identity, limits, timeout, budget)
        except BaseException:
            if identity is not None:
                identity.release()  # at once: a traceback may keep the object alive
            raise
        return cls(path, link, identity, follow_links=follow_links)

    @property
    def peer(self) -> Peer:
        """The process that listens at the socket."""
        return self._first_link.peer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def unary(self, method: str, payload: bytes, *, timeout: float) -> bytes:
        """Call; `timeout` seconds include the wait for a free stream. Raises `RpcError`."""
        deadline = self._loop.time() + timeout
        moves = 0
        while True:
            link = await self._link_for_calls(deadline)
            call, waiter = _start(link, method, payload, deadline, wants_messages=False)
            timer = self._loop.call_at(deadline, _expire, link, call, timeout)
            try:
                if not waiter.is_ended:
                    await waiter.wait()
                if waiter.error is None:
                    return _only_message(link, call)
                # Repeat only a call that the server did not process: Allocate has consequences.
                if not call.is_unprocessed or moves == MAX_MOVES:
                    raise waiter.error
            finally:
                timer.cancel()
                _discard(link, call)
            moves += 1

    async def stream(self, method: str, payload: bytes = b"") -> AsyncGenerator[bytes, None]:
        """Call a streaming method and yield each message; raises `RpcError`.

        The call starts with the first `anext`. `aclose` cancels it.
        """
        link = await self._link_for_calls(self._loop.time() + MOVE_TIMEOUT)
        call, waiter = _start(link, method, payload, None, wants_messages=True)
        try:
            while True:
                while call.messages:
                    message = link.connection.take_message(call)
                    link.flush()
                    yield message
                if waiter.is_ended:
                    break
                await waiter.wait()
            if waiter.error is not None:
                raise waiter.error
        finally:
            _discard(link, call)

    async def _link_for_calls(self, deadline: float) -> _ClientLink:
        """Return a connection for a new call; if none is usable, one that fails with the reason."""
        if self._must_move():
            with suppress(TimeoutError):
                async with deadlines.timeout_at(deadline), self._move_lock:
                    await self._move()
        return self._first_link if self.closed.is_set() else self._newest_link

    def _must_move(self) -> bool:
        got_goaway = self._first_link.connection.peer_sent_goaway
        return got_goaway and self._newest_link.connection.is_over and not self.closed.is_set()

    async def _move(self) -> None:
        # Another socket file means another server: it does not have the state of the open calls.
        if not self._must_move() or not self._is_same_server():
            return
        try:
            file = None if self._follow_links else self._identity
            limits, budget = self._first_link.connection.limits, self._first_link.budget
            link = await _open(self.path, file, limits, MOVE_TIMEOUT, budget)
        except DialError:
            return
        # Check again: during the await the channel may have closed, or the socket file changed.
        if self._must_move() and self._is_same_server():
            others = [each for each in self._first_link.successors if not each.lost.is_set()]
            self._first_link.successors = [*others, link]
            self._newest_link = link
        else:
            link.abort()

    def _is_same_server(self) -> bool:
        return self._identity is not None and FileIdentity.of(self.path) == self._identity

    async def ping(self, *, timeout: float) -> None:
        """Send PING and wait for the answer; raises `RpcError`: UNAVAILABLE, DEADLINE_EXCEEDED."""
        link = self._first_link
        try:
            if not link.lost.is_set():
                pong: asyncio.Future[bool] = self._loop.create_future()
                link.pongs.append(pong)
                link.connection.ping()
                link.flush()
                async with deadlines.timeout(timeout):
                    if await pong:
                        return
            raise RpcError(StatusCode.UNAVAILABLE, link.reason)
        except TimeoutError:
            text = f"no answer to a ping within {timeout:g} s"
            raise RpcError(StatusCode.DEADLINE_EXCEEDED, text) from None

    async def close(self) -> None:
        """End every call with CANCELLED and close the connections."""
        # Closes the descriptor that holds the socket's inode.
        self._identity = self.server_file = None
        links = [*self._first_link.successors, self._first_link]
        for link in links:
            link.connection.go_away()
            link.connection.end_calls("the channel was closed", StatusCode.CANCELLED)
            link.dispatch()
            link.close()
        for link in links:
            await link.lost.wait()  # link.close() aborts after CLOSE_TIMEOUT


def _start(
    link: _ClientLink, method: str, payload: bytes, deadline: float | None, *, wants_messages: bool
) -> tuple[Call, _CallWaiter]:
    call = link.connection.start_call(method, payload, deadline=deadline)
    waiter = call.owner = _CallWaiter(link.loop, wants_messages=wants_messages)
    link.flush()
    return call, waiter


def _expire(link: _ClientLink, call: Call, timeout: float) -> None:
    if not call.owner.is_ended:
        _discard(link, call)
        text = f"{call.method} did not answer within {timeout:g} s"
        call.owner.end(RpcError(StatusCode.DEADLINE_EXCEEDED, text))


def _discard(link: _ClientLink, call: Call) -> None:
    if not call.ended or call.messages:
        link.connection.cancel(call)
        link.flush()


def _only_message(link: _ClientLink, call: Call) -> bytes:
    if len(call.messages) != 1:
        text = f"{call.method} answered with {len(call.messages)} messages instead of one"
        raise RpcError(StatusCode.UNIMPLEMENTED, text)
    return link.connection.take_message(call)


async def _open(
    path: Path,
    file: FileIdentity | None,
    limits: Limits,
    timeout: float,
    budget: "ByteBudget | None",
) -> _ClientLink:
    """Connect and wait for SETTINGS; with `file` only to this file. Raises `DialError`."""
    loop, connected = asyncio.get_running_loop(), False
    try:
        async with deadlines.timeout(timeout):
            endpoint = await connect(path, file)
            connected = True
            _, link = await loop.create_unix_connection(
                lambda: _ClientLink(ClientConnection(clock=loop.time, limits=limits), budget),
                sock=endpoint,
            )
            try:
                # The kernel connects a client even if no process accepts the connection. SETTINGS
                # prove that a server does.
                is_ready = await link.ready
            except BaseException:
                link.abort()
                raise
    except TimeoutError:
        lack = "no HTTP/2 SETTINGS" if connected else "its queue is full, not accepted"
        raise DialError(str(path), f"{lack} within {timeout:g} s", errno.ETIMEDOUT) from None
    except OSError as error:  # on our side, for example: no descriptor is free
        reason = (error.strerror or str(error)).lower()
        raise DialError(str(path), reason, error.errno or 0) from error
    if not is_ready:
        raise DialError(str(path), link.reason)
    return link
