"""Our two ends of a connection, each with a peer of another library (h2) and a model of the calls.

The input is a list of steps: calls are opened, continued, answered and reset, settings and windows
change, and bytes travel in parts. h2 raises an error for a frame that we may not send: a wrong
state, more data than a window allows, a header block that cannot be read. The model knows what each
call must have received in the end. After a hostile frame h2 no longer matters; then only the limits
count.
"""

from dataclasses import dataclass, field
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    RequestReceived,
    ResponseReceived,
    SettingsAcknowledged,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.settings import SettingCodes
from hypothesis import strategies as st

from kubedevices.errors import ProtocolError, RpcError, StatusCode
from kubedevices.wire import grpc_events as ours
from kubedevices.wire.client_connection import ClientConnection
from kubedevices.wire.grpc_connection import GrpcConnection
from kubedevices.wire.http2_frames import PREFACE
from kubedevices.wire.http2_limits import MAX_FRAME_SIZE, Limits
from kubedevices.wire.server_connection import ServerConnection
from tests.fuzz.inputs import Numbers
from tests.fuzz.target import Target
from tests.wire.frames import METHOD, OK, REQUEST, RESPONSE, Clock, message, parse, raw

LIMITS = Limits(
    max_receive=2000,
    max_streams=4,
    stream_window=65535,
    connection_window=2**17,
    max_buffered=20_000,
)
KEPT = LIMITS.max_buffered + LIMITS.max_receive + MAX_FRAME_SIZE + LIMITS.max_header_block
_REFUSED_STREAM, _CANCEL = 7, 8
MOST_STEPS = 60


@dataclass
class Stream:
    """What the peer knows about a call."""

    unsent: bytes = b""
    got: bytearray = field(default_factory=bytearray)
    status: bytes | None = None
    is_reset = False
    has_ended = False
    unacknowledged = 0


