"""What HTTP/2 forbids, and what it allows but nobody honest does: the connection ends, no more."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice

import pytest
from hpack import Encoder

from kubedevices.errors import ProtocolError, StatusCode
from kubedevices.wire import http2_session
from kubedevices.wire.client_connection import ClientConnection
from kubedevices.wire.grpc_connection import GrpcConnection
from kubedevices.wire.grpc_events import CallEnded, Limits, PeerReady, PongReceived
from kubedevices.wire.http2_limits import MAX_FRAME_SIZE, PREFACE, FloodGuard
from kubedevices.wire.server_connection import ServerConnection
from tests.wire.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    METHOD,
    OK,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    REQUEST,
    RESPONSE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Clock,
    Joined,
    block,
    data,
    everything,
    headers,
    message,
    new_client,
    new_server,
    parse,
    raw,
    settings,
)

END = END_HEADERS | END_STREAM
RST = raw(RST_STREAM, 0, 1, bytes(4))


def refused(connection: GrpcConnection, data: bytes) -> str:
    """Return what the connection says about bytes that end it."""
    with pytest.raises(ProtocolError) as caught:
        connection.receive(data)
    with pytest.raises(ProtocolError):
        connection.receive(b"")
    last = list(parse(everything(connection)))[-1]
    assert last.kind == GOAWAY
    assert everything(connection) == b""
    return str(caught.value)


@pytest.mark.parametrize(
    "hello",
    [
        pytest.param(b"GET / HTTP/1.1\r\n", id="HTTP 1"),
        pytest.param(b"\x16\x03\x01\x02\x00", id="TLS"),
        pytest.param(PREFACE[:10] + b"x", id="broken preface"),
        pytest.param(PREFACE + raw(PING, 0, 0, bytes(8)), id="ping first"),
        pytest.param(PREFACE + raw(SETTINGS, ACK), id="acknowledgement first"),
    ],
)
def test_not_http2(hello: bytes) -> None:
    """Who does not begin with the preface and SETTINGS is no HTTP/2 client."""
    assert "does not speak HTTP/2" in refused(ServerConnection(clock=Clock()), hello)


def test_no_http2_server() -> None:
    """Who does not begin with SETTINGS is no HTTP/2 server."""
    text = refused(ClientConnection(clock=Clock()), b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert "does not speak HTTP/2" in text


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(raw(DATA, 0, 0, b"x"), id="data on stream 0"),
        pytest.param(raw(DATA, 0, 1, b"x"), id="data on an idle stream"),
        pytest.param(raw(HEADERS, END, 0, block(REQUEST)), id="headers on stream 0"),
        pytest.param(raw(HEADERS, END, 2, block(REQUEST)), id="headers on an even stream"),
        pytest.param(headers(3) + headers(1), id="stream number goes back"),
        pytest.param(raw(HEADERS, END, 1, b"\xff\xff\xff\xff\xff"), id="broken HPACK"),
        pytest.param(raw(HEADERS, END, 1, b"\xbe"), id="HPACK index out of range"),
        pytest.param(raw(HEADERS, 0x28, 1, b"\xff"), id="padding longer than the frame"),
        pytest.param(raw(CONTINUATION, 4, 1, b""), id="continuation of nothing"),
        pytest.param(raw(HEADERS, 0, 1, b"") + raw(PING, 0, 0, bytes(8)), id="interrupted headers"),
        pytest.param(raw(HEADERS, 0, 1) + raw(CONTINUATION, 4, 3), id="continuation elsewhere"),
        pytest.param(raw(HEADERS, 0, 1) + raw(0x42, 0, 1), id="unknown frame inside headers"),
        pytest.param(raw(PING, 0, 0, bytes(7)), id="short ping"),
        pytest.param(raw(PING, 0, 1, bytes(8)), id="ping on a stream"),
        pytest.param(raw(SETTINGS, 0, 0, bytes(5)), id="broken settings"),
        pytest.param(settings((4, 2**31)), id="window too large"),
        pytest.param(settings((5, 100)), id="frame size too small"),
        pytest.param(settings((2, 2)), id="push neither on nor off"),
        pytest.param(raw(WINDOW_UPDATE, 0, 0, bytes(4)), id="window update of nought"),
        pytest.param(raw(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"), id="window overflows"),
        pytest.param(raw(WINDOW_UPDATE, 0, 0, bytes(3)), id="short window update"),
        pytest.param(raw(RST_STREAM, 0, 0, bytes(4)), id="reset of stream 0"),
        pytest.param(raw(RST_STREAM, 0, 1, bytes(3)), id="short reset"),
        pytest.param(raw(PRIORITY, 0, 1, bytes((0, 0, 0, 1, 0))), id="depends on itself"),
        pytest.param(raw(GOAWAY, 0, 0, bytes(7)), id="short goaway"),
        pytest.param(raw(GOAWAY, 0, 1, bytes(8)), id="goaway on a stream"),
        pytest.param(raw(DATA, 0, 1, bytes(MAX_FRAME_SIZE + 1))[:9], id="frame too large"),
        pytest.param(raw(PUSH_PROMISE, 4, 1, bytes(4) + block(REQUEST)), id="push"),
        pytest.param(
            headers(1, [*REQUEST, (b"content-length", b"3")]) + data(1, b"xxxx"),
            id="longer than its content-length",
        ),
    ],
)
def test_forbidden(frames: bytes) -> None:
    """Each of these ends the connection with a GOAWAY and nothing but `ProtocolError`."""
    refused(new_server(), frames)


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(raw(PUSH_PROMISE, 4, 1, (2).to_bytes(4, "big") + block(REQUEST)), id="push"),
        pytest.param(headers(2, RESPONSE), id="response on an even stream"),
        pytest.param(headers(3, RESPONSE), id="response on an idle stream"),
        pytest.param(headers(1, RESPONSE) + headers(1, OK), id="trailers that do not end"),
        pytest.param(data(1, b"x"), id="data before headers"),
        pytest.param(headers(1, [(b":status", b"100")], END), id="informational end"),
        pytest.param(settings((2, 1)), id="a server that enables push"),
    ],
)
def test_forbidden_to_servers(frames: bytes) -> None:
    """The same for a server; the call that was open is UNAVAILABLE."""
    client = new_client()
    client.start_call(METHOD, b"x")
    everything(client)
    refused(client, frames)
    (end,) = [event for event in client.take_events() if isinstance(event, CallEnded)]
    assert end.error is not None
    assert end.error.code is StatusCode.UNAVAILABLE


def test_more_than_the_window() -> None:
    """A server that ignores our window is cut off."""
    client = new_client(Limits(stream_window=65535))
    client.start_call(METHOD, b"x")
    everything(client)
    client.receive(headers(1, RESPONSE))
    for _ in range(6):  # not taken, so nothing is acknowledged
        client.receive(data(1, message(bytes(9_995))))
    assert "low control" in refused(client, data(1, message(bytes(9_995))))


def test_data_after_the_end() -> None:
    """A client that goes on after its end loses the call, not the connection."""
    server = new_server()
    server.receive(headers(1) + data(1, message(b"x"), end=True))
    call = server.take_events()[0].call  # type: ignore[union-attr]
    server.receive(data(1, b"more"))
    assert [type(event) for event in server.take_events()] == [CallEnded]
    server.send(call, b"late")
    server.finish(call)
    assert [frame.kind for frame in parse(everything(server))] == [RST_STREAM]
    server.receive(headers(3) + data(3, message(b"x"), end=True))
    assert server.open_calls == 1


def test_events_before_the_error_count() -> None:
    """What came before a broken frame in the same bytes is reported."""
    client = new_client()
    call = client.start_call(METHOD, b"x")
    everything(client)
    good = headers(1, RESPONSE) + data(1, message(b"answer")) + headers(1, OK, END)
    with pytest.raises(ProtocolError):
        client.receive(good + raw(PING, 0, 0, b"short"))
    assert CallEnded(call, None) in client.take_events()
    assert client.take_message(call) == b"answer"


# ---------------------------------------------------------------- allowed, but no end of it


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


def test_unknown_settings_are_forgotten() -> None:
    """Settings without meaning leave nothing behind."""
    server = new_server()
    before = len(server._http2._h2.remote_settings)
    for first in range(0x100, 0xF000, 0x400):
        server.receive(settings(*((key, 1) for key in range(first, first + 0x400))))
        everything(server)
    assert len(server._http2._h2.remote_settings) == before


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
    """A header block that goes on and on is refused long before h2 would."""
    server = new_server()
    server.receive(raw(HEADERS, 0, 1, bytes(16000)))
    for _ in range(3):
        server.receive(raw(CONTINUATION, 0, 1, bytes(16000)))
    assert "header block" in refused(server, raw(CONTINUATION, 0, 1, bytes(16000)))


def test_memory_of_a_long_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that has served hundreds of calls is not larger than one that served some."""
    monkeypatch.setattr(http2_session._Connection, "MAX_CLOSED_STREAMS", 50)
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


