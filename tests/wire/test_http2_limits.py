"""What a peer may do, not without end; what stays bounded. More floods: `protocol/floods.py`."""

import tracemalloc
from collections import deque

import pytest

from kubedevices.errors import ProtocolError, StatusCode
from kubedevices.wire.grpc_events import CallEnded
from kubedevices.wire.http2_limits import FloodGuard
from kubedevices.wire.server_connection import ServerConnection
from tests.wire.frames import (
    CLIENT_HELLO,
    CONTINUATION,
    HEADERS,
    METHOD,
    PING,
    REQUEST,
    Clock,
    Joined,
    data,
    everything,
    headers,
    message,
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
    clock = Clock()
    server = new_server(clock=clock)
    sizes = []
    tracemalloc.start()
    try:
        for first in range(0x100, 0x4000, 0x400):
            server.receive(settings(*((key, 1) for key in range(first, first + 0x400))))
            everything(server)
            clock.now += 1
            sizes.append(tracemalloc.get_traced_memory()[0])
        assert sizes[-1] - sizes[4] < 10_000
    finally:
        tracemalloc.stop()


def test_header_block_is_bounded() -> None:
    """An endless header block is refused and not stored."""
    server = new_server()
    server.receive(raw(HEADERS, 0, 1, bytes(4000)))
    for _ in range(3):
        server.receive(raw(CONTINUATION, 0, 1, bytes(4000)))
    assert "header block" in refused(server, raw(CONTINUATION, 0, 1, bytes(4000)))


def test_the_bytes_of_a_header_block_use_the_budget() -> None:
    """Long header blocks are refused after a few, also if the calls are refused."""
    server = new_server()
    fields = [*REQUEST, *((b"x%d" % number, b"y" * 2000) for number in range(6))]

    def call(stream: int) -> None:
        server.receive(headers(stream, [*fields, (b"number", b"%d" % stream)]))
        (opened,) = server.take_events()
        server.finish(opened.call, StatusCode.UNIMPLEMENTED)  # type: ignore[union-attr]

    for stream in range(1, 10, 2):
        call(stream)
    with pytest.raises(ProtocolError, match="flood"):
        deque(map(call, range(11, 21, 2)))


def test_calls_that_are_refused_refill_no_budget() -> None:
    """A peer that only calls unknown methods floods, a peer whose calls succeed does not."""

    def calls(code: StatusCode) -> int:
        server = new_server()
        for number in range(11_000):
            try:
                server.receive(headers(2 * number + 1))
                (opened,) = server.take_events()
                server.finish(opened.call, code)  # type: ignore[union-attr]
            except ProtocolError:
                return number
            everything(server)
        return 11_000

    assert calls(StatusCode.OK) == 11_000
    assert calls(StatusCode.UNIMPLEMENTED) < 11_000


def test_a_settings_frame_costs_as_much_as_its_entries() -> None:
    """A frame of ten thousand settings cannot be repeated."""
    server = new_server()
    frame = settings(*((0x100 + number, 1) for number in range(10_922)))
    with pytest.raises(ProtocolError, match="flood"):
        server.receive(frame * 3)


def test_data_frames_of_one_byte_are_a_flood() -> None:
    """A frame costs work whatever it carries, so only its bytes pay for it."""
    server = new_server()
    server.receive(headers(1) + data(1, message(bytes(20_000))[:5]))
    with pytest.raises(ProtocolError, match="flood"):
        server.receive(data(1, b"x") * 15_000)


def test_connections_may_share_a_budget() -> None:
    """A peer that connects again after a flood does not get a new budget."""
    clock = Clock()
    guard = FloodGuard(clock)
    first = ServerConnection(clock=clock)
    first.guard = guard
    first.receive(CLIENT_HELLO)
    with pytest.raises(ProtocolError, match="flood"):
        first.receive(raw(PING, 0, 0, bytes(8)) * 10_001)
    second = ServerConnection(clock=clock)
    second.guard = guard
    with pytest.raises(ProtocolError, match="flood"):
        second.receive(CLIENT_HELLO + raw(PING, 0, 0, bytes(8)))