class Pair:
    """One of our connections and an h2 peer, and the bytes that are under way."""

    def __init__(self, connection: GrpcConnection, *, peer_is_client: bool) -> None:
        self.connection, self.clock = connection, Clock()
        config = H2Configuration(client_side=peer_is_client, header_encoding=None)
        self.peer = H2Connection(config)
        self.peer.initiate_connection()
        self.to_us, self.to_peer, self.said = b"", b"", b""
        self.streams: dict[int, Stream] = {}
        self.is_hostile = self.is_over = False
        # h2 takes any ACK for the ACK of all its SETTINGS. So only one may be under way.
        self.is_setting = True

    # ------------------------------------------------------------ bytes

    def collect(self) -> None:
        """Take what both sides want to send."""
        for _ in range(1000):
            output = self.connection.take_output()
            if not output:
                break
            self.to_peer += output
        else:
            raise AssertionError("no end of output")
        self.to_us += self.peer.data_to_send()

    def carry(self, count: int) -> None:
        """Bring up to `count` bytes to each side."""
        self.collect()
        here, self.to_us = self.to_us[:count], self.to_us[count:]
        there, self.to_peer = self.to_peer[:count], self.to_peer[count:]
        if here and not self.is_over:
            try:
                self.connection.receive(here)
            except ProtocolError:
                assert self.is_hostile, "h2 says nothing wrong"
                self.is_over = True
            assert self.connection.buffered <= KEPT
        for event in self.connection.take_events():
            self.on_our_event(event)
        if there and not self.is_hostile:
            for each in self.peer.receive_data(there):
                self.on_peer_event(each)
        self.said += there

    def settle(self) -> None:
        """Bring everything, and open all windows, until both are silent."""
        for _ in range(500):
            for number in self.streams:
                self.open_window(number)
            self.collect()
            if not self.to_us and not self.to_peer:
                return
            self.carry(10**9)
        raise AssertionError("the two never fall silent")

    def open_window(self, number: int) -> None:
        stream = self.streams[number]
        size, stream.unacknowledged = stream.unacknowledged, 0
        if size and not self.is_hostile:
            self.peer.acknowledge_received_data(size, number)

    def send_part(self, number: int, most: int, *, end: bool = True) -> None:
        """Send the next part of the peer's bytes, as the windows allow."""
        stream = self.streams[number]
        if stream.is_reset or stream.has_ended or self.is_hostile:
            return
        room = min(self.peer.local_flow_control_window(number), self.peer.max_outbound_frame_size)
        part = stream.unsent[: max(0, min(most, room))]
        stream.unsent = stream.unsent[len(part) :]
        is_last = end and not stream.unsent
        if part or is_last:
            self.peer.send_data(number, part, end_stream=is_last)
            stream.has_ended = is_last

    # ------------------------------------------------------------ steps of both roles

    def common_step(self, kind: int, numbers: Numbers) -> None:
        """Act as any peer may."""
        peer = self.peer
        if kind == 0:
            self.carry(10**9)
        elif kind == 1:
            self.carry(numbers.below(300))
        elif kind == 2 and not self.is_hostile:
            peer.ping(numbers.take(8).ljust(8, b"\0"))
        elif kind == 3 and not self.is_hostile and not self.is_setting:
            name, value = (
                (SettingCodes.INITIAL_WINDOW_SIZE, numbers.below(70_000)),
                (SettingCodes.MAX_FRAME_SIZE, 16384 + numbers.below(1000)),
                (SettingCodes.HEADER_TABLE_SIZE, numbers.below(5000)),
                (SettingCodes.MAX_CONCURRENT_STREAMS, numbers.below(6)),
            )[numbers.below(4)]
            peer.update_settings({name: value})
            self.is_setting = True
        elif kind == 4:
            for number in self.streams:
                self.open_window(number)
        elif kind == 5:
            self.clock.now += numbers.below(20) / 10
        elif kind == 6:
            self.connection.ping()
        elif kind == 7:
            self.is_hostile = True
            size = numbers.below(40)
            self.to_us += raw(
                numbers.below(12), numbers.below(256), numbers.below(9), numbers.take(size)
            )

    def on_our_event(self, event: ours.Event) -> None:
        raise NotImplementedError

    def on_peer_event(self, event: object) -> None:
        stream = self.streams.get(getattr(event, "stream_id", 0) or 0)
        if isinstance(event, SettingsAcknowledged):
            self.is_setting = False
        if isinstance(event, ConnectionTerminated):
            assert not event.error_code, event
        if stream is None:
            return
        if isinstance(event, DataReceived):
            stream.got += event.data
            stream.unacknowledged += event.flow_controlled_length
        elif isinstance(event, ResponseReceived | TrailersReceived):
            stream.status = dict(event.headers).get(b"grpc-status", stream.status)
        elif isinstance(event, StreamReset):
            stream.is_reset = True
        elif isinstance(event, StreamEnded):
            assert not stream.is_reset


