"""kubedevices.wire.server_load: what one peer may use of a server, tried with several peers."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from kubedevices.errors import RpcError, StatusCode
from kubedevices.wire import server_link, server_load
from kubedevices.wire.grpc_server import GrpcServer
from kubedevices.wire.peers import Peer
from kubedevices.wire.unix_grpc import GrpcChannel, StreamMethod, UnaryMethod
from tests.waiting import until
from tests.wire import frames
from tests.wire.by_hand import raw_client
from tests.wire.conftest import dialled, running
from tests.wire.echo_server import CALL, WATCH, echo, server_of, watch

HOSTILE, GOOD = Peer(0, 1), Peer(0, 2)


class Peers:
    """Says who connects: `next` is the peer of the next connections."""

    def __init__(self) -> None:
        self.next, self.seen = GOOD, 0

    def of(self, _socket: object) -> Peer:
        self.seen += 1
        return self.next


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Peers:
    found = Peers()
    monkeypatch.setattr(server_link, "peer_of", found.of)
    return found


def call(stream: int, path: str, sent: bytes = b"", *, end: bool = True) -> bytes:
    body = frames.data(stream, sent or frames.message(b""), end=end)
    return frames.headers(stream, frames.asking(path)) + body


async def opened(server: GrpcServer, count: int) -> None:
    await until(lambda: len(server.load.connections) == count, what="the connections")


async def test_streams_of_one_peer_do_not_lock_others_out(short_dir: Path, peers: Peers) -> None:
    """All connections of the server have an open stream: the newest caller gets in."""
    server = server_of({WATCH: StreamMethod(watch), CALL: UnaryMethod(echo)}, max_connections=20)
    async with (
        running(server, short_dir),
        contextlib.AsyncExitStack() as stack,
        asyncio.timeout(60),
    ):
        kubelet = await stack.enter_async_context(dialled(short_dir))
        stream = kubelet.stream(WATCH)
        await anext(stream)
        peers.next = HOSTILE
        for _ in range(60):
            _, writer = await stack.enter_async_context(raw_client(short_dir / "s.sock"))
            writer.write(frames.CLIENT_HELLO + call(1, WATCH))
        await until(lambda: peers.seen == 61 and len(server.load.streams) > 10)
        peers.next = GOOD
        async with dialled(short_dir) as again:
            assert await again.unary(CALL, b"x", timeout=30) == b"x"
        assert await kubelet.unary(CALL, b"y", timeout=30) == b"y"
        assert server.load.streams.count(GOOD) == 1
        await stream.aclose()


async def test_the_newest_stream_of_a_peer_gets_in(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its oldest stream ends with RESOURCE_EXHAUSTED."""
    monkeypatch.setattr(server_load, "STREAMS_OF_PEER", 2)
    server = server_of({WATCH: StreamMethod(watch)})
    await server.start(short_dir / "s.sock")
    async with dialled(short_dir) as channel:
        streams = [channel.stream(WATCH) for _ in range(3)]
        for each in streams:
            assert await anext(each) == b"first"
        with pytest.raises(RpcError, match="a newer stream") as caught:
            await anext(streams[0])
        assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
        assert len(server.load.streams) == 2
        for each in streams:
            await each.aclose()
    await until(lambda: not server.load.streams, what="their end")
    await server.stop()


