"""kubedevices.wire.byte_budget, and channels that share a budget."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubedevices.errors import RpcError, StatusCode
from kubedevices.wire.byte_budget import ByteBudget
from kubedevices.wire.peers import Peer
from kubedevices.wire.unix_grpc import GrpcChannel, StreamMethod
from tests.waiting import until
from tests.wire.echo_server import WATCH, server_of


class Holder:
    """A connection that holds some bytes."""

    def __init__(self, process: int) -> None:
        self.peer, self.held, self.reason = Peer(0, process), 0, ""

    def end(self, reason: str) -> None:
        self.reason = reason


def test_the_largest_connection_of_the_peer_with_most_ends() -> None:
    """Not the connection that exceeds the budget, and none of a peer that holds less."""
    budget = ByteBudget("t", lambda: 100)
    small, large, other = Holder(1), Holder(1), Holder(2)
    for link, held in ((small, 20), (large, 40), (other, 50)):
        link.held = held
        budget.count(link)
    assert (small.reason, other.reason) == ("", "")
    assert "too many bytes" in large.reason
    assert budget.held == 70
    budget.forget(large)
    budget.forget(other)
    small.held = 0
    budget.count(small)
    assert budget.held == 0


async def test_lists_of_many_plugins_share_one_budget(short_dir: Path) -> None:
    """Each list is within the limit of a message; together they would use all memory."""

    async def lists(_payload: bytes) -> AsyncIterator[bytes]:
        while True:
            yield bytes(400_000)

    server = server_of({WATCH: StreamMethod(lists)})
    await server.start(short_dir / "s.sock")
    budget = ByteBudget("lists", lambda: 1_000_000)
    channels = [await GrpcChannel.dial(short_dir / "s.sock", budget=budget) for _ in range(8)]
    streams = [each.stream(WATCH) for each in channels]
    for stream in streams:  # one message is taken; the next ones wait
        await asyncio.wait_for(anext(stream), 30)
    await until(lambda: any(each.closed.is_set() for each in channels), what="a closed channel")
    assert budget.held <= 1_000_000
    ended = streams[[each.closed.is_set() for each in channels].index(True)]

    async def rest() -> None:
        async for _ in ended:
            pass

    with pytest.raises(RpcError, match="too many bytes") as caught:
        await asyncio.wait_for(rest(), 30)
    assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
    for stream, channel in zip(streams, channels, strict=True):
        await stream.aclose()
        await channel.close()
    assert budget.held == 0
    await server.stop()
