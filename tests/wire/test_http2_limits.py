"""What a peer may do but not without end: floods, bombs, long lives; and what stays bounded."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice

import pytest
from hpack import Encoder

from kubedevices.errors import ProtocolError, StatusCode
from kubedevices.wire import http2_output
from kubedevices.wire.grpc_events import CallEnded
from kubedevices.wire.http2_limits import FloodGuard, Limits
from tests.wire.frames import (
    CONTINUATION,
    END_HEADERS,
    HEADERS,
    METHOD,
    PING,
    PRIORITY,
    REQUEST,
    RST_STREAM,
    WINDOW_UPDATE,
    Clock,
    Joined,
    data,
    everything,
    headers,
    new_server,
    raw,
    refused,
    settings,
)


def pings() -> Iterator[bytes]:
    while True:
        yield raw(PING, 0, 0, bytes(8)) * 100


def changing_settings() -> Iterator[bytes]:
    while True:
        yield (settings((4, 1)) + settings((4, 2))) * 50


def empty_data() -> Iterator[bytes]:
    yield headers(1)
    while True:
        yield data(1, b"") * 100


def unknown_frames() -> Iterator[bytes]:
    while True:
        yield raw(0x99, 0, 0, b"grease") * 100


def priorities() -> Iterator[bytes]:
    stream = 1
    while True:
        yield raw(PRIORITY, 0, stream, bytes((0, 0, 0, 0, 7))) * 100
        stream += 2


def window_updates() -> Iterator[bytes]:
    yield headers(1)
    while True:
        yield raw(WINDOW_UPDATE, 0, 1, (1).to_bytes(4, "big")) * 100


def rapid_resets() -> Iterator[bytes]:
    stream = 1
    while True:
        yield headers(stream) + raw(RST_STREAM, 0, stream, bytes(4))
        stream += 2


def refused_streams() -> Iterator[bytes]:
    stream = 1
    while True:
        yield headers(stream)
        stream += 2


def continuations() -> Iterator[bytes]:
    yield raw(HEADERS, 0, 1)
    while True:
        yield raw(CONTINUATION, 0, 1)


@pytest.mark.parametrize(
    "flood",
    [
        pings,
        changing_settings,
        empty_data,
        unknown_frames,
        priorities,
        window_updates,
        rapid_resets,
        refused_streams,
        continuations,
    ],
)
def test_flood(flood: Callable[[], Iterator[bytes]]) -> None:
    """A peer that keeps us busy for nothing is cut off after a while."""
    server = new_server(Limits(max_streams=5))

    def endure() -> None:
        for frames in islice(flood(), 20_000):
            server.receive(frames)
            server.take_events()
            everything(server)

    with pytest.raises(ProtocolError):
        endure()


def test_no_flood() -> None:
    """The same frames spread over time are no flood."""
    clock = Clock()
    server = new_server(clock=clock)
    for _ in range(300):
        server.receive(raw(PING, 0, 0, bytes(8)) * 100)
        everything(server)
        clock.now += 0.5


def test_busy_is_no_flood() -> None:
    """Many calls with all their frames, in no time at all, are no flood."""
    joined = Joined()
    for _ in range(1500):
        call = joined.client.start_call(METHOD, b"x")
        joined.exchange()
        served = joined.at_server[-1].call  # type: ignore[union-attr]
        joined.server.send(served, b"y")
        joined.server.finish(served)
        joined.exchange()
        assert joined.at_client.pop() == CallEnded(call, None)
        joined.at_server.clear()
        joined.client.cancel(call)


def test_guard_fills_up_only_to_the_brim() -> None:
    """An honest past buys no flood without end."""
    guard = FloodGuard(Clock())
    guard.earn(10**9)
    guard.spend(FloodGuard.purse)
    with pytest.raises(ProtocolError, match="flood"):
        guard.spend()


def test_guard_counts_time_once() -> None:
    """A second that has passed pays for a second's frames, not again and again."""
    clock = Clock()
    guard = FloodGuard(clock)
    guard.spend(FloodGuard.purse)
    clock.now += 1
    guard.spend(FloodGuard.per_second)
    with pytest.raises(ProtocolError, match="flood"):
        guard.spend()


def test_unknown_settings_are_forgotten() -> None:
    """Settings without meaning leave nothing behind."""
    server = new_server()
    sizes = []
    tracemalloc.start()
    try:
        for first in range(0x100, 0x4000, 0x400):
            server.receive(settings(*((key, 1) for key in range(first, first + 0x400))))
            everything(server)
            sizes.append(tracemalloc.get_traced_memory()[0])
        assert sizes[-1] - sizes[4] < 10_000
    finally:
        tracemalloc.stop()


def test_header_bomb() -> None:
    """A small block that unpacks to a large one is refused."""
    encoder = Encoder()
    first = encoder.encode([*REQUEST, (b"bomb", b"x" * 3000)])
    bomb = encoder.encode([(b"bomb", b"x" * 3000)]) * 1000
    server = new_server()
    server.receive(raw(HEADERS, END_HEADERS, 1, first))
    assert len(bomb) < 2000
    assert "header" in refused(server, raw(HEADERS, END_HEADERS, 3, bomb))


def test_header_block_is_bounded() -> None:
    """A header block that goes on and on is refused, and not kept."""
    server = new_server()
    server.receive(raw(HEADERS, 0, 1, bytes(16000)))
    for _ in range(3):
        server.receive(raw(CONTINUATION, 0, 1, bytes(16000)))
    assert "header block" in refused(server, raw(CONTINUATION, 0, 1, bytes(16000)))


def test_memory_of_a_long_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that has served hundreds of calls is not larger than one that served some."""
    monkeypatch.setattr(http2_output, "MAX_REMEMBERED", 50)
    joined = Joined()

    def serve(count: int) -> None:
        for number in range(count):
            call = joined.client.start_call(f"/s/{number}", bytes(100))
            joined.exchange()
            served = joined.at_server[-1].call  # type: ignore[union-attr]
            joined.server.finish(served, StatusCode.NOT_FOUND, f"no {number}")
            joined.exchange()
            joined.at_server.clear()
            joined.at_client.clear()
            joined.client.cancel(call)

    tracemalloc.start()
    try:
        serve(200)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        serve(300)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 5_000
    finally:
        tracemalloc.stop()
