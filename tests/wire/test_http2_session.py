"""What HTTP/2 forbids, and what it allows but nobody honest does: the connection ends, no more."""

import pytest

from kubedevices.errors import ProtocolError, StatusCode
from kubedevices.wire.client_connection import ClientConnection
from kubedevices.wire.grpc_events import CallEnded, PeerReady, PongReceived
from kubedevices.wire.http2_frames import PREFACE
from kubedevices.wire.http2_limits import MAX_FRAME_SIZE, Limits
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
    refused,
    settings,
)

END = END_HEADERS | END_STREAM
RST = raw(RST_STREAM, 0, 1, bytes(4))


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
    """A client must begin with the preface and SETTINGS."""
    assert "does not speak HTTP/2" in refused(ServerConnection(clock=Clock()), hello)


def test_no_http2_server() -> None:
    """A server must begin with SETTINGS."""
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
    """A server that exceeds our window loses the connection."""
    client = new_client(Limits(stream_window=65535))
    client.start_call(METHOD, b"x")
    everything(client)
    client.receive(headers(1, RESPONSE))
    for _ in range(6):  # not taken, so nothing is acknowledged
        client.receive(data(1, message(bytes(9_995))))
    assert "low control" in refused(client, data(1, message(bytes(9_995))))


def test_data_after_the_end() -> None:
    """A client that sends DATA after END_STREAM loses the call, not the connection."""
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


# ---------------------------------------------------------------- and what is right


def test_both_ends_exchange_settings() -> None:
    """Each side reports `PeerReady` and knows the other's limits."""
    joined = Joined(server_limits=Limits(max_streams=7))
    assert joined.at_client == [PeerReady()]
    assert joined.at_server == [PeerReady()]
    assert joined.client.peer_max_streams == 7


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
    """The events do not depend on how the bytes are split."""
    server = ServerConnection(clock=Clock())
    for byte in PREFACE + settings() + headers(1) + data(1, message(b"hello"), end=True):
        server.receive(bytes((byte,)))
    assert server.take_events()[-1].payload == b"hello"  # type: ignore[union-attr]


def test_lost_connection_ends_calls_once() -> None:
    """Every open call ends with the reason, and later ends change nothing."""
    client = new_client()
    calls = [client.start_call(METHOD, b"") for _ in range(3)]
    client.end_calls("the cable")
    client.end_calls("again")
    ends = [event for event in client.take_events() if isinstance(event, CallEnded)]
    assert [end.call for end in ends] == calls
    assert {str(end.error) for end in ends} == {"rpc error: code = Unavailable desc = the cable"}
