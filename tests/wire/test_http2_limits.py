"""What a peer may do but not without end: floods, bombs, long lives; and what stays bounded."""

import tracemalloc

import pytest
from hpack import Encoder

from kubedevices.errors import ProtocolError
from kubedevices.wire.grpc_events import CallEnded
from kubedevices.wire.http2_limits import FloodGuard
from tests.wire.frames import (
    CONTINUATION,
    END_HEADERS,
    HEADERS,
    METHOD,
    PING,
    REQUEST,
    Clock,
    Joined,
    everything,
    headers,
    new_server,
    raw,
    refused,
    settings,
)


def test_settings_cost_as_much_as_there_are_streams() -> None:
    """Each change of the window costs work for each stream: with many, few changes are a flood."""
    server = new_server()
    for stream in range(1, 2001, 2):
        server.receive(headers(stream))
    for number in range(100):
        server.receive(settings((4, number % 2)))
    with pytest.raises(ProtocolError, match="flood"):
        server.receive(b"".join(settings((4, number % 2)) for number in range(1000)))


def test_frames_spread_over_time_are_no_flood() -> None:
    """The same frames spread over time are no flood."""
    clock = Clock()
    server = new_server(clock=clock)
    for _ in range(300):
        server.receive(raw(PING, 0, 0, bytes(8)) * 100)
        everything(server)
        clock.now += 0.5


def test_a_busy_peer_is_no_flood() -> None:
    """Many calls with all their frames, at one time, are no flood."""
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


def test_a_budget_never_exceeds_its_full_size() -> None:
    """Much useful work does not allow an unlimited flood later."""
    guard = FloodGuard(Clock())
    guard.refund(10**9)
    guard.spend(FloodGuard.budget)
    with pytest.raises(ProtocolError, match="flood"):
        guard.spend()


def test_a_budget_counts_each_second_once() -> None:
    """A second refills the budget once."""
    clock = Clock()
    guard = FloodGuard(clock)
    guard.spend(FloodGuard.budget)
    clock.now += 1
    guard.spend(FloodGuard.per_second)
    with pytest.raises(ProtocolError, match="flood"):
        guard.spend()


def test_unknown_settings_are_forgotten() -> None:
    """Unknown settings take no memory."""
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
    """An endless header block is refused and not stored."""
    server = new_server()
    server.receive(raw(HEADERS, 0, 1, bytes(16000)))
    for _ in range(3):
        server.receive(raw(CONTINUATION, 0, 1, bytes(16000)))
    assert "header block" in refused(server, raw(CONTINUATION, 0, 1, bytes(16000)))
