"""The contract's limits: streams, message sizes, compression; against every other side."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from kubedevices.errors import RpcError, StatusCode
from tests.waiting import until
from tests.wire.behaviour import SERVICE, Behaviour
from tests.wire.conftest import dialled, started
from tests.wire.peer_clients import CLIENTS, GrpcioClient
from tests.wire.peer_servers import SERVERS, GrpcioServer, OurServer

ECHO = f"/{SERVICE}/Echo"


@pytest.mark.parametrize("client_kind", CLIENTS)
async def test_our_stream_limit_makes_clients_queue(short_dir: Path, client_kind: str) -> None:
    """Calls above our MAX_CONCURRENT_STREAMS wait at the client, and all are answered."""
    async with started(OurServer(Behaviour(), max_streams=3), short_dir) as server:
        client = await CLIENTS[client_kind].dial(short_dir / "s.sock")
        await client.unary("Echo", b"")  # grpclib and grpcio dial now, and learn our settings
        calls = [
            asyncio.create_task(client.unary("Hang", b"%d" % number), name=f"call {number}")
            for number in range(12)
        ]
        await until(lambda: server.behaviour.running == 3, what="three calls are in progress")
        server.behaviour.release.set()
        assert await asyncio.gather(*calls) == [b"%d" % number for number in range(12)]
        assert server.behaviour.most_running == 3
        await client.close()


@pytest.mark.parametrize("server_kind", ["ours", "grpcio", "go"])
async def test_we_queue_at_a_peers_stream_limit(short_dir: Path, server_kind: str) -> None:
    """Our own calls wait for a free stream, in their order, inside their deadlines."""
    options: dict[str, Any] = {
        "ours": {"max_streams": 2},
        "grpcio": {"max_concurrent_streams": 2},
        "go": {"max_streams": 2},
    }
    server = SERVERS[server_kind](Behaviour(), **options[server_kind])
    async with started(server, short_dir), dialled(short_dir) as channel:
        hang = f"/{SERVICE}/Hang"
        held = [
            asyncio.create_task(channel.unary(hang, b"", timeout=10), name=f"held {number}")
            for number in range(2)
        ]
        await until(lambda: server.behaviour.running == 2, what="both streams are taken")
        with pytest.raises(RpcError) as caught:
            await channel.unary(ECHO, b"", timeout=0.1)
        assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
        queued = [
            asyncio.create_task(channel.unary(ECHO, b"x", timeout=10), name=f"queued {number}")
            for number in range(8)
        ]
        queued[3].cancel()
        server.behaviour.release.set()
        await asyncio.gather(*held)
        answers = await asyncio.gather(*queued, return_exceptions=True)
        assert isinstance(answers.pop(3), asyncio.CancelledError)
        assert answers == [b"x"] * 7
        assert server.behaviour.most_running == 2


async def test_we_queue_at_grpclibs_stream_limit(short_dir: Path) -> None:
    """grpclib allows a hundred streams; the rest of ours wait."""
    server = SERVERS["grpclib"](Behaviour())
    async with started(server, short_dir), dialled(short_dir) as channel:
        calls = [
            asyncio.create_task(
                channel.unary(f"/{SERVICE}/Hang", b"", timeout=10), name=f"call {number}"
            )
            for number in range(130)
        ]
        await until(lambda: server.behaviour.running == 100, what="a hundred calls run")
        server.behaviour.release.set()
        await asyncio.gather(*calls)
        assert server.behaviour.most_running == 100


@pytest.mark.parametrize("client_kind", CLIENTS)
async def test_our_receive_limit(short_dir: Path, client_kind: str) -> None:
    """A request above the server's limit is RESOURCE_EXHAUSTED; one at the limit passes."""
    async with started(OurServer(Behaviour(), max_receive=50_000), short_dir):
        client = await CLIENTS[client_kind].dial(short_dir / "s.sock")
        assert await client.unary("Echo", bytes(50_000)) == bytes(50_000)
        with pytest.raises(RpcError, match="larger than max") as caught:
            await client.unary("Echo", bytes(50_001))
        assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
        assert await client.unary("Echo", b"on") == b"on"
        await client.close()


@pytest.mark.parametrize("server_kind", SERVERS)
async def test_our_channels_receive_limit(short_dir: Path, server_kind: str) -> None:
    """An answer above the channel's limit is RESOURCE_EXHAUSTED; the channel goes on."""
    server = SERVERS[server_kind](Behaviour())
    async with started(server, short_dir), dialled(short_dir, max_receive=50_000) as channel:
        big = f"/{SERVICE}/Big"
        assert len(await channel.unary(big, b"50000", timeout=10)) == 50_000
        with pytest.raises(RpcError, match="larger than max") as caught:
            await channel.unary(big, b"5000000", timeout=10)
        assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(RpcError, match="larger than max"):
            async for _ in channel.stream(f"/{SERVICE}/Flood", b"3"):
                pass
        assert await channel.unary(ECHO, b"on", timeout=10) == b"on"


async def test_compressed_request_is_refused(short_dir: Path) -> None:
    """A client that compresses gets UNIMPLEMENTED for the call; the connection goes on."""
    async with started(OurServer(Behaviour()), short_dir):
        client = GrpcioClient(short_dir / "s.sock")
        client.compression = grpc.Compression.Gzip
        with pytest.raises(RpcError, match="compressed") as caught:
            await client.unary("Echo", bytes(1000))
        assert caught.value.code is StatusCode.UNIMPLEMENTED
        client.compression = None
        assert await client.unary("Echo", b"on") == b"on"
        await client.close()


async def test_compressed_answer_is_refused(short_dir: Path) -> None:
    """A compressed answer is UNIMPLEMENTED: we never announced that we can read it."""
    server = GrpcioServer(Behaviour(), compression=grpc.Compression.Gzip)
    async with started(server, short_dir), dialled(short_dir) as channel:
        with pytest.raises(RpcError, match="compressed") as caught:
            await channel.unary(f"/{SERVICE}/Big", b"1000", timeout=10)
        assert caught.value.code is StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(("server_kind", "mebibytes"), [("ours", 64), ("grpcio", 16), ("go", 16)])
async def test_the_largest_answers(short_dir: Path, server_kind: str, mebibytes: int) -> None:
    """An answer of many times both windows, up to the channel's own limit, comes whole."""
    server = SERVERS[server_kind](Behaviour())
    size = mebibytes * 2**20
    async with started(server, short_dir), dialled(short_dir) as channel:
        answer = await channel.unary(f"/{SERVICE}/Big", b"%d" % size, timeout=60)
        assert len(answer) == size
        assert not answer.strip(b"\0")
