"""The transport's contract, between us, grpcio, grpclib and grpc-go, in both roles."""

import asyncio
from contextlib import aclosing

import pytest

from kubedevices.errors import RpcError, StatusCode
from tests.waiting import until
from tests.wire.behaviour import CHUNK, failure
from tests.wire.conftest import Pair

TEXTS = [
    "plain",
    "",
    '50% of "quotes" & more',
    "Gerät „nvidia0“ fehlt — 装置 🚀",
    "line one\nline two\ttab\r",
    "%41 is no A",
]


async def test_unary(pair: Pair) -> None:
    """A message comes back as it was: short, empty, and many times the flow control window."""
    for payload in (b"hello", b"", bytes(range(256)) * 14_000):
        assert await pair.client.unary("Echo", payload) == payload


async def test_many_calls_at_once(pair: Pair) -> None:
    """Calls in parallel do not mix up their answers."""
    questions = [b"%d" % number * 100 for number in range(60)]
    answers = await asyncio.gather(*(pair.client.unary("Echo", each) for each in questions))
    assert answers == questions


@pytest.mark.parametrize("count", [300, 0])
async def test_stream(pair: Pair, count: int) -> None:
    """A server stream delivers every message in order and then ends; it may have none."""
    got = [int(message) async for message in pair.client.stream("Count", b"%d" % count)]
    assert got == list(range(count))


@pytest.mark.parametrize(
    ("code", "text"),
    [(StatusCode.NOT_FOUND, text) for text in TEXTS]
    + [(code, "why") for code in StatusCode if code],
)
async def test_status_and_text(pair: Pair, code: StatusCode, text: str) -> None:
    """Each of the sixteen codes arrives with its number, and any text with its characters."""
    with pytest.raises(RpcError) as caught:
        await pair.client.unary("Fail", failure(code, text))
    assert (caught.value.code, caught.value.message) == (code, text)


async def test_stream_that_fails(pair: Pair) -> None:
    """What a stream has sent before its error is delivered before the error."""
    messages = pair.client.stream("FailLate", failure(StatusCode.OUT_OF_RANGE, "out of range"))
    assert await anext(messages) == b"first"
    with pytest.raises(RpcError, match="out of range") as caught:
        await anext(messages)
    assert caught.value.code is StatusCode.OUT_OF_RANGE


async def test_unknown_method(pair: Pair) -> None:
    """A method nobody serves is UNIMPLEMENTED, and the connection goes on."""
    with pytest.raises(RpcError) as caught:
        await pair.client.unary("Nothing", b"x" * 100)
    assert caught.value.code is StatusCode.UNIMPLEMENTED
    assert await pair.client.unary("Echo", b"on") == b"on"


async def test_client_cancels_stream(pair: Pair) -> None:
    """Closing a stream's generator cancels its handler at the server."""
    async with aclosing(pair.client.stream("Watch", b"x")) as messages:
        assert await anext(messages) == b"x"
        await until(lambda: pair.behaviour.running == 1, what="the handler waits")
    await until(lambda: pair.behaviour.cancelled == 1, what="the handler is cancelled")
    assert await pair.client.unary("Echo", b"on") == b"on"


async def test_client_cancels_unary(pair: Pair) -> None:
    """Cancelling the task of a unary call cancels its handler at the server."""
    task = asyncio.create_task(pair.client.unary("Hang", b""), name="hanging call")
    await until(lambda: pair.behaviour.running == 1, what="the handler waits")
    task.cancel()
    await until(lambda: pair.behaviour.cancelled == 1, what="the handler is cancelled")
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_deadline(pair: Pair) -> None:
    """When the deadline passes, the caller learns it in time and the handler is cancelled."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    with pytest.raises(RpcError) as caught:
        await pair.client.unary("Hang", b"", timeout=0.2)
    assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
    assert 0.15 < loop.time() - begun < 10
    await until(lambda: pair.behaviour.cancelled == 1, what="the handler is cancelled")


async def test_slow_reader_stops_the_sender(pair: Pair) -> None:
    """A stream that is not read holds its sender back at a few windows, and loses nothing."""
    total = 800  # 50 MiB
    async with aclosing(pair.client.stream("Flood", b"%d" % total)) as messages:
        assert await anext(messages) == CHUNK
        await _until_steady(pair)
        assert pair.behaviour.sent * len(CHUNK) < 24 * 2**20
        if pair.client_kind != "grpclib":  # whose own connection window is full now
            assert await pair.client.unary("Echo", b"others go on") == b"others go on"
        rest = 0
        async for message in messages:
            assert message == CHUNK
            rest += 1
    assert rest == total - 1


async def _until_steady(pair: Pair) -> None:
    """Wait until nothing more is sent for 50 ms."""
    loop = asyncio.get_running_loop()
    seen, since = -1, loop.time()

    def is_steady() -> bool:
        nonlocal seen, since
        if pair.behaviour.sent != seen:
            seen, since = pair.behaviour.sent, loop.time()
        return loop.time() - since > 0.05

    await until(is_steady, what="the sender is held back")
