"""The calling end over a Unix socket: `GrpcChannel`, any number of calls over one connection.

A second one is made only while a server ends the first gently (GOAWAY): it takes no more calls on
it but goes on with those it has, a device list for instance, for as long as they last. grpc-go's
servers do so at their MaxConnectionAge, and its clients dial again.
"""

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from kubedevices.errors import (
    DialError,
    ProtocolError,
    RpcError,
    SocketPathTooLong,
    StatusCode,
)
from kubedevices.socket_paths import check_socket_path
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
from kubedevices.wire.unix_socket import FileIdentity

MAX_RECEIVE = 64 * 2**20
"""Sixteen times a kubelet's limit, which kills plugins with many devices."""

# Seconds between two tries while the server's queue is full.
CONNECT_RETRY = 0.005
# For a second connection after a GOAWAY.
MOVE_TIMEOUT = 10.0

MAX_LAST_READS = 32
"""Reads after a failed write: a socket's buffer is less, and a living server may never end."""

MAX_MOVES = 5
"""How often a call may find that its server has just said goodbye to the connection."""


class _Inbox:
    """What the reader of one call sleeps on."""

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
    def __init__(self, connection: ClientConnection) -> None:
        super().__init__(connection)
        self.ready: asyncio.Future[bool] = self.loop.create_future()
        self.successors: list[_ClientLink] = []  # of the first connection: they end after it
        self.pongs: deque[asyncio.Future[bool]] = deque()  # in the order of their pings

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
            case PongReceived():
                if self.pongs:
                    self._answer([self.pongs.popleft()], True)

    def _retry(self, call: Call) -> None:
        self.connection.retry(call)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        # Without an error asyncio has read to the end by itself.
        if exc is not None:
            self._read_last_words()
        super().connection_lost(exc)

    def _read_last_words(self) -> None:
        """Take what the server said before it hung up.

        When a write fails asyncio reads no more, and answers may lie in the socket.
        """
        assert self._transport is not None
        endpoint = self._transport.get_extra_info("socket")
        with suppress(OSError, ProtocolError):
            for _ in range(MAX_LAST_READS):
                data = os.read(endpoint.fileno(), READ_SIZE)
                if not data:
                    break
                self.connection.receive(data)
        self.dispatch()

    def on_lost(self) -> None:
        self._answer([self.ready, *self.pongs], False)
        for successor in self.successors:
            successor.leave()

    def _answer(self, questions: list[asyncio.Future[bool]], answer: bool) -> None:
        for question in questions:
            if not question.done():
                question.set_result(answer)


