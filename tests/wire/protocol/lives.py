"""Long lives: many streams on a connection, many connections at a server; what stays is counted.

`test_lives` runs a few thousand, `long_run` as many as it is told.
"""

import asyncio
import gc
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kubedevices.errors import StatusCode
from kubedevices.wire.grpc_events import CallEnded, CallOpened, RequestReceived
from kubedevices.wire.http2_limits import Limits
from kubedevices.wire.unix_grpc import GrpcChannel, GrpcServer
from tests.waiting import until
from tests.wire.by_hand import raw_client
from tests.wire.echo_server import CALL, WATCH
from tests.wire.frames import METHOD, Joined, headers
from tests.wire.protocol.cases import HELLO, PREFACE, call, ended, head
from tests.wire.protocol.raw_end import RawEnd


def kept() -> int:
    """Return how many blocks of memory the interpreter uses, without what is only garbage."""
    gc.collect()
    return sys.getallocatedblocks()


# ---------------------------------------------------------------- streams


def _answered(joined: Joined) -> None:
    call = joined.client.start_call(METHOD, b"question")
    joined.exchange()
    (request,) = (each for each in joined.at_server if isinstance(each, RequestReceived))
    joined.server.send(request.call, b"answer")
    joined.server.finish(request.call)
    joined.exchange()
    joined.client.take_message(call)


def _failed(joined: Joined) -> None:
    joined.client.start_call(METHOD, b"question")
    joined.exchange()
    (request,) = (each for each in joined.at_server if isinstance(each, RequestReceived))
    joined.server.finish(request.call, StatusCode.NOT_FOUND, "no such thing")
    joined.exchange()


def _cancelled(joined: Joined) -> None:
    call = joined.client.start_call(METHOD, b"question")
    joined.exchange()
    joined.client.cancel(call)
    joined.exchange()
    joined.server.guard.refund(100)  # as time would


def _ended_early(joined: Joined) -> None:
    joined.client.start_call(METHOD, bytes(70_000))  # more than the window
    joined.exchange()
    (opened,) = (each for each in joined.at_server if isinstance(each, CallOpened))
    joined.server.finish(opened.call, StatusCode.ABORTED, "enough")
    joined.exchange()
    assert isinstance(joined.at_client[-1], CallEnded)
    joined.server.guard.refund(100)


def _malformed(joined: Joined) -> None:
    joined.server.receive(headers(joined.client._next_id, [(b":method", b"POST")]))
    joined.client._next_id += 2
    joined.server.take_output()
    joined.server.guard.refund(100)


STREAMS: dict[str, Callable[[Joined], None]] = {
    "answered": _answered,
    "failed": _failed,
    "cancelled": _cancelled,
    "ended early": _ended_early,
    "malformed": _malformed,
}


ROUNDS = 3
"""What is kept for good grows in each round; caches, and other threads, do not."""


def growth_of_streams(live: Callable[[Joined], None], warm: int, count: int) -> int:
    """Return how many blocks a third of `count` streams leaves, after `warm` on a connection."""
    joined = Joined(server_limits=Limits(stream_window=65_535))

    def several(number: int) -> None:
        for _ in range(number):
            live(joined)
            joined.at_client.clear()
            joined.at_server.clear()

    several(warm)
    grown = []
    for _ in range(ROUNDS):
        before = kept()
        several(count // ROUNDS)
        grown.append(kept() - before)
    assert not joined.client.open_calls
    assert not joined.server.open_calls
    assert not joined.client.buffered + joined.server.buffered
    return min(grown)


# ---------------------------------------------------------------- connections


async def _calls_and_closes(path: Path) -> None:
    async with await GrpcChannel.dial(path) as channel:
        assert await channel.unary(CALL, b"question", timeout=60) == b"question"


async def _leaves_a_stream(path: Path) -> None:
    async with await GrpcChannel.dial(path) as channel:
        stream = channel.stream(WATCH)
        assert await anext(stream) == b"first"
        await stream.aclose()


async def _hangs_up_in_a_call(path: Path) -> None:
    async with raw_client(path) as streams:
        end = RawEnd(streams)
        end.writer.write(HELLO + call(1) + head(3) + b"\0\0")
        await end.until(ended(1))


async def _says_nothing(path: Path) -> None:
    async with raw_client(path):
        pass


async def _breaks_the_protocol(path: Path) -> None:
    async with raw_client(path) as (reader, writer):
        writer.write(PREFACE + b"nonsense, for ever and ever")
        with suppress(ConnectionError):
            await reader.read()


CONNECTIONS = (
    _calls_and_closes,
    _leaves_a_stream,
    _hangs_up_in_a_call,
    _says_nothing,
    _breaks_the_protocol,
)


async def growth_of_connections(
    server: GrpcServer, path: Path, warm: int, count: int
) -> tuple[int, int]:
    """Return how many blocks and files a third of `count` connections leaves, after `warm`."""

    async def several(number: int) -> None:
        for at in range(0, number, 20):
            await asyncio.gather(
                *(CONNECTIONS[each % len(CONNECTIONS)](path) for each in range(at, at + 20))
            )
        await until(lambda: not (server._links or server.tasks), what="the end of the last")

    await several(warm)
    grown = []
    for _ in range(ROUNDS):
        before, files = kept(), _open_files()
        await several(count // ROUNDS)
        grown.append((kept() - before, _open_files() - files))
    return min(grown)


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
