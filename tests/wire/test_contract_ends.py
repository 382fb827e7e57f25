"""The contract's ends: a side that stops, goes away, dies or freezes; against every other side."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from kubedevices.errors import DialError, RpcError, StatusCode
from kubedevices.wire.unix_grpc import GrpcChannel
from tests.interop import go_peer
from tests.waiting import until
from tests.wire.behaviour import SERVICE, Behaviour
from tests.wire.conftest import Pair, started
from tests.wire.peer_clients import CLIENTS, OurClient
from tests.wire.peer_servers import SERVERS, OurServer

ECHO = f"/{SERVICE}/Echo"
WATCH = f"/{SERVICE}/Watch"
OUR_CLIENT = pytest.mark.parametrize(
    "pair", [("ours", kind) for kind in SERVERS], indirect=True, ids=list(SERVERS)
)
GONE = {StatusCode.UNAVAILABLE, StatusCode.CANCELLED, StatusCode.UNKNOWN}


@asynccontextmanager
async def process(module: str, kind: str, path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a peer in a process of its own that is ready."""
    command = [sys.executable, "-m", f"tests.wire.{module}", kind, str(path)]
    if kind == "go":
        mode = {"serve_peer": "echo", "call_peer": "watch"}[module]
        command = [str(go_peer.binary()), mode, str(path), WATCH]
    child = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        assert child.stdout is not None
        async with asyncio.timeout(20):
            assert await child.stdout.readline() == b"ready\n"
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


@pytest.mark.parametrize("kind", SERVERS)
async def test_server_dies(short_dir: Path, kind: str) -> None:
    """When the server's process is killed, streams and calls end with UNAVAILABLE at once."""
    path = short_dir / "s.sock"
    async with process("serve_peer", kind, path) as server:
        channel = await GrpcChannel.dial(path)
        async with aclosing(channel.stream(WATCH, b"x")) as messages:
            await anext(messages)
            server.kill()
            with pytest.raises(RpcError) as caught:
                async with asyncio.timeout(5):
                    await anext(messages)
        assert caught.value.code is StatusCode.UNAVAILABLE
        assert channel.closed.is_set()
        with pytest.raises(RpcError) as caught:
            await channel.unary(ECHO, b"", timeout=5)
        assert caught.value.code is StatusCode.UNAVAILABLE
        await channel.close()
        await server.wait()
        with pytest.raises(DialError, match="connection refused"):
            await GrpcChannel.dial(path)


@pytest.mark.parametrize("kind", SERVERS)
async def test_server_freezes(short_dir: Path, kind: str) -> None:
    """With a frozen server, calls, pings and dials end at their timeouts, and a close at once."""
    path = short_dir / "s.sock"
    loop = asyncio.get_running_loop()
    async with process("serve_peer", kind, path) as server:
        channel = await GrpcChannel.dial(path)
        await channel.ping(timeout=5)
        server.send_signal(signal.SIGSTOP)
        with pytest.raises(RpcError) as caught:
            await channel.unary(ECHO, bytes(3_000_000), timeout=0.1)
        assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
        with pytest.raises(RpcError, match="ping") as caught:
            await channel.ping(timeout=0.1)
        assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
        with pytest.raises(DialError, match="no HTTP/2 SETTINGS within"):
            await GrpcChannel.dial(path, timeout=0.1)
        begun = loop.time()
        await channel.close()
        assert loop.time() - begun < 10


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
async def test_client_dies_or_freezes(short_dir: Path, kind: str, end: signal.Signals) -> None:
    """A dead client's handler is cancelled soon, a frozen one's as soon as we stop."""
    server = OurServer(Behaviour())
    async with (
        started(server, short_dir),
        process("call_peer", kind, short_dir / "s.sock") as client,
    ):
        assert server.behaviour.running == 1
        client.send_signal(end)
        if end is signal.SIGSTOP:
            await server.stop()
        await until(lambda: server.behaviour.cancelled == 1, 10, "the handler is cancelled")


@pytest.mark.parametrize("kind", CLIENTS)
async def test_our_server_stops(short_dir: Path, kind: str) -> None:
    """Within 100 ms of stop() every stream has ended and new calls fail."""
    # The best of three: a busy machine may take a break of 100 ms.
    assert min([await _seconds_to_stop(short_dir / "s.sock", kind) for _ in range(3)]) < 0.1


