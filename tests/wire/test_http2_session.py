"""A session without I/O. What HTTP/2 forbids: `protocol/server_cases.py`, `client_cases.py`."""

import pytest

from kubedevices.errors import ProtocolError
from kubedevices.wire.client_connection import ClientConnection
from kubedevices.wire.grpc_events import CallEnded, PeerReady, PongReceived
from kubedevices.wire.http2_frames import PREFACE
from kubedevices.wire.http2_limits import MAX_FRAME_SIZE, Limits
from kubedevices.wire.server_connection import ServerConnection
from tests.wire.frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    METHOD,
    OK,
    PING,
    RESPONSE,
    RST_STREAM,
    SETTINGS,
    Clock,
    Joined,
    data,
    everything,
    headers,
    message,
    new_client,
    new_server,
    parse,
    raw,
    refused,
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


def test_a_frame_too_large_is_refused_at_its_head() -> None:
    """The connection ends before a byte of the payload has come."""
    refused(new_server(), raw(DATA, 0, 1, bytes(MAX_FRAME_SIZE + 1))[:9])


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


def test_lost_connection_ends_calls_once() -> None:
    """Every open call ends with the reason, and later ends change nothing."""
    client = new_client()
    calls = [client.start_call(METHOD, b"") for _ in range(3)]
    client.end_calls("the cable")
    client.end_calls("again")
    ends = [event for event in client.take_events() if isinstance(event, CallEnded)]
    assert [end.call for end in ends] == calls
    assert {str(end.error) for end in ends} == {"rpc error: code = Unavailable desc = the cable"}
