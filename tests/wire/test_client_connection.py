"""The calling role without I/O: answers in every state of brokenness, queueing, windows."""

import pytest

from kubedevices.errors import RpcError, StatusCode
from kubedevices.wire.client_connection import MAX_REFUSALS, ClientConnection
from kubedevices.wire.grpc_events import (
    Call,
    CallEnded,
    CallRefused,
    MessageReceived,
    PeerGoesAway,
)
from kubedevices.wire.http2_limits import Limits
from tests.wire.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    METHOD,
    OK,
    RESPONSE,
    RST_STREAM,
    SERVER_HELLO,
    WINDOW_UPDATE,
    Clock,
    block,
    data,
    everything,
    headers,
    message,
    new_client,
    parse,
    raw,
    settings,
)

LAST = END_HEADERS | END_STREAM


@pytest.fixture
def client() -> ClientConnection:
    return new_client()


def started(client: ClientConnection, payload: bytes = b"x") -> Call:
    """Start a call and let it leave."""
    call = client.start_call(METHOD, payload)
    everything(client)
    return call


def ending(client: ClientConnection) -> RpcError | None:
    """Return how the one call that ended did."""
    (end,) = [event for event in client.take_events() if isinstance(event, CallEnded)]
    return end.error


def code(error: RpcError | None) -> StatusCode:
    return StatusCode.OK if error is None else error.code


def test_answer(client: ClientConnection) -> None:
    """Messages and then the status are reported; messages stay until they are taken."""
    call = started(client)
    client.receive(headers(1, RESPONSE) + data(1, message(b"a") + message(b"b")))
    client.receive(headers(1, OK, LAST))
    assert client.take_events() == [
        MessageReceived(call),
        MessageReceived(call),
        CallEnded(call, None),
    ]
    assert client.open_calls == 0
    assert [client.take_message(call), client.take_message(call)] == [b"a", b"b"]
    assert client.buffered == 0


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([*RESPONSE, (b"grpc-status", b"5")], StatusCode.NOT_FOUND),
        ([*RESPONSE, (b"grpc-status", b"0")], StatusCode.OK),
        ([(b":status", b"200"), (b"grpc-status", b"12")], StatusCode.UNIMPLEMENTED),
        ([(b":status", b"415"), (b"grpc-status", b"2")], StatusCode.UNKNOWN),
        (RESPONSE, StatusCode.UNKNOWN),
        ([*RESPONSE, (b"grpc-status", b"99")], StatusCode.UNKNOWN),
        ([*RESPONSE, (b"grpc-status", b"-1")], StatusCode.UNKNOWN),
        ([*RESPONSE, (b"grpc-status", b"")], StatusCode.UNKNOWN),
        ([*RESPONSE, (b"grpc-status", b"\xb2")], StatusCode.UNKNOWN),
        ([(b":status", b"400")], StatusCode.INTERNAL),
        ([(b":status", b"401")], StatusCode.UNAUTHENTICATED),
        ([(b":status", b"403")], StatusCode.PERMISSION_DENIED),
        ([(b":status", b"404")], StatusCode.UNIMPLEMENTED),
        ([(b":status", b"429")], StatusCode.UNAVAILABLE),
        ([(b":status", b"503")], StatusCode.UNAVAILABLE),
        ([(b":status", b"500")], StatusCode.UNKNOWN),
        ([(b":status", b"2000")], StatusCode.UNKNOWN),
        ([(b"content-type", b"application/grpc")], StatusCode.UNKNOWN),
        ([(b":status", b"200"), (b"content-type", b"text/html")], StatusCode.UNKNOWN),
    ],
)
def test_response_of_headers_alone(
    client: ClientConnection, fields: list[tuple[bytes, bytes]], expected: StatusCode
) -> None:
    """A response of headers alone ends the call, with a gRPC or an HTTP status."""
    started(client)
    client.receive(headers(1, fields, LAST))
    assert code(ending(client)) is expected
    assert client.open_calls == 0


def test_a_response_that_is_not_grpc_ends_the_call(client: ClientConnection) -> None:
    """An HTML page ends the call at its headers, and the stream is reset."""
    started(client)
    client.receive(headers(1, [(b":status", b"502"), (b"content-type", b"text/html")]))
    assert code(ending(client)) is StatusCode.UNAVAILABLE
    assert RST_STREAM in {frame.kind for frame in parse(everything(client))}
    client.receive(data(1, b"<html>", end=True))
    assert client.take_events() == []


def test_stream_without_status(client: ClientConnection) -> None:
    """A stream that simply ends is an error."""
    started(client)
    client.receive(headers(1, RESPONSE) + data(1, message(b"x"), end=True))
    assert code(ending(client)) is StatusCode.INTERNAL