class GrpcChannel:
    """A dialled connection to a server; when it is lost it stays lost, dial again.

    `server_file` is the socket that was dialled.
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
        self._first = self._link = link  # the channel is closed with the first; the other calls
        self._identity = self.server_file = identity
        self._loop = link.loop
        # Many calls may find the goodbye at once: one of them dials, the others wait for it.
        self._moving = asyncio.Lock()

    def __repr__(self) -> str:
        state = "closed" if self.closed.is_set() else "open"
        calls = sum(link.connection.open_calls for link in (self._first, *self._first.successors))
        return f"<GrpcChannel {self.path} {state} calls={calls}>"

    @classmethod
    async def dial(
        cls,
        path: Path,
        *,
        timeout: float = 10,
        max_receive: int = MAX_RECEIVE,
        follow_links: bool = True,
    ) -> "GrpcChannel":
        """Connect and wait for the server's SETTINGS: a full queue accepts connections too.

        With `follow_links=False` only to a socket that has the name itself: where strangers write,
        a link could lead to any socket of the host. Raises `DialError` for whatever is in the way.
        """
        limits = Limits(
            max_receive=max_receive,
            # A client: the server opens no streams (push).
            max_streams=0,
            stream_window=2**20,
            connection_window=2**23,
            max_buffered=2 * max_receive + 2**24,
        )
        identity = FileIdentity.of(path)
        try:
            link = await _open(path, None if follow_links else identity, limits, timeout)
        except BaseException:
            if identity is not None:
                identity.release()  # a traceback may keep it for long
            raise
        return cls(path, link, identity, follow_links=follow_links)

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
        """Call and return the one answer; `timeout` seconds include waiting for a free stream."""
        deadline = self._loop.time() + timeout
        moves = 0
        while True:
            link = await self._link_for_calls(deadline)
            call, inbox = _start(link, method, payload, deadline, wants_messages=False)
            timer = self._loop.call_at(deadline, _expire, link, call, timeout)
            try:
                if not inbox.is_ended:
                    await inbox.wait()
                if inbox.error is None:
                    return _only_message(link, call)
                # Only a call that the server has not looked at may be made twice: Allocate has
                # consequences.
                if not call.is_unseen or moves == MAX_MOVES:
                    raise inbox.error
            finally:
                timer.cancel()
                _leave(link, call)
            moves += 1

    async def stream(self, method: str, payload: bytes = b"") -> AsyncGenerator[bytes, None]:
        """Call and yield every answer; the call begins with the first, `aclose` cancels it."""
        link = await self._link_for_calls(self._loop.time() + MOVE_TIMEOUT)
        call, inbox = _start(link, method, payload, None, wants_messages=True)
        try:
            while True:
                while call.messages:
                    message = link.connection.take_message(call)
                    link.flush()
                    yield message
                if inbox.is_ended:
                    break
                await inbox.wait()
            if inbox.error is not None:
                raise inbox.error
        finally:
            _leave(link, call)

    async def _link_for_calls(self, deadline: float) -> _ClientLink:
        """Return the connection for new calls; without any, the old connection tells the reason."""
        if self._must_move():
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline), self._moving:
                    await self._move()
        return self._first if self.closed.is_set() else self._link

    def _must_move(self) -> bool:
        said_goodbye = self._first.connection.peer_said_goodbye
        return said_goodbye and self._link.connection.is_over and not self.closed.is_set()

    async def _move(self) -> None:
        # Another socket file is another server, which knows nothing of the calls that are open.
        if not self._must_move() or not self._is_same_server():
            return
        try:
            file = None if self._follow_links else self._identity
            limits = self._first.connection.limits
            link = await _open(self.path, file, limits, MOVE_TIMEOUT)
        except DialError:
            return
        # Looked at again after the await: the channel may be closed, or the socket be another's by
        # now.
        if self._must_move() and self._is_same_server():
            others = [each for each in self._first.successors if not each.lost.is_set()]
            self._first.successors = [*others, link]
            self._link = link
        else:
            link.abort()

    def _is_same_server(self) -> bool:
        return self._identity is not None and FileIdentity.of(self.path) == self._identity

    async def ping(self, *, timeout: float) -> None:
        """Ask for a sign of life; raises `RpcError`: UNAVAILABLE or DEADLINE_EXCEEDED."""
        link = self._first
        try:
            if not link.lost.is_set():
                pong: asyncio.Future[bool] = self._loop.create_future()
                link.pongs.append(pong)
                link.connection.ping()
                link.flush()
                async with asyncio.timeout(timeout):
                    if await pong:
                        return
            raise RpcError(StatusCode.UNAVAILABLE, link.reason)
        except TimeoutError:
            text = f"no answer to a ping within {timeout:g} s"
            raise RpcError(StatusCode.DEADLINE_EXCEEDED, text) from None

    async def close(self) -> None:
        """End every call with CANCELLED and the connection with it."""
        # Gives back the descriptor that holds the socket's inode.
        self._identity = self.server_file = None
        links = [*self._first.successors, self._first]
        for link in links:
            link.connection.go_away()
            link.connection.lose("the channel was closed", StatusCode.CANCELLED)
            link.dispatch()
            link.close()
        for link in links:
            await link.lost.wait()  # close() aborts what does not end by itself


def _start(
    link: _ClientLink, method: str, payload: bytes, deadline: float | None, *, wants_messages: bool
) -> tuple[Call, _Inbox]:
    call = link.connection.start_call(method, payload, deadline=deadline)
    inbox = call.owner = _Inbox(link.loop, wants_messages=wants_messages)
    link.flush()
    return call, inbox


def _expire(link: _ClientLink, call: Call, timeout: float) -> None:
    if not call.owner.is_ended:
        _leave(link, call)
        text = f"{call.method} did not answer within {timeout:g} s"
        call.owner.end(RpcError(StatusCode.DEADLINE_EXCEEDED, text))


def _leave(link: _ClientLink, call: Call) -> None:
    if not call.ended or call.messages:
        link.connection.cancel(call)
        link.flush()


def _only_message(link: _ClientLink, call: Call) -> bytes:
    if len(call.messages) != 1:
        text = f"{call.method} answered with {len(call.messages)} messages instead of one"
        raise RpcError(StatusCode.UNIMPLEMENTED, text)
    return link.connection.take_message(call)


async def _open(
    path: Path, file: FileIdentity | None, limits: Limits, timeout: float
) -> _ClientLink:
    """Connect, only to `file` if it is given, and wait for SETTINGS; raises `DialError`."""
    loop = asyncio.get_running_loop()
    connected = False
    try:
        async with asyncio.timeout(timeout):
            endpoint = await _connect(path, file)
            connected = True
            _, link = await loop.create_unix_connection(
                lambda: _ClientLink(ClientConnection(clock=loop.time, limits=limits)),
                sock=endpoint,
            )
            try:
                # The kernel connects to a queue that nobody accepts from; SETTINGS prove that a
                # server is there.
                is_ready = await link.ready
            except BaseException:
                link.abort()
                raise
    except TimeoutError:
        lack = "no HTTP/2 SETTINGS" if connected else "its queue is full, not accepted"
        raise DialError(str(path), f"{lack} within {timeout:g} s", errno.ETIMEDOUT) from None
    except OSError as error:  # on our side: no file is left to open, for example
        reason = (error.strerror or str(error)).lower()
        raise DialError(str(path), reason, error.errno or 0) from error
    if not is_ready:
        raise DialError(str(path), link.reason)
    return link


async def _connect(path: Path, file: FileIdentity | None) -> socket.socket:
    """Connect; wait while the server's queue is full, which asyncio takes for connected."""
    try:
        check_socket_path(path)
    except SocketPathTooLong as error:
        raise DialError(str(path), str(error)) from error
    if file is not None and not file.is_socket:
        raise DialError(str(path), "it is not a socket")
    place = str(path) if file is None else file.place
    endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        endpoint.setblocking(False)
        # Nothing reports room in the queue of a Unix socket: ask again.
        while (refusal := endpoint.connect_ex(place)) == errno.EAGAIN:  # noqa: ASYNC110
            await asyncio.sleep(CONNECT_RETRY)
        if refusal:
            raise DialError(str(path), os.strerror(refusal).lower(), refusal)
    except BaseException:
        endpoint.close()
        raise
    return endpoint
