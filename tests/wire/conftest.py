"""Pairs of a client and a server of which at least one is ours."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kubedevices.wire.unix_grpc import GrpcChannel, GrpcServer, StreamMethod, UnaryMethod
from tests.interop import go_peer
from tests.wire.behaviour import Behaviour
from tests.wire.echo_server import CALL, WATCH, echo, server_of, watch
from tests.wire.peer_clients import CLIENTS, PeerClient
from tests.wire.peer_servers import SERVERS, PeerServer

PAIRS = [
    ("ours", "ours"),
    ("grpcio", "ours"),
    ("grpclib", "ours"),
    ("go", "ours"),
    ("ours", "grpcio"),
    ("ours", "grpclib"),
    ("ours", "go"),
]


@pytest.fixture(autouse=True)
def _peer_is_built(request: pytest.FixtureRequest) -> None:
    """Skip a test with a Go peer, if there is none, before anything of it has started."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and any(
        "go" in (value if isinstance(value, tuple) else (value,))
        for value in callspec.params.values()
    ):
        go_peer.binary()


class Pair(NamedTuple):
    """A client connected to a server."""

    client: PeerClient
    server: PeerServer
    behaviour: Behaviour
    path: Path
    client_kind: str
    server_kind: str


@pytest.fixture(params=PAIRS, ids=[f"{client}-to-{server}" for client, server in PAIRS])
async def pair(request: pytest.FixtureRequest, short_dir: Path) -> AsyncIterator[Pair]:
    """Give each pair in turn, and end it within a few seconds whatever the test did."""
    client_kind, server_kind = request.param
    path = short_dir / "s.sock"
    behaviour = Behaviour()
    server = SERVERS[server_kind](behaviour)
    await server.start(path)
    client = await CLIENTS[client_kind].dial(path)
    try:
        yield Pair(client, server, behaviour, path, client_kind, server_kind)
    finally:
        behaviour.release.set()
        async with asyncio.timeout(10):
            await client.close()
            await server.stop()


@asynccontextmanager
async def started(server: PeerServer, directory: Path) -> AsyncIterator[PeerServer]:
    """Run `server` on `s.sock` in `directory`."""
    await server.start(directory / "s.sock")
    try:
        yield server
    finally:
        server.behaviour.release.set()
        async with asyncio.timeout(10):
            await server.stop()


@asynccontextmanager
async def dialled(directory: Path, **options: Any) -> AsyncIterator[GrpcChannel]:
    """Dial `s.sock` in `directory`."""
    async with await GrpcChannel.dial(directory / "s.sock", **options) as channel:
        yield channel


@asynccontextmanager
async def running(server: GrpcServer, directory: Path) -> AsyncIterator[None]:
    """Run `server` on `s.sock` in `directory`."""
    await server.start(directory / "s.sock")
    try:
        yield
    finally:
        await server.stop()


@pytest.fixture
async def server(short_dir: Path) -> AsyncIterator[GrpcServer]:
    """Give a server with one method of each kind."""
    server = server_of({CALL: UnaryMethod(echo), WATCH: StreamMethod(watch)})
    async with running(server, short_dir):
        yield server
