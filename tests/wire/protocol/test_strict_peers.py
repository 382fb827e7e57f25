"""Our two ends with h2 and libnghttp2 as the other: neither finds a fault in what we send.

They look at numbers of streams, windows, sizes of frames, states, fields and the tables of HPACK.
What they do not look at, flags and reserved bits, is looked at here.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from kubedevices.errors import StatusCode
from kubedevices.wire.client_connection import ClientConnection
from kubedevices.wire.grpc_connection import GrpcConnection
from kubedevices.wire.grpc_events import CallEnded, RequestReceived
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
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Clock,
    everything,
    message,
    parse,
)
from tests.wire.protocol.differential import ORACLES
from tests.wire.protocol.ends import H2, End, Ngh2

FLAGS = {
    DATA: END_STREAM,
    HEADERS: END_STREAM | END_HEADERS,
    RST_STREAM: 0,
    SETTINGS: ACK,
    PING: ACK,
    GOAWAY: 0,
    WINDOW_UPDATE: 0,
    CONTINUATION: END_HEADERS,
}
SIZES = (0, 5, 16_380, 65_536, 300_000)
"""Of messages: nothing, less and more than a frame, more than a window."""


class StrictPeer:
    """The other end: hands bytes over, fails for any fault, and collects what streams carried."""

    def __init__(self, end: End, ours: GrpcConnection) -> None:
        self.end, self.ours = end, ours
        self.bodies: dict[int, bytes] = defaultdict(bytes)
        self.fields: dict[int, dict[bytes, bytes]] = defaultdict(dict)
        self.ended: list[int] = []

    def exchange(self) -> None:
        """Carry bytes until both are silent."""
        while True:
            said = everything(self.ours)
            heard = b"".join(self._hand_over(said))
            if heard:
                self.ours.receive(heard)
            if not said and not heard:
                return

    def _hand_over(self, said: bytes) -> Iterator[bytes]:
        for frame in parse(said):
            assert not frame.flags & ~FLAGS[frame.kind]
            assert frame.stream < 2**31
        facts, output = self.end.take(said)
        assert not self.end.is_over, self.end.fault
        for fact in facts:
            if fact[0] == "headers":
                self.fields[fact[1]] |= {bytes(name): bytes(value) for name, value in fact[2]}
            elif fact[0] == "data":
                self.bodies[fact[1]] += fact[2]
            elif fact[0] == "end":
                self.ended.append(fact[1])
        yield output

    def send(self, stream: int, payload: bytes, *, is_end: bool) -> None:
        """Send as much at once as the windows let through, and go on until all has left."""
        if isinstance(self.end, Ngh2):
            self.end.ngh2.send_data(stream, payload, end_stream=is_end)
            return
        assert isinstance(self.end, H2)
        h2: Any = self.end.h2
        while payload:
            size = min(h2.local_flow_control_window(stream), h2.max_outbound_frame_size)
            h2.send_data(stream, payload[:size], end_stream=is_end and size >= len(payload))
            payload = payload[size:]
            self.exchange()

    def respond(self, stream: int, payload: bytes) -> None:
        """Answer with one message and the status OK."""
        first, last = [(b":status", b"200"), (b"content-type", b"application/grpc")], b"0"
        if isinstance(self.end, Ngh2):
            self.end.ngh2.send_response(stream, first)
            self.send(stream, payload, is_end=False)
            self.exchange()
            self.end.ngh2.send_trailers(stream, [(b"grpc-status", last)])
        elif isinstance(self.end, H2):
            self.end.h2.send_headers(stream, first)
            self.send(stream, payload, is_end=False)
            self.end.h2.send_headers(stream, [(b"grpc-status", last)], end_stream=True)


strict = pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)


@strict
def test_our_client_with_a_strict_server(oracle: type[End]) -> None:
    """Calls of all sizes, some of them cancelled, and answers of the same sizes."""
    client = ClientConnection(clock=Clock())
    peer = StrictPeer(oracle(is_client=False), client)
    peer.exchange()
    calls = [client.start_call(METHOD, bytes(size), deadline=2000.0) for size in SIZES]
    cancelled = [client.start_call(METHOD, bytes(size)) for size in SIZES]
    peer.exchange()
    for call in cancelled:
        client.cancel(call)
    client.ping()
    peer.exchange()
    assert sorted(peer.ended) == [*range(1, 20, 2)]
    for size, call in zip(SIZES, calls, strict=True):
        assert peer.bodies[call.stream_id] == message(bytes(size))
        assert peer.fields[call.stream_id][b":path"] == METHOD.encode()
        stream = call.stream_id
        peer.respond(stream, message(bytes(size)))
        peer.exchange()
        assert client.take_message(call) == bytes(size)
    ends = [each for each in client.take_events() if isinstance(each, CallEnded)]
    assert [each.error for each in ends] == [None] * len(SIZES)


@strict
def test_our_server_with_a_strict_client(oracle: type[End]) -> None:
    """Answers of all sizes, statuses alone, and a call that is refused before it is complete."""
    server = ServerConnection(clock=Clock())
    peer = StrictPeer(oracle(is_client=True), server)
    for _ in (*SIZES, "failed"):
        peer.end.open()
    peer.exchange()
    for stream, size in enumerate((*SIZES, 7)):
        peer.send(2 * stream + 1, message(bytes(size)), is_end=True)
        peer.exchange()
        (request,) = (each for each in server.take_events() if isinstance(each, RequestReceived))
        assert request.payload == bytes(size)
        if size == 7:
            server.finish(request.call, StatusCode.NOT_FOUND, "no «seven»")
        else:
            server.send(request.call, request.payload)
            server.finish(request.call)
        peer.exchange()
    server.ping()
    peer.end.open()
    peer.exchange()
    (early,) = server.streams.values()
    server.finish(early, StatusCode.ABORTED, "early")
    peer.exchange()
    assert peer.ended == [1, 3, 5, 7, 9, 11, 13]
    assert [len(peer.bodies[2 * at + 1]) for at in range(5)] == [size + 5 for size in SIZES]
    statuses = [peer.fields[stream][b"grpc-status"] for stream in peer.ended]
    assert statuses == [b"0"] * 5 + [b"5", b"10"]