def test_message_cut_off(client: ClientConnection) -> None:
    """OK after half a message is not OK."""
    started(client)
    client.receive(headers(1, RESPONSE) + data(1, message(b"abc")[:-1]) + headers(1, OK, LAST))
    assert code(ending(client)) is StatusCode.INTERNAL
    assert client.buffered == 0


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, StatusCode.INTERNAL),
        (2, StatusCode.INTERNAL),
        (8, StatusCode.CANCELLED),
        (11, StatusCode.RESOURCE_EXHAUSTED),
        (12, StatusCode.PERMISSION_DENIED),
        (0xFFFFFFFF, StatusCode.INTERNAL),
    ],
)
def test_reset(client: ClientConnection, number: int, expected: StatusCode) -> None:
    """A reset by the server is a status too."""
    started(client)
    client.receive(raw(RST_STREAM, 0, 1, number.to_bytes(4, "big")))
    assert code(ending(client)) is expected


def test_refused_stream(client: ClientConnection) -> None:
    """`retry` opens a refused call again, with its message, up to `MAX_REFUSALS` times."""
    call = started(client, b"question")
    for attempt in range(MAX_REFUSALS):
        client.receive(raw(RST_STREAM, 0, 1 + 2 * attempt, (7).to_bytes(4, "big")))
        assert client.take_events() == [CallRefused(call)]
        assert client.open_calls == 0
        client.retry(call)
        client.retry(call)
        sent = [frame for frame in parse(everything(client)) if frame.stream == 3 + 2 * attempt]
        assert [frame.payload for frame in sent][1:] == [message(b"question")]
    client.receive(raw(RST_STREAM, 0, 1 + 2 * MAX_REFUSALS, (7).to_bytes(4, "big")))
    assert code(ending(client)) is StatusCode.UNAVAILABLE


def test_refused_and_lost(client: ClientConnection) -> None:
    """A call that was refused ends with the connection, and is not opened any more."""
    call = started(client)
    client.receive(raw(RST_STREAM, 0, 1, (7).to_bytes(4, "big")))
    client.end_calls("gone")
    assert code(ending(client)) is StatusCode.UNAVAILABLE
    client.retry(call)
    assert client.open_calls == 0


def test_goaway(client: ClientConnection) -> None:
    """Calls above the last stream end, calls up to it finish, new calls fail."""
    below, above = started(client), started(client)
    client.receive(raw(GOAWAY, 0, 0, (1).to_bytes(4, "big") + (11).to_bytes(4, "big") + b"calm"))
    goes, end = client.take_events()
    assert isinstance(goes, PeerGoesAway)
    assert "calm" in goes.reason
    assert isinstance(end, CallEnded)
    assert (end.call, code(end.error)) == (above, StatusCode.UNAVAILABLE)
    with pytest.raises(RpcError, match="going away") as caught:
        client.start_call(METHOD, b"")
    assert caught.value.code is StatusCode.UNAVAILABLE
    client.receive(headers(1, RESPONSE) + data(1, message(b"x")) + headers(1, OK, LAST))
    assert client.take_events() == [MessageReceived(below), CallEnded(below, None)]


def test_goaway_ends_waiting_calls(client: ClientConnection) -> None:
    """Calls that wait for a stream end, because the server opens no more streams."""
    client.receive(settings((3, 0)))
    started(client)
    client.receive(raw(GOAWAY, 0, 0, bytes(8)))
    assert code(ending(client)) is StatusCode.UNAVAILABLE


def test_calls_wait_for_settings_and_for_streams() -> None:
    """Nothing is opened before the server's settings, then as many as those allow, in order."""
    client = ClientConnection(clock=Clock())
    calls = [client.start_call(METHOD, b"%d" % number) for number in range(4)]
    assert HEADERS not in {frame.kind for frame in parse(everything(client))}
    client.receive(settings((3, 2)))
    everything(client)
    assert [call.stream_id for call in calls] == [1, 3, 0, 0]
    client.cancel(calls[2])
    client.receive(headers(1, RESPONSE) + headers(1, OK, LAST))
    assert [call.stream_id for call in calls][3] == 5
    client.receive(settings((3, 0)))
    client.cancel(calls[3])
    assert client.open_calls == 1


def test_deadline_counts_the_wait() -> None:
    """The timeout sent is the time left when the call is opened, and never zero."""
    clock = Clock()
    client = ClientConnection(clock=clock)
    client.start_call(METHOD, b"", deadline=clock.now + 10)
    client.start_call(METHOD, b"", deadline=clock.now + 0.5)
    clock.now += 4
    client.receive(SERVER_HELLO)
    sent = everything(client)
    assert b"grpc-timeout\x056000m" in sent
    assert b"grpc-timeout\x021u" in sent


