"""The calling end over a Unix socket: `GrpcChannel`, one connection, any number of calls."""

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import AsyncGenerator
from pathlib import Path
from types import TracebackType
from typing import Self

from kubedevices.errors import DialError, RpcError, SocketPathTooLong, StatusCode
from kubedevices.socket_paths import check_socket_path
from kubedevices.wire.client_connection import ClientConnection
from kubedevices.wire.grpc_events import (
    Call,
    CallEnded,
    CallRefused,
    Event,
    Limits,
    MessageReceived,
    PeerReady,
    PongReceived,
)
from kubedevices.wire.grpc_link import GrpcLink

MAX_RECEIVE = 64 * 2**20
"""Sixteen times a kubelet's limit, which kills plugins with many devices."""

CONNECT_RETRY = 0.005


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

    def on_lost(self) -> None:
        self._answer([self.ready, *self.pongs], False)

    def _answer(self, questions: list[asyncio.Future[bool]], answer: bool) -> None:
        for question in questions:
            if not question.done():
                question.set_result(answer)


class GrpcChannel:
    """A dialled connection to a server; when it is lost it stays lost, dial again."""

    def __init__(self, path: Path, link: _ClientLink) -> None:
        self.path = path
        self.closed = link.lost
        self._link = link
        self._connection = link.connection
        self._loop = link.loop

    def __repr__(self) -> str:
        state = "closed" if self.closed.is_set() else "open"
        return f"<GrpcChannel {self.path} {state} calls={self._connection.open_calls}>"

    @classmethod
    async def dial(
        cls, path: Path, *, timeout: float = 10, max_receive: int = MAX_RECEIVE
    ) -> "GrpcChannel":
        """Connect and wait for the server's SETTINGS: a full queue accepts connections too.

        Raises `DialError` for whatever is in the way.
        """
        loop = asyncio.get_running_loop()
        limits = Limits(
            max_receive=max_receive,
            max_streams=0,
            stream_window=2**20,
            connection_window=2**23,
            max_buffered=2 * max_receive + 2**24,
        )
        connected = False
        try:
            async with asyncio.timeout(timeout):
                endpoint = await _connect(path)
                connected = True
                _, link = await loop.create_unix_connection(
                    lambda: _ClientLink(ClientConnection(clock=loop.time, limits=limits)),
                    sock=endpoint,
                )
                try:
                    is_ready = await link.ready
                except BaseException:
                    link.abort()
                    raise
        except TimeoutError:
            lack = "no HTTP/2 SETTINGS" if connected else "its queue is full, not accepted"
            raise DialError(str(path), f"{lack} within {timeout:g} s") from None
        if not is_ready:
            raise DialError(str(path), link.reason)
        return cls(path, link)

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
        call, inbox = self._start(method, payload, deadline, wants_messages=False)
        timer = self._loop.call_at(deadline, self._expire, call, timeout)
        try:
            if not inbox.is_ended:
                await inbox.wait()
            if inbox.error is not None:
                raise inbox.error
            if len(call.messages) != 1:
                text = f"{method} answered with {len(call.messages)} messages instead of one"
                raise RpcError(StatusCode.UNIMPLEMENTED, text)
            return self._connection.take_message(call)
        finally:
            timer.cancel()
            self._leave(call)

    async def stream(self, method: str, payload: bytes = b"") -> AsyncGenerator[bytes, None]:
        """Call and yield every answer; the call begins with the first, `aclose` cancels it."""
        call, inbox = self._start(method, payload, None, wants_messages=True)
        try:
            while True:
                while call.messages:
                    message = self._connection.take_message(call)
                    self._link.flush()
                    yield message
                if inbox.is_ended:
                    break
                await inbox.wait()
            if inbox.error is not None:
                raise inbox.error
        finally:
            self._leave(call)

    async def ping(self, *, timeout: float) -> None:
        """Ask for a sign of life; raises `RpcError`: UNAVAILABLE or DEADLINE_EXCEEDED."""
        try:
            if not self.closed.is_set():
                pong: asyncio.Future[bool] = self._loop.create_future()
                self._link.pongs.append(pong)
                self._connection.ping()
                self._link.flush()
                async with asyncio.timeout(timeout):
                    if await pong:
                        return
            raise RpcError(StatusCode.UNAVAILABLE, self._link.reason)
        except TimeoutError:
            text = f"no answer to a ping within {timeout:g} s"
            raise RpcError(StatusCode.DEADLINE_EXCEEDED, text) from None

    async def close(self) -> None:
        """End every call with CANCELLED and the connection with it."""
        self._connection.go_away()
        self._connection.lose("the channel was closed", StatusCode.CANCELLED)
        self._link.dispatch()
        self._link.close()
        await self._link.lost.wait()  # close() aborts what does not end by itself

    def _start(
        self, method: str, payload: bytes, deadline: float | None, *, wants_messages: bool
    ) -> tuple[Call, _Inbox]:
        call = self._connection.start_call(method, payload, deadline=deadline)
        inbox = call.owner = _Inbox(self._loop, wants_messages=wants_messages)
        self._link.flush()
        return call, inbox

    def _expire(self, call: Call, timeout: float) -> None:
        if not call.owner.is_ended:
            self._leave(call)
            text = f"{call.method} did not answer within {timeout:g} s"
            call.owner.end(RpcError(StatusCode.DEADLINE_EXCEEDED, text))

    def _leave(self, call: Call) -> None:
        self._connection.cancel(call)
        self._link.flush()


async def _connect(path: Path) -> socket.socket:
    """Connect; wait while the server's queue is full, which asyncio takes for connected."""
    try:
        check_socket_path(path)
    except SocketPathTooLong as error:
        raise DialError(str(path), str(error)) from error
    endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        endpoint.setblocking(False)
        # Nothing reports room in the queue of a Unix socket: ask again.
        while (refusal := endpoint.connect_ex(str(path))) == errno.EAGAIN:  # noqa: ASYNC110
            await asyncio.sleep(CONNECT_RETRY)
        if refusal:
            raise DialError(str(path), os.strerror(refusal).lower(), refusal)
    except BaseException:
        endpoint.close()
        raise
    return endpoint
