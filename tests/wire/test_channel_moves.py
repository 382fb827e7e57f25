"""Our channel and a server that says goodbye (GOAWAY) to a connection and ends no call on it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from kubedevices.errors import RpcError, StatusCode
from kubedevices.wire.unix_grpc import GrpcChannel
from tests.waiting import until
from tests.wire import frames
from tests.wire.behaviour import SERVICE, Behaviour
from tests.wire.by_hand import raw_server
from tests.wire.conftest import dialled
from tests.wire.peer_servers import OurServer

ECHO, HANG, WATCH = (f"/{SERVICE}/{name}" for name in ("Echo", "Hang", "Watch"))


class LeavingServer(OurServer):
    """A server that can send GOAWAY to its clients."""

    def __init__(self, behaviour: Behaviour) -> None:
        super().__init__(behaviour)
        self.accepted = 0
        admit = self.server.admit

        def counting_admit(link: Any) -> bool:
            self.accepted += 1
            return admit(link)

        self.server.admit = counting_admit  # type: ignore[method-assign]

    @property
    def connections(self) -> int:
        return len(self.server._links)

    def say_goodbye(self) -> None:
        for link in self.server._links:
            link.connection.go_away()
            link.flush()


@pytest.fixture
async def server(short_dir: Path) -> AsyncIterator[LeavingServer]:
    server = LeavingServer(Behaviour())
    await server.start(short_dir / "s.sock")
    yield server
    await server.stop()


async def said_goodbye(channel: GrpcChannel) -> None:
    await until(lambda: channel._first_link.connection.peer_sent_goaway, what="GOAWAY")


async def test_new_calls_move_to_a_new_connection(server: LeavingServer, short_dir: Path) -> None:
    """A stream stays on its connection; all new calls share one new connection."""
    async with dialled(short_dir) as channel, aclosing(channel.stream(WATCH, b"x")) as messages:
        await anext(messages)
        server.say_goodbye()
        await said_goodbye(channel)
        calls = [channel.unary(ECHO, b"%d" % number, timeout=5) for number in range(5)]
        assert await asyncio.gather(*calls) == [b"0", b"1", b"2", b"3", b"4"]
        assert [each async for each in channel.stream(f"/{SERVICE}/Count", b"2")] == [b"0", b"1"]
        assert server.accepted == 2
        assert not channel.closed.is_set()
        server.behaviour.release.set()
        assert await anext(messages) == b"x"


async def test_the_new_connection_ends_with_the_old_one(
    server: LeavingServer, short_dir: Path
) -> None:
    """When the last stream of the first connection ends the channel is closed, after its calls."""
    async with dialled(short_dir) as channel:
        async with aclosing(channel.stream(WATCH, b"x")) as messages:
            await anext(messages)
            server.say_goodbye()
            await said_goodbye(channel)
            call = asyncio.create_task(channel.unary(HANG, b"late", timeout=5), name="late call")
            await until(lambda: server.behaviour.running == 2, what="the call is in progress")
        async with asyncio.timeout(5):
            await channel.closed.wait()
        with pytest.raises(RpcError, match="going away") as caught:
            await channel.unary(ECHO, b"", timeout=5)
        assert caught.value.code is StatusCode.UNAVAILABLE
        server.behaviour.release.set()
        assert await call == b"late"
        await until(lambda: server.connections == 0, what="both connections are closed")


async def test_each_goaway_gets_a_new_connection(server: LeavingServer, short_dir: Path) -> None:
    """Each GOAWAY of the server leads to a new connection, and the old ones are closed."""
    async with dialled(short_dir) as channel, aclosing(channel.stream(WATCH, b"x")) as messages:
        await anext(messages)
        for _ in range(5):
            server.say_goodbye()
            await until(lambda: channel._newest_link.connection.is_over, what="GOAWAY")
            assert await channel.unary(ECHO, b"on", timeout=5) == b"on"
        await until(lambda: server.connections == 2, what="the ones between are closed")
        assert len(channel._first_link.successors) <= 2


async def test_close_closes_both(server: LeavingServer, short_dir: Path) -> None:
    """Closing the channel ends calls on either connection."""
    channel = await GrpcChannel.dial(short_dir / "s.sock")
    messages = channel.stream(WATCH, b"x")
    await anext(messages)
    server.say_goodbye()
    await said_goodbye(channel)
    call = asyncio.create_task(channel.unary(HANG, b"", timeout=5), name="call in progress")
    await until(lambda: server.behaviour.running == 2, what="the call is in progress")
    assert "calls=2" in repr(channel)
    await channel.close()
    for ended in (call, anext(messages)):
        with pytest.raises(RpcError, match="closed") as caught:
            await ended
        assert caught.value.code is StatusCode.CANCELLED
    await until(lambda: server.connections == 0, what="both connections are closed")


async def test_calls_do_not_move_to_another_server(server: LeavingServer, short_dir: Path) -> None:
    """Another socket file belongs to another server."""
    async with dialled(short_dir) as channel, aclosing(channel.stream(WATCH, b"x")) as messages:
        await anext(messages)
        server.say_goodbye()
        await said_goodbye(channel)
        (short_dir / "s.sock").unlink()
        other = OurServer(Behaviour())
        await other.start(short_dir / "s.sock")
        with pytest.raises(RpcError, match="going away") as caught:
            await channel.unary(ECHO, b"", timeout=5)
        assert caught.value.code is StatusCode.UNAVAILABLE
        await other.stop()


GOODBYE = frames.raw(frames.GOAWAY, 0, 0, (1).to_bytes(4, "big") + bytes(4))
REFUSED = frames.raw(frames.RST_STREAM, 0, 3, (7).to_bytes(4, "big"))
LATE_GOODBYE = frames.raw(frames.GOAWAY, 0, 0, (2**31 - 1).to_bytes(4, "big") + bytes(4))


@pytest.mark.parametrize(
    "last_words", [GOODBYE, LATE_GOODBYE + REFUSED], ids=["above the mark", "refused"]
)
async def test_an_unprocessed_call_is_repeated_once(short_dir: Path, last_words: bytes) -> None:
    """A call that crosses a GOAWAY is repeated on the new connection, exactly once."""
    questions: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frames.SERVER_HELLO)
        if not questions:
            await reader.readuntil(frames.message(b"watch"))
            writer.write(frames.headers(1, frames.RESPONSE) + frames.data(1, frames.message(b"x")))
            questions.append(await reader.readuntil(frames.message(b"question")))
            writer.write(last_words)
        else:
            questions.append(await reader.readuntil(frames.message(b"question")))
            body = frames.headers(1, frames.RESPONSE) + frames.data(1, frames.message(b"answer"))
            end = frames.END_HEADERS | frames.END_STREAM
            writer.write(body + frames.headers(1, frames.OK, end))
        await asyncio.Event().wait()

    async with raw_server(short_dir / "s.sock", talk), dialled(short_dir) as channel:
        async with aclosing(channel.stream(WATCH, b"watch")) as messages:
            await anext(messages)
            assert await channel.unary(ECHO, b"question", timeout=5) == b"answer"
        assert len(questions) == 2


async def test_a_server_that_does_not_answer_the_second_dial(short_dir: Path) -> None:
    """Each call waits for a new connection up to its own deadline."""
    loop = asyncio.get_running_loop()
    connections = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections == 1:
            writer.write(frames.SERVER_HELLO)
            await reader.readuntil(frames.message(b"watch"))
            body = frames.headers(1, frames.RESPONSE) + frames.data(1, frames.message(b"x"))
            writer.write(body + GOODBYE)
        await asyncio.Event().wait()

    async with (
        raw_server(short_dir / "s.sock", talk),
        dialled(short_dir) as channel,
        aclosing(channel.stream(WATCH, b"watch")) as messages,
    ):
        await anext(messages)
        await said_goodbye(channel)
        patient = asyncio.create_task(channel.unary(ECHO, b"", timeout=60), name="patient")
        await until(lambda: connections == 2, what="the second dial")
        begun = loop.time()
        with pytest.raises(RpcError, match="going away"):
            await channel.unary(ECHO, b"", timeout=0.1)
        assert loop.time() - begun < 5  # a move may take 10
        patient.cancel()
        await asyncio.wait({patient})
        assert patient.cancelled()