# ---------------------------------------------------------------- and what is right


def test_hello() -> None:
    """Each side learns that the other is there, and of each other's limits."""
    joined = Joined(server_limits=Limits(max_streams=7))
    assert joined.at_client == [PeerReady()]
    assert joined.at_server == [PeerReady()]
    assert joined.client._http2.peer_max_streams == 7


def test_ping_is_answered() -> None:
    """A ping comes back with its own bytes, and ours is reported when it is answered."""
    server = new_server()
    server.receive(raw(PING, 0, 0, b"12345678"))
    assert list(parse(everything(server)))[-1] == (PING, ACK, 0, b"12345678")
    server.ping()
    (ping,) = parse(everything(server))
    server.receive(raw(PING, ACK, 0, ping.payload))
    assert server.take_events() == [PongReceived()]


def test_bytes_one_by_one() -> None:
    """It makes no difference how the bytes are cut."""
    server = ServerConnection(clock=Clock())
    for byte in PREFACE + settings() + headers(1) + data(1, message(b"hello"), end=True):
        server.receive(bytes((byte,)))
    assert server.take_events()[-1].payload == b"hello"  # type: ignore[union-attr]


def test_lost_connection_ends_calls_once() -> None:
    """Every open call ends with the reason, and later ends change nothing."""
    client = new_client()
    calls = [client.start_call(METHOD, b"") for _ in range(3)]
    client.lose("the cable")
    client.lose("again")
    ends = [event for event in client.take_events() if isinstance(event, CallEnded)]
    assert [end.call for end in ends] == calls
    assert {str(end.error) for end in ends} == {"rpc error: code = Unavailable desc = the cable"}
