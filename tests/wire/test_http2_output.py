"""What a session sends: windows, frames of the peer's size, streams that it has left."""

from kubedevices.wire import http2_output
from kubedevices.wire.grpc_events import Call
from kubedevices.wire.http2_frames import ErrorCode
from kubedevices.wire.server_connection import ServerConnection
from tests.wire.frames import (
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    METHOD,
    RST_STREAM,
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
    settings,
)


def opened(server: ServerConnection, stream: int = 1) -> Call:
    """Let a call come to a server."""
    server.receive(headers(stream) + data(stream, message(b"x"), end=True))
    return server.streams[stream]


def test_headers_of_any_size() -> None:
    """Blocks above the peer's frame size go on in CONTINUATION frames, and end in the last."""
    server = new_server()
    long = (b"x", b"y" * 40_000)
    server.send_headers(opened(server), (long,), is_end=True)
    sent = list(parse(everything(server)))
    assert [(each.kind, each.flags) for each in sent] == [
        (HEADERS, END_STREAM),
        (CONTINUATION, 0),
        (CONTINUATION, END_HEADERS),
    ]
    assert [len(each.payload) for each in sent[:2]] == [16384, 16384]


def test_sendable_is_the_smallest_limit() -> None:
    """Window of the stream, window of the connection, size of a frame."""
    server = new_server()
    call = opened(server)
    assert server.sendable(call) == 16384
    server.receive(settings((5, 100_000), (4, 2**20)))
    assert server.sendable(call) == 65535  # of the connection
    server.receive(raw(8, 0, 0, (2**20).to_bytes(4, "big")))
    assert server.sendable(call) == http2_output.MAX_DATA
    server.receive(settings((4, 10)))
    assert server.sendable(call) == 10
    server.send_data(call, memoryview(b"0123456789"), is_end=False)
    server.receive(settings((4, 5)))
    assert server.sendable(call) == -5


def test_an_ended_stream_sends_nothing() -> None:
    """Every method may be called at any time, so that callers need no check before."""
    server = new_server()
    call = opened(server)
    server.reset(call, ErrorCode.CANCEL)
    assert [each.kind for each in parse(everything(server))] == [RST_STREAM]
    server.reset(call, ErrorCode.CANCEL)
    server.send_headers(call, ())
    server.acknowledge(call, 1)
    assert everything(server) == b""
    refused(server, raw(6, 0, 1, bytes(8)))
    server.ping()
    server.go_away()
    assert everything(server) == b""


def test_late_frames_for_streams_that_we_reset_are_allowed() -> None:
    """Also after many later resets; for streams that the peer ended, late frames are an error."""
    client = new_client()
    calls = [client.start_call(METHOD, b"") for _ in range(http2_output.MAX_REMEMBERED + 50)]
    for call in calls:
        client.cancel(call)
    everything(client)
    for stream in (1, 3, 2 * len(calls) - 1):
        client.receive(headers(stream, [(b":status", b"200")]) + data(stream, b"late"))
    assert len(client._ended_streams) == http2_output.MAX_REMEMBERED


def test_late_frames_for_streams_that_the_peer_ended_are_errors() -> None:
    """A peer that ended a stream and sends more frames on it breaks the protocol."""
    joined = Joined()
    joined.client.start_call(METHOD, b"x")
    joined.exchange()
    joined.server.finish(joined.server.streams[1])
    joined.exchange()
    assert "has ended" in refused(joined.server, headers(1))


def test_slow_readers_cost_nothing_while_the_connection_is_full() -> None:
    """While messages wait for the connection's window, one more byte causes work for one call."""
    server = new_server()
    for stream in range(1, 201, 2):
        server.send(opened(server, stream), bytes(10_000))
    everything(server)
    waiting = list(server._send_queue)
    server.receive(raw(8, 0, 0, (1).to_bytes(4, "big")))
    assert sum(len(each.payload) for each in parse(everything(server))) == 1
    assert len(server._send_queue) == len(waiting)
    assert waiting[1] is next(iter(server._send_queue))