async def test_open_calls_of_one_peer_are_limited(
    short_dir: Path, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On all its connections together; another peer is served."""
    monkeypatch.setattr(server_load, "CALLS_OF_PEER", 6)
    server = server_of({CALL: UnaryMethod(echo)})
    await server.start(short_dir / "s.sock")
    begun = b"".join(call(stream, CALL, b"\0", end=False) for stream in (1, 3, 5, 7))
    peers.next = HOSTILE
    async with (
        raw_client(short_dir / "s.sock") as (_, first),
        raw_client(short_dir / "s.sock") as (answers, second),
        asyncio.timeout(30),
    ):
        first.write(frames.CLIENT_HELLO + begun)
        await until(lambda: server.load.calls[HOSTILE.key] == 4)
        second.write(frames.CLIENT_HELLO + begun)
        await answers.readuntil(b"grpc-status\x018")
        assert server.load.calls[HOSTILE.key] == 6
        peers.next = GOOD
        async with dialled(short_dir) as good:
            assert await good.unary(CALL, b"x", timeout=30) == b"x"
    await until(lambda: not server.load.calls, what="the end of the calls")
    await server.stop()


async def test_unfinished_messages_share_one_budget(
    short_dir: Path, peers: Peers, caplog: pytest.LogCaptureFixture
) -> None:
    """The peer that holds most loses its connection; the others go on."""
    server = server_of({CALL: UnaryMethod(echo)}, max_receive=60_000, max_held=260_000)
    await server.start(short_dir / "s.sock")
    peers.next = HOSTILE
    half = b"\0" + (50_000).to_bytes(4, "big") + bytes(45_000)
    most = 0
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(60):
        peers.next = GOOD
        good = await stack.enter_async_context(dialled(short_dir))
        peers.next = HOSTILE
        for number in range(24):
            _, writer = await stack.enter_async_context(raw_client(short_dir / "s.sock"))
            writer.write(frames.CLIENT_HELLO + call(1, CALL, half, end=False))
            await until(
                lambda: server.load.bytes.held > 40_000 * min(number, 9),  # noqa: B023
                what="the bytes arrived",
            )
            most = max(most, server.load.bytes.held)
            assert await good.unary(CALL, b"x" * 50_000, timeout=30) == b"x" * 50_000
    assert 260_000 < most <= 260_000 + 4 * 60_000
    assert "bytes of unfinished messages" in caplog.text
    await until(lambda: not server.load.connections)
    assert server.load.bytes.held == 0
    await server.stop()


async def test_a_flood_of_one_process_has_one_budget(short_dir: Path, peers: Peers) -> None:
    """After a flood its next connection ends, too; another process is served."""
    peers.next = HOSTILE
    ping = frames.raw(frames.PING, 0, 0, bytes(8))
    async with running(server_of({CALL: UnaryMethod(echo)}), short_dir):
        for pings in (12_000, 6000, 6000):
            async with raw_client(short_dir / "s.sock") as (reader, writer), asyncio.timeout(30):
                with contextlib.suppress(ConnectionError):
                    writer.write(frames.CLIENT_HELLO + ping * pings)
                    assert b"flood" in await reader.read()
        peers.next = GOOD
        async with dialled(short_dir) as good:
            assert await good.unary(CALL, b"x", timeout=30) == b"x"


async def test_a_flood_of_one_socket_does_not_silence_the_other(
    short_dir: Path, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All servers of a process share its descriptors: the fullest server makes room."""
    monkeypatch.setattr(server_load, "most_connections", lambda: 12)
    first, second = server_of({CALL: UnaryMethod(echo)}), server_of({CALL: UnaryMethod(echo)})
    await first.start(short_dir / "s.sock")
    await second.start(short_dir / "t.sock")
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(60):
        peers.next = HOSTILE
        for _ in range(40):
            await stack.enter_async_context(raw_client(short_dir / "s.sock"))
        await until(lambda: peers.seen == 40)
        await opened(first, 12)
        peers.next = GOOD
        channel = await GrpcChannel.dial(short_dir / "t.sock")
        async with channel:
            assert await channel.unary(CALL, b"x", timeout=30) == b"x"
        assert len(first.load.connections) == 11
    await first.stop()
    await second.stop()


async def test_the_favoured_peer_is_no_victim(short_dir: Path, peers: Peers) -> None:
    """Many processes with a connection each do not push out the kubelet."""
    server = server_of({WATCH: StreamMethod(watch), CALL: UnaryMethod(echo)}, max_connections=4)
    server.favour(GOOD)
    async with (
        running(server, short_dir),
        dialled(short_dir) as kubelet,
        contextlib.AsyncExitStack() as stack,
    ):
        stream = kubelet.stream(WATCH)
        await anext(stream)
        for number in range(20):
            await until(lambda: peers.seen == 1 + number)  # noqa: B023
            peers.next = Peer(0, 100 + number)
            _, writer = await stack.enter_async_context(raw_client(short_dir / "s.sock"))
            writer.write(frames.CLIENT_HELLO + call(1, WATCH))
        await until(lambda: peers.seen == 21 and len(server.load.streams) == 4)
        peers.next = GOOD
        async with dialled(short_dir) as again:
            assert await again.unary(CALL, b"x", timeout=30) == b"x"
        assert server.load.streams.count(GOOD) == 1
        await stream.aclose()