def test_cancel(client: ClientConnection) -> None:
    """Cancelling tells the server, frees everything, and late frames are ignored."""
    call = started(client)
    client.receive(headers(1, RESPONSE) + data(1, message(b"abc") + b"\0\0"))
    client.cancel(call)
    assert [frame.payload for frame in parse(everything(client)) if frame.kind == RST_STREAM] == [
        (8).to_bytes(4, "big")
    ]
    assert client.buffered == 0
    client.take_events()
    client.receive(data(1, message(b"late")) + headers(1, OK, LAST))
    assert client.take_events() == []


def test_cancel_before_anything_left(client: ClientConnection) -> None:
    """A call cancelled before its message was sent sends nothing; other calls go on."""
    calls = [client.start_call(METHOD, b"secret %d" % number) for number in range(3)]
    client.cancel(calls[1])
    client.start_call(METHOD, b"secret 3")
    sent = [frame.payload for frame in parse(everything(client)) if frame.kind == DATA]
    assert sent == [message(b"secret %d" % number) for number in (0, 2, 3)]


def test_cancel_forgets_messages(client: ClientConnection) -> None:
    """The messages of a cancelled call are freed."""
    call = started(client)
    client.receive(headers(1, RESPONSE) + data(1, message(b"abc")))
    client.cancel(call)
    assert not call.messages


def test_slow_reader() -> None:
    """The window opens again only when every message has been taken."""
    client = new_client(Limits(stream_window=65535, connection_window=2**20))
    call = started(client)
    client.receive(headers(1, RESPONSE))
    for _ in range(4):
        client.receive(data(1, message(bytes(9_995))))
    assert everything(client) == b""
    for left in (3, 2, 1):
        client.take_message(call)
        assert everything(client) == b"", left
    client.take_message(call)
    (update,) = parse(everything(client))
    assert (update.kind, update.payload) == (WINDOW_UPDATE, (40_000).to_bytes(4, "big"))


def test_message_larger_than_the_window() -> None:
    """While nothing waits to be taken, the window opens as the parts of a message come in."""
    client = new_client(Limits(stream_window=65535, max_receive=10**6))
    call = started(client)
    client.receive(headers(1, RESPONSE))
    whole = message(bytes(200_000))
    opened = 0
    for at in range(0, len(whole), 10_000):
        client.receive(data(1, whole[at : at + 10_000]))
        updates = [each for each in parse(everything(client)) if each.stream == 1]
        opened += sum(int.from_bytes(update.payload, "big") for update in updates)
    assert opened > 200_000 - 65535
    assert client.take_message(call) == bytes(200_000)


def test_server_that_sends_too_much() -> None:
    """Messages that are not taken cannot exceed the connection's limit."""
    client = new_client(Limits(stream_window=2**20, max_buffered=100_000))
    started(client)
    client.receive(headers(1, RESPONSE))
    for _ in range(11):
        client.receive(data(1, message(bytes(9_995))))
    assert code(ending(client)) is StatusCode.RESOURCE_EXHAUSTED


def test_informational_responses(client: ClientConnection) -> None:
    """A 1xx response before the real one means nothing."""
    call = started(client)
    client.receive(headers(1, [(b":status", b"103")]) + headers(1, [*RESPONSE, *OK], LAST))
    assert client.take_events() == [CallEnded(call, None)]


def test_headers_in_pieces(client: ClientConnection) -> None:
    """A header block may come in CONTINUATION frames."""
    call = started(client)
    whole = block([*RESPONSE, *OK])
    client.receive(
        raw(HEADERS, END_STREAM, 1, whole[:5])
        + raw(CONTINUATION, 0, 1, whole[5:9])
        + raw(CONTINUATION, END_HEADERS, 1, whole[9:])
    )
    assert client.take_events() == [CallEnded(call, None)]


def test_answer_before_the_request_left(client: ClientConnection) -> None:
    """A server may end a call before it has all of the request; the rest is not sent."""
    client.receive(settings((4, 5)))
    call = started(client, b"a long request")
    client.receive(headers(1, [*RESPONSE, (b"grpc-status", b"8")], LAST))
    assert code(ending(client)) is StatusCode.RESOURCE_EXHAUSTED
    client.receive(raw(WINDOW_UPDATE, 0, 1, (1000).to_bytes(4, "big")))
    assert {frame.kind for frame in parse(everything(client))} <= {RST_STREAM}
    assert not call.pending


def test_stream_numbers_run_out(client: ClientConnection) -> None:
    """Calls on a connection without stream numbers left are UNAVAILABLE."""
    client._next_id = 2**31 + 1
    started(client)
    assert code(ending(client)) is StatusCode.UNAVAILABLE


def test_queue_is_bounded(client: ClientConnection) -> None:
    """The number of calls that wait for a stream is limited."""
    client.receive(settings((3, 0)))
    for _ in range(10_000):
        client.start_call(METHOD, b"")
    with pytest.raises(RpcError, match="waiting") as caught:
        client.start_call(METHOD, b"")
    assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