class ServerPair(Pair):
    """Our server with the client of h2. The server answers with the request, some times."""

    def __init__(self) -> None:
        self.server = ServerConnection(clock=Clock(), limits=LIMITS)
        super().__init__(self.server, peer_is_client=True)
        self.wanted: dict[int, bytes] = {}
        self.open_calls: list[ours.Call] = []
        self.payloads: dict[int, bytes] = {}
        self.answers: dict[int, bytes] = {}
        self.finished: dict[int, StatusCode] = {}

    def step(self, kind: int, numbers: Numbers) -> None:
        if kind < 8:
            self.common_step(kind, numbers)
        elif kind == 8 and not self.is_hostile:
            most = self.peer.remote_settings.max_concurrent_streams
            if self.peer.open_outbound_streams < most:
                payload = bytes((numbers.below(256),)) * numbers.below(LIMITS.max_receive)
                number = self.peer.get_next_available_stream_id()
                self.peer.send_headers(number, REQUEST)
                self.streams[number] = Stream(message(payload))
                self.payloads[number] = payload
                self.send_part(number, numbers.below(3000))
        elif kind == 9 and self.streams:
            number = sorted(self.streams)[numbers.below(len(self.streams))]
            self.send_part(number, numbers.below(3000))
        elif kind == 10 and self.streams and not self.is_hostile:
            number = sorted(self.streams)[numbers.below(len(self.streams))]
            stream = self.streams[number]
            if not stream.is_reset and stream.status is None:
                self.peer.reset_stream(number, _CANCEL)
                stream.is_reset = True
        elif kind == 11 and self.open_calls:
            call = self.open_calls[numbers.below(len(self.open_calls))]
            if not call.pending and not call.ended:
                answer = bytes((numbers.below(256),)) * numbers.below(90_000)
                self.answers[call.stream_id] = self.answers.get(call.stream_id, b"") + message(
                    answer
                )
                self.server.send(call, answer)
        elif kind == 12 and self.open_calls:
            self.finish(self.open_calls.pop(numbers.below(len(self.open_calls))), numbers.below(3))

    def finish(self, call: ours.Call, how: int) -> None:
        if not call.ended:
            code = StatusCode.ABORTED if how == 2 else StatusCode.OK
            if code is StatusCode.OK or not call.pending:
                self.finished[call.stream_id] = code
            else:
                self.answers.pop(call.stream_id)  # half a message: the call is reset
            self.server.finish(call, code, "nö")

    def on_our_event(self, event: ours.Event) -> None:
        if isinstance(event, ours.RequestReceived):
            number = event.call.stream_id
            self.open_calls.append(event.call)
            if not self.is_hostile:
                assert event.payload == self.payloads[number]
        elif isinstance(event, ours.CallEnded):
            self.open_calls = [each for each in self.open_calls if each is not event.call]

    def end(self) -> None:
        for number in self.streams:
            while self.streams[number].unsent and not self.streams[number].is_reset:
                before = len(self.streams[number].unsent)
                self.settle()
                self.send_part(number, 3000)
                if len(self.streams[number].unsent) == before:
                    break
        self.settle()
        for call in self.open_calls:
            self.finish(call, 0)
        self.settle()
        for number, stream in self.streams.items():
            code = self.finished.get(number)
            if code is StatusCode.OK and not stream.is_reset:
                assert bytes(stream.got) == self.answers.get(number, b"")
                assert stream.status == b"0", (number, stream.status)
            elif code is not None and stream.status is not None:
                assert stream.status in (b"0", b"10"), stream.status


