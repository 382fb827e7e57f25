"""Our channel: dialling what is there and what is not, calls at their edges."""

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from kubedevices.errors import DialError, RpcError, StatusCode
from kubedevices.wire import grpc_channel
from kubedevices.wire.grpc_events import CallEnded, Event
from kubedevices.wire.unix_grpc import GrpcChannel, GrpcServer, Methods, StreamMethod, UnaryMethod
from tests.waiting import until
from tests.wire import frames
from tests.wire.by_hand import raw_server
from tests.wire.conftest import dialled

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
CALL = "/t.T/Call"
COUNT = "/t.T/Count"


class Counted:
    """Handlers that count their calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.release = asyncio.Event()

    async def call(self, payload: bytes) -> bytes:
        self.calls += 1
        if payload == b"wait":
            await self.release.wait()
        return payload

    async def count(self, payload: bytes) -> AsyncIterator[bytes]:
        self.calls += 1
        for number in range(int(payload)):
            yield b"%d" % number


@pytest.fixture
async def counted(short_dir: Path) -> AsyncIterator[Counted]:
    """Give the handlers of a server on `s.sock`."""
    handlers = Counted()
    methods: Methods = {CALL: UnaryMethod(handlers.call), COUNT: StreamMethod(handlers.count)}
    server = GrpcServer(methods, name="t")
    await server.start(short_dir / "s.sock")
    yield handlers
    handlers.release.set()
    await server.stop()


# ---------------------------------------------------------------- dialling


async def test_a_missing_socket_is_an_error_with_its_path(short_dir: Path) -> None:
    """A missing file is reported at once, with its path."""
    path = short_dir / "s.sock"
    with pytest.raises(DialError, match=f"cannot connect to {path}: no such file") as caught:
        await GrpcChannel.dial(path)
    assert (caught.value.path, caught.value.exit_code) == (str(path), 3)


async def test_a_stale_socket_refuses_at_once(short_dir: Path) -> None:
    """A stale file refuses at once."""
    path = short_dir / "s.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(DialError, match="connection refused"):
        await GrpcChannel.dial(path)


async def test_dial_without_a_free_descriptor_fails(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error on our side is a `DialError` too: the caller dials again later."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket, "socket", refuse)
    with pytest.raises(DialError, match="too many open files") as caught:
        await GrpcChannel.dial(short_dir / "s.sock")
    assert caught.value.errno == errno.EMFILE


async def test_path_too_long(short_dir: Path) -> None:
    """A path that no socket can have is a `DialError` like every other."""
    with pytest.raises(DialError, match="Linux allows 107"):
        await GrpcChannel.dial(short_dir / ("x" * 108))


@pytest.mark.parametrize("backlog", [0, 5])
async def test_a_full_accept_queue_is_a_failed_dial(short_dir: Path, backlog: int) -> None:
    """A queue accepts connections until it is full, without a server: both cases fail the dial."""
    path = short_dir / "s.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(backlog)
        reasons = []
        for _ in range(3):
            with pytest.raises(DialError, match=r"within 0\.05 s") as caught:
                await GrpcChannel.dial(path, timeout=0.05)
            reasons.append(caught.value.reason)
    assert "SETTINGS" in reasons[0]
    assert ("not accepted" in reasons[-1]) is (backlog == 0)


async def test_queue_that_becomes_free(short_dir: Path) -> None:
    """A full queue is waited for within the timeout."""
    path = short_dir / "s.sock"
    server = GrpcServer({}, name="t")
    waiting = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        for _ in range(2):
            client = socket.socket(socket.AF_UNIX)
            client.setblocking(False)
            client.connect_ex(str(path))
            waiting.append(client)
        dialling = asyncio.create_task(GrpcChannel.dial(path), name="dial")
        await asyncio.sleep(0)
        path.unlink()
        await server.start(path)
        channel = await dialling
        assert not channel.closed.is_set()
        await channel.close()
    for client in waiting:
        client.close()
    await server.stop()


def saying(*said: bytes) -> Talk:
    """Say `said` to everyone, and leave."""

    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for each in said:
            writer.write(each)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    return talk


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], "does not speak HTTP/2"),
        ([b"\x15\x03\x01\x00\x02\x02\x28 TLS"], "does not speak HTTP/2"),
        ([], "the connection was lost"),
        ([b"\0\0\0"], "the connection was lost"),
    ],
)
async def test_dial_to_a_server_without_grpc_fails(
    short_dir: Path, said: list[bytes], reason: str
) -> None:
    """A peer that does not answer with SETTINGS is refused, with a reason."""
    async with raw_server(short_dir / "s.sock", saying(*said)):
        with pytest.raises(DialError, match=reason):
            await GrpcChannel.dial(short_dir / "s.sock")


async def test_dial_that_is_cancelled(short_dir: Path) -> None:
    """A cancelled dial leaves no connection behind."""
    path = short_dir / "s.sock"
    gone = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            pass
        gone.set()

    async with raw_server(path, wait):
        dialling = asyncio.create_task(GrpcChannel.dial(path), name="dial")
        await asyncio.sleep(0.02)
        dialling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialling
        async with asyncio.timeout(5):
            await gone.wait()


async def test_server_that_breaks_off(short_dir: Path) -> None:
    """A connection that breaks between SETTINGS and the answer is UNAVAILABLE with the reason."""
    broken = frames.SERVER_HELLO + frames.raw(frames.PING, 0, 0, b"short")
    async with raw_server(short_dir / "s.sock", saying(frames.SERVER_HELLO)):
        channel = await GrpcChannel.dial(short_dir / "s.sock")
        with pytest.raises(RpcError) as caught:
            await channel.unary(CALL, b"", timeout=5)
        assert caught.value.code is StatusCode.UNAVAILABLE
        assert channel.closed.is_set()
        await channel.close()
    async with raw_server(short_dir / "t.sock", saying(broken)):
        channel = await GrpcChannel.dial(short_dir / "t.sock")
        with pytest.raises(RpcError, match="broke the protocol"):
            await channel.unary(CALL, b"", timeout=5)
        await channel.close()


# ---------------------------------------------------------------- calls


@pytest.mark.parametrize("count", [0, 2])
async def test_unary_answered_with_a_stream(counted: Counted, short_dir: Path, count: int) -> None:
    """A unary call needs exactly one message."""
    async with dialled(short_dir) as channel:
        with pytest.raises(RpcError, match=f"{count} messages instead of one") as caught:
            await channel.unary(COUNT, b"%d" % count, timeout=5)
        assert caught.value.code is StatusCode.UNIMPLEMENTED
        assert await channel.unary(COUNT, b"1", timeout=5) == b"0"


async def test_stream_begins_with_its_first_message(counted: Counted, short_dir: Path) -> None:
    """A stream that was never read has started no call and can be closed."""
    async with dialled(short_dir) as channel:
        unread = channel.stream(COUNT, b"3")
        await channel.unary(CALL, b"", timeout=5)
        assert counted.calls == 1
        await unread.aclose()


async def test_a_deadline_of_zero(counted: Counted, short_dir: Path) -> None:
    """A timeout that has passed already ends the call, whatever the server does."""
    async with dialled(short_dir) as channel:
        for timeout in (0, -1, 1e-9):
            with pytest.raises(RpcError, match="did not answer within") as caught:
                await channel.unary(CALL, b"wait", timeout=timeout)
            assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
        assert await channel.unary(CALL, b"on", timeout=5) == b"on"


async def test_answer_and_deadline_at_once(counted: Counted, short_dir: Path) -> None:
    """An answer that came in time counts, even if the deadline passes before it is handled."""
    async with dialled(short_dir) as channel:
        act = channel._newest_link.on_event
        ended = []

        def expire_at_the_end(event: Event) -> None:
            act(event)
            if isinstance(event, CallEnded):
                grpc_channel._expire(channel._newest_link, event.call, 5)
                ended.append(event.call)

        channel._newest_link.on_event = expire_at_the_end  # type: ignore[method-assign]
        assert await channel.unary(CALL, b"answer", timeout=5) == b"answer"
        assert len(ended) == 1


async def test_a_connection_without_stream_numbers_fails_calls(
    counted: Counted, short_dir: Path
) -> None:
    """When the connection has no stream numbers left, calls and streams say so at once."""
    async with dialled(short_dir) as channel:
        channel._newest_link.connection._next_id = 2**31 + 1
        with pytest.raises(RpcError, match="no stream numbers left"):
            await channel.unary(CALL, b"", timeout=60)
        with pytest.raises(RpcError, match="no stream numbers left"):
            await anext(channel.stream(COUNT, b"1"))


async def test_refused_call_is_opened_again(short_dir: Path) -> None:
    """A call that the server refused is opened again shortly after."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frames.SERVER_HELLO)
        await reader.readuntil(frames.message(b"question"))
        writer.write(frames.raw(frames.RST_STREAM, 0, 1, (7).to_bytes(4, "big")))
        await reader.readuntil(frames.message(b"question"))
        body = frames.headers(3, frames.RESPONSE) + frames.data(3, frames.message(b"answer"))
        writer.write(body + frames.headers(3, frames.OK, frames.END_HEADERS | frames.END_STREAM))
        await asyncio.Event().wait()

    async with raw_server(short_dir / "s.sock", talk), dialled(short_dir) as channel:
        assert await channel.unary(CALL, b"question", timeout=5) == b"answer"