async def _seconds_to_stop(path: Path, kind: str) -> float:
    loop = asyncio.get_running_loop()
    server = OurServer(Behaviour())
    await server.start(path)
    clients = [await CLIENTS[kind].dial(path) for _ in range(3)]
    streams = [client.stream("Watch", b"x") for client in clients]
    for stream in streams:
        await anext(stream)
    begun = loop.time()
    await server.stop()
    stopped = loop.time() - begun
    assert server.behaviour.cancelled == 3
    assert not path.exists()
    for stream in streams:
        with pytest.raises(RpcError) as caught:
            await anext(stream)
        assert caught.value.code in GONE
    with pytest.raises(RpcError) as caught:
        await clients[0].unary("Echo", b"", timeout=5)
    assert caught.value.code in GONE
    for client in clients:
        await client.close()
    return stopped


@pytest.mark.parametrize("kind", CLIENTS)
async def test_our_server_stops_with_grace(short_dir: Path, kind: str) -> None:
    """During the grace period a call in progress is still answered; then stop() returns early."""
    loop = asyncio.get_running_loop()
    path = short_dir / "s.sock"
    server = OurServer(Behaviour())
    await server.start(path)
    client = await CLIENTS[kind].dial(path)
    call = asyncio.create_task(client.unary("Hang", b"late"), name="call in progress")
    await until(lambda: server.behaviour.running == 1, what="the call is in progress")
    begun = loop.time()
    stopping = asyncio.create_task(server.stop(20), name="stop")
    await until(lambda: not path.exists(), what="the socket is gone")
    server.behaviour.release.set()
    assert await call == b"late"
    await stopping
    assert loop.time() - begun < 10  # and not the 20 of the grace period
    await client.close()


@pytest.mark.parametrize("kind", ["ours", "grpcio", "go"])
async def test_peer_sends_goaway(short_dir: Path, kind: str) -> None:
    """After a server's GOAWAY our open call is still answered, new ones are UNAVAILABLE."""
    server = SERVERS[kind](Behaviour())
    async with started(server, short_dir):
        channel = await GrpcChannel.dial(short_dir / "s.sock")
        call = asyncio.create_task(
            channel.unary(f"/{SERVICE}/Hang", b"late", timeout=10), name="call in progress"
        )
        await until(lambda: server.behaviour.running == 1, what="the call is in progress")
        stopping = asyncio.create_task(server.stop(10), name="stop")
        await _until_unavailable(channel)
        server.behaviour.release.set()
        assert await call == b"late"
        await stopping
        async with asyncio.timeout(5):
            await channel.closed.wait()
        await channel.close()


async def _until_unavailable(channel: GrpcChannel) -> None:
    async with asyncio.timeout(5):
        while True:
            try:
                await channel.unary(ECHO, b"", timeout=1)
            except RpcError as error:
                if error.code is StatusCode.UNAVAILABLE:
                    return


@OUR_CLIENT
async def test_our_client_closes(pair: Pair) -> None:
    """Closing our channel ends its calls with CANCELLED here and cancels their handlers there."""
    assert isinstance(pair.client, OurClient)
    call = asyncio.create_task(pair.client.unary("Hang", b""), name="call in progress")
    await until(lambda: pair.behaviour.running == 1, what="the call is in progress")
    await pair.client.close()
    with pytest.raises(RpcError, match="closed") as caught:
        await call
    assert caught.value.code is StatusCode.CANCELLED
    await until(lambda: pair.behaviour.cancelled == 1, what="the handler is cancelled")
    with pytest.raises(RpcError) as caught:
        await pair.client.unary("Echo", b"")
    assert caught.value.code is StatusCode.UNAVAILABLE


@OUR_CLIENT
async def test_ping(pair: Pair) -> None:
    """A ping is answered, before, between and after calls, with none open."""
    assert isinstance(pair.client, OurClient)
    await pair.client.channel.ping(timeout=5)
    await pair.client.unary("Echo", b"")
    await asyncio.gather(*(pair.client.channel.ping(timeout=5) for _ in range(3)))