class ClientPair(Pair):
    """Our client with the server of h2, which answers with messages of its own."""

    def __init__(self) -> None:
        self.client = ClientConnection(clock=Clock(), limits=LIMITS)
        super().__init__(self.client, peer_is_client=False)
        self.calls: list[ours.Call] = []
        self.refused: list[ours.Call] = []
        self.ended: dict[ours.Call, RpcError | None] = {}
        self.got: dict[ours.Call, list[bytes]] = {}
        self.requests: dict[int, bytes] = {}
        self.sent: dict[int, list[bytes]] = {}
        self.is_closed: set[int] = set()

    def step(self, kind: int, numbers: Numbers) -> None:
        if kind < 8:
            self.common_step(kind, numbers)
        elif kind == 8:
            payload = bytes((numbers.below(256),)) * numbers.below(90_000)
            try:
                call = self.client.start_call(METHOD, payload)
            except RpcError:
                assert self.client.is_over
                return
            self.calls.append(call)
            self.requests[id(call)] = message(payload)
        elif kind == 9 and self.streams and not self.is_hostile:
            number = sorted(self.streams)[numbers.below(len(self.streams))]
            self.answer(number, numbers)
        elif kind == 10 and self.streams and not self.is_hostile:
            number = sorted(self.streams)[numbers.below(len(self.streams))]
            stream = self.streams[number]
            if not stream.is_reset and number not in self.is_closed:
                code = (_REFUSED_STREAM, _CANCEL)[numbers.below(2)]
                self.peer.reset_stream(number, code)
                stream.is_reset = True
        elif kind == 11 and self.calls:
            self.client.cancel(self.calls[numbers.below(len(self.calls))])
        elif kind == 12 and self.refused:
            self.client.retry(self.refused.pop())

    def answer(self, number: int, numbers: Numbers) -> None:
        """Send headers, or a message, or trailers."""
        stream = self.streams[number]
        if stream.is_reset or number in self.is_closed:
            return
        if number not in self.sent:
            self.peer.send_headers(number, RESPONSE)
            self.sent[number] = []
        elif stream.unsent:
            self.send_part(number, numbers.below(3000), end=False)
        elif numbers.below(3):
            payload = bytes((numbers.below(256),)) * numbers.below(LIMITS.max_receive)
            self.sent[number].append(payload)
            stream.unsent = message(payload)
            self.send_part(number, numbers.below(3000), end=False)
        else:
            self.peer.send_headers(number, OK, end_stream=True)
            self.is_closed.add(number)

    def on_peer_event(self, event: object) -> None:
        if isinstance(event, RequestReceived):
            assert event.stream_id
            self.streams[event.stream_id] = Stream()
        super().on_peer_event(event)

    def on_our_event(self, event: ours.Event) -> None:
        if isinstance(event, ours.MessageReceived):
            if event.call.messages:
                self.got.setdefault(event.call, []).append(self.client.take_message(event.call))
        elif isinstance(event, ours.CallEnded):
            assert event.call not in self.ended
            self.ended[event.call] = event.error
        elif isinstance(event, ours.CallRefused):
            self.refused.append(event.call)

    def end(self) -> None:
        numbers = Numbers(b"")
        for _ in range(200):
            self.settle()
            for number in self.streams:
                self.answer(number, numbers)
            if not any(each.unsent and not each.is_reset for each in self.streams.values()):
                break
        self.settle()
        for call, error in self.ended.items():
            if error is None and call.stream_id in self.sent:
                assert self.got.get(call, []) == self.sent[call.stream_id]


def _played(pair: Any, data: bytes) -> None:
    numbers = Numbers(data)
    for _ in range(MOST_STEPS):
        if numbers.is_over or pair.is_over:
            break
        pair.step(numbers.below(256) % 13, numbers)
    if not pair.is_hostile and not pair.is_over:
        pair.end()
    pair.collect()
    said = pair.said + pair.to_peer
    frames = list(parse(said))
    assert sum(9 + len(each.payload) for each in frames) == len(said.removeprefix(PREFACE))


def check_server(data: bytes) -> None:
    """Our server with the client of h2."""
    _played(ServerPair(), data)


def check_client(data: bytes) -> None:
    """Our client with the server of h2."""
    _played(ClientPair(), data)


_steps = st.lists(
    st.builds(lambda kind, rest: bytes((kind,)) + rest, st.integers(0, 12), st.binary(max_size=6)),
    max_size=MOST_STEPS,
).map(b"".join)
_peaceful = st.lists(
    st.builds(
        lambda kind, rest: bytes((kind,)) + rest,
        st.sampled_from([0, 1, 2, 3, 4, 5, 6, 8, 8, 9, 9, 9, 10, 11, 11, 12]),
        st.binary(max_size=6),
    ),
    max_size=MOST_STEPS,
).map(b"".join)
_also = st.one_of(_steps, _peaceful)
_SEEDS = (bytes([0, 8, 1, 0, 200, 0, 0, 0, 11, 0, 7, 0, 3, 0, 12, 0, 0, 0]),)
TARGETS = [
    Target("http2-server", check_server, _SEEDS, (bytes((8, 0, 1)),), _also),
    Target("http2-client", check_client, _SEEDS, (bytes((8, 0, 1)),), _also),
]