async def test_answers_are_read_after_a_failed_write(short_dir: Path) -> None:
    """Answers that came before the end of the connection count, even if a write fails first."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_dir / "s.sock"))
        listener.listen()
        listener.setblocking(False)
        dialling = asyncio.create_task(GrpcChannel.dial(short_dir / "s.sock"), name="dial")
        server, _ = await loop.sock_accept(listener)
    with server:
        server.sendall(frames.SERVER_HELLO)
        channel = await dialling
        first = asyncio.create_task(channel.unary(CALL, b"first", timeout=5), name="first")
        await asyncio.sleep(0)
        body = frames.headers(1, frames.RESPONSE) + frames.data(1, frames.message(b"answer"))
        end = frames.headers(1, frames.OK, frames.END_HEADERS | frames.END_STREAM)
        goodbye = frames.raw(frames.GOAWAY, 0, 0, (1).to_bytes(4, "big") + bytes(4) + b"bye")
        server.sendall(body + end + goodbye)
    second = asyncio.create_task(channel.unary(CALL, b"second", timeout=5), name="second")
    assert await first == b"answer"
    with pytest.raises(RpcError, match="going away: bye"):
        await second
    assert channel.closed.is_set()


async def test_pings_are_answered_in_their_order(short_dir: Path) -> None:
    """An answer counts for the oldest ping only."""
    answer_one = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frames.SERVER_HELLO)
        await answer_one.wait()
        await reader.readuntil(b"kubedevs")
        writer.write(frames.raw(frames.PING, frames.ACK, 0, b"kubedevs"))
        await asyncio.Event().wait()

    async with raw_server(short_dir / "s.sock", talk), dialled(short_dir) as channel:
        first = asyncio.create_task(channel.ping(timeout=5), name="first ping")
        second = asyncio.create_task(channel.ping(timeout=0.3), name="second ping")
        answer_one.set()
        await first
        with pytest.raises(RpcError, match="no answer to a ping"):
            await second


async def test_close_is_final(counted: Counted, short_dir: Path) -> None:
    """Calls on a closed channel fail with a reason, and it may be closed again."""
    channel = await GrpcChannel.dial(short_dir / "s.sock")
    assert "open" in repr(channel)
    messages = channel.stream(COUNT, b"1000000")
    await anext(messages)
    await channel.close()
    await channel.close()
    assert "closed" in repr(channel)
    with pytest.raises(RpcError) as caught:
        await _drain(messages)
    assert caught.value.code is StatusCode.CANCELLED
    for call in (channel.unary(CALL, b"", timeout=5), anext(channel.stream(CALL))):
        with pytest.raises(RpcError, match="closed") as caught:
            await call
        assert caught.value.code is StatusCode.UNAVAILABLE
    with pytest.raises(RpcError) as caught:
        await channel.ping(timeout=5)
    assert caught.value.code is StatusCode.UNAVAILABLE


async def _drain(messages: AsyncIterator[bytes]) -> None:
    async for _ in messages:
        pass


async def test_close_with_a_full_socket(short_dir: Path) -> None:
    """A channel with megabytes of unsent data closes, even if the server reads nothing."""
    path = short_dir / "s.sock"
    hello = frames.SERVER_HELLO + frames.settings((4, 2**31 - 1))

    async def never_read(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(hello + frames.raw(frames.WINDOW_UPDATE, 0, 0, (2**30).to_bytes(4, "big")))
        await asyncio.Event().wait()

    async with raw_server(path, never_read):
        channel = await GrpcChannel.dial(path)
        call = asyncio.create_task(channel.unary(CALL, bytes(10**7), timeout=60), name="call")
        transport = channel._newest_link._transport
        assert transport is not None
        await until(transport.get_write_buffer_size, what="the socket is full")
        assert transport.get_write_buffer_size() < 10**6
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await channel.close()
        assert loop.time() - begun < 10
        with pytest.raises(RpcError, match="closed"):
            await call
