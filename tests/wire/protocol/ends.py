"""Three implementations of HTTP/2 behind one face: ours, h2 and libnghttp2 (ngh2).

Each end takes bytes and says what they meant as facts that can be compared: `headers`, `data`,
`end`, `reset`, `goaway`, `settings` (acknowledged), `pong`, and `refuse`, whatever the scope.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import ngh2

from kubedevices.errors import ProtocolError
from kubedevices.wire.header_block import HeaderBlock
from kubedevices.wire.http2_frames import ErrorCode
from kubedevices.wire.http2_limits import MAX_FRAME_SIZE, Limits
from kubedevices.wire.http2_output import Http2Stream
from kubedevices.wire.http2_session import Http2Session
from tests.wire.frames import ACK, GOAWAY, OK, PING, REQUEST, RST_STREAM, SETTINGS, parse

Fact = tuple[Any, ...]
LIMITS = Limits(max_streams=100, stream_window=65535, connection_window=2**20)
WINDOW = LIMITS.connection_window - 65535
RESPONSE = [(b":status", b"200"), *OK]


class End(ABC):
    """One end of one connection; `is_over` once it broke the connection off."""

    name = ""

    def __init__(self, *, is_client: bool) -> None:
        self.is_client = is_client
        self.is_over = False
        self.fault: Exception | None = None

    @abstractmethod
    def take(self, data: bytes) -> tuple[list[Fact], bytes]:
        """Receive; return the facts that only events tell, and the output."""

    @abstractmethod
    def open(self) -> None:
        """Begin a request without ending it."""

    @abstractmethod
    def finish(self, stream: int) -> None:
        """End our side of a stream: with headers on a server, with no data on a client."""

    @abstractmethod
    def reset(self, stream: int) -> None:
        """End a stream at once."""

    @abstractmethod
    def room(self, stream: int) -> int:
        """Return how much may be sent on a stream that we have not finished."""

    def receive(self, data: bytes) -> list[Fact]:
        """Return the facts of some bytes, in an order of their own."""
        facts, output = self.take(data)
        for frame in parse(output):
            if frame.kind == RST_STREAM:
                facts.append(("refuse",))
            elif frame.kind == GOAWAY and frame.payload[4:8] != bytes(4):
                self.is_over = True
            elif frame.kind == PING and frame.flags & ACK:
                facts.append(("pong", frame.payload))
            elif frame.kind == SETTINGS and frame.flags & ACK:
                facts.append(("settings",))
        if self.is_over:
            return [("refuse",)]
        return sorted(set(_joined(facts)), key=repr)


def _joined(facts: list[Fact]) -> Iterator[Fact]:
    for fact in facts:
        if fact[0] == "headers":
            yield (*fact[:2], tuple((bytes(name), bytes(value)) for name, value in fact[2]))
        elif fact[0] != "data" or fact[2]:
            yield fact


class _Recorder(Http2Session[Http2Stream]):
    """Our session, writing down what happens."""

    def __init__(self, *, is_client: bool) -> None:
        self.is_client = is_client
        self.facts: list[Fact] = []
        super().__init__(clock=lambda: 0.0, limits=LIMITS)

    def new_stream(self) -> Http2Stream:
        return Http2Stream()

    def on_headers(self, stream: Http2Stream, block: HeaderBlock, *, is_end: bool) -> None:
        self.facts.append(("headers", stream.stream_id, block.fields))
        if is_end:
            self.facts.append(("end", stream.stream_id))

    def on_data(self, stream: Http2Stream, data: bytes, size: int) -> None:
        self.facts.append(("data", stream.stream_id, data))
        self.acknowledge(stream, size)

    def on_end(self, stream: Http2Stream, trailers: HeaderBlock | None) -> None:
        if trailers is not None:
            self.facts.append(("headers", stream.stream_id, trailers.fields))
        self.facts.append(("end", stream.stream_id))

    def on_reset(self, stream: Http2Stream, code: int, error: str) -> None:
        if not error:
            self.facts.append(("reset", stream.stream_id, code))

    def on_send_window(self, stream: Http2Stream) -> None: ...

    def on_settings(self) -> None: ...

    def on_pong(self) -> None: ...

    def on_go_away(self, last_stream_id: int, reason: str) -> None:
        self.facts.append(("goaway", last_stream_id))

    def on_connection_error(self, reason: str) -> None: ...


class Ours(End):
    """`Http2Session`."""

    name = "ours"

    def __init__(self, *, is_client: bool) -> None:
        super().__init__(is_client=is_client)
        self.session = _Recorder(is_client=is_client)

    def take(self, data: bytes) -> tuple[list[Fact], bytes]:
        """Receive."""
        try:
            self.session.receive(data)
        except ProtocolError:
            self.is_over = True
        facts, self.session.facts = self.session.facts, []
        return facts, self.session.take_output()

    def open(self) -> None:
        """Begin a request."""
        self.session.open_stream(Http2Stream(), tuple(REQUEST))

    def finish(self, stream: int) -> None:
        """End our side."""
        found = self.session.streams[stream]
        if self.is_client:
            self.session.send_data(found, memoryview(b""), is_end=True)
        else:
            self.session.send_headers(found, tuple(RESPONSE), is_end=True)
        self.session.take_output()

    def reset(self, stream: int) -> None:
        """End a stream."""
        self.session.reset(self.session.streams[stream], ErrorCode.CANCEL)
        self.session.take_output()

    def room(self, stream: int) -> int:
        """Return the smaller window."""
        return min(self.session.streams[stream].send_window, self.session.send_window)

    def unfinished(self) -> list[int]:
        """Return the streams on which we may send."""
        return [key for key, stream in self.session.streams.items() if not stream.is_local_closed]

    def may(self, what: str, stream: int) -> bool:
        """Whether a stream can be finished or reset."""
        found = self.session.streams.get(stream)
        return found is not None and (what == "reset" or not found.is_local_closed)

    def state(self, stream: int) -> str:
        """Return the state of a stream as RFC 9113 names it, and whose it would be."""
        if not stream:
            return "no stream"
        found = self.session.streams.get(stream)
        if found is not None:
            return {
                (False, False): "open",
                (True, False): "half-closed (remote)",
                (False, True): "half-closed (local)",
            }[found.is_remote_closed, found.is_local_closed]
        if stream % 2 == 0:
            return "even"
        last = self.session._next_id - 2 if self.is_client else self.session._last_peer_id
        if stream > last:
            return "idle"
        return {True: "left", False: "closed", None: "skipped"}[
            self.session._ended_streams.get(stream)
        ]


class H2(End):
    """h2, strict as it can be."""

    name = "h2"

    def __init__(self, *, is_client: bool) -> None:
        super().__init__(is_client=is_client)
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(
                client_side=is_client, header_encoding=None, normalize_inbound_headers=False
            )
        )
        codes = h2.settings.SettingCodes
        self.h2.local_settings = h2.settings.Settings(
            client=is_client,
            initial_values={
                codes.ENABLE_PUSH: 0,
                codes.MAX_CONCURRENT_STREAMS: LIMITS.max_streams,
                codes.MAX_FRAME_SIZE: MAX_FRAME_SIZE,
                codes.MAX_HEADER_LIST_SIZE: Limits().max_header_block,
            },
        )
        self.h2.max_inbound_frame_size = MAX_FRAME_SIZE
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(WINDOW)

    def take(self, data: bytes) -> tuple[list[Fact], bytes]:
        """Receive."""
        facts: list[Fact] = []
        try:
            for event in self.h2.receive_data(data):
                facts += self._facts(event)
        except Exception as error:
            # More than its own errors come through: KeyError, AssertionError.
            self.is_over, self.fault = True, error
        return facts, self.h2.data_to_send()

    def _facts(self, event: Any) -> Iterator[Fact]:
        match event:
            case (
                h2.events.RequestReceived()
                | h2.events.ResponseReceived()
                | h2.events.TrailersReceived()
            ):
                yield "headers", event.stream_id, event.headers
            case h2.events.DataReceived():
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                yield "data", event.stream_id, event.data
            case h2.events.StreamEnded():
                yield "end", event.stream_id
            case h2.events.StreamReset(remote_reset=True):
                yield "reset", event.stream_id, int(event.error_code)
            case h2.events.ConnectionTerminated():
                last = event.last_stream_id or 0
                yield "goaway", last & 0x7FFFFFFF  # h2 leaves the reserved bit in

    def open(self) -> None:
        """Begin a request."""
        self.h2.send_headers(self.h2.get_next_available_stream_id(), REQUEST)

    def finish(self, stream: int) -> None:
        """End our side."""
        if self.is_client:
            self.h2.end_stream(stream)
        else:
            self.h2.send_headers(stream, RESPONSE, end_stream=True)
        self.h2.data_to_send()

    def reset(self, stream: int) -> None:
        """End a stream."""
        self.h2.reset_stream(stream, 8)
        self.h2.data_to_send()

    def room(self, stream: int) -> int:
        """Return the smaller window."""
        return self.h2.local_flow_control_window(stream)


class Ngh2(End):
    """libnghttp2."""

    name = "ngh2"

    def __init__(self, *, is_client: bool) -> None:
        super().__init__(is_client=is_client)
        role = ngh2.Role.CLIENT if is_client else ngh2.Role.SERVER
        generous = ngh2.Configuration(
            max_continuations=10_000, max_settings=20_000, max_outbound_ack=10_000
        )
        self.ngh2 = ngh2.Connection(role, generous)
        settings = {
            ngh2.Setting.MAX_CONCURRENT_STREAMS: LIMITS.max_streams,
            ngh2.Setting.MAX_FRAME_SIZE: MAX_FRAME_SIZE,
            ngh2.Setting.MAX_HEADER_LIST_SIZE: Limits().max_header_block,
        }
        if is_client:
            settings[ngh2.Setting.ENABLE_PUSH] = 0
        self.ngh2.initiate_connection(settings)
        self.ngh2.set_local_window_size(LIMITS.connection_window)

    def take(self, data: bytes) -> tuple[list[Fact], bytes]:
        """Receive."""
        try:
            self.ngh2.receive_data(data)
        except ngh2.NGH2Error as error:
            self.is_over, self.fault = True, error
        facts = [fact for event in self.ngh2.events() for fact in self._facts(event)]
        return facts, self.ngh2.data_to_send()

    def _facts(self, event: Any) -> Iterator[Fact]:
        match event:
            case ngh2.RequestReceived(stream, fields, end) | ngh2.ResponseReceived(
                stream, fields, end
            ):
                yield "headers", stream, fields
                if end:
                    yield "end", stream
            case ngh2.TrailersReceived(stream, fields):
                yield "headers", stream, fields
                yield "end", stream
            case ngh2.DataReceived(stream, data, end):
                yield "data", stream, data
                if end:
                    yield "end", stream
            case ngh2.StreamReset(stream, code):
                yield "reset", stream, code
            case ngh2.GoAwayReceived():
                yield "goaway", event.last_stream_id

    def open(self) -> None:
        """Begin a request."""
        self.ngh2.send_request(REQUEST, end_stream=False)

    def finish(self, stream: int) -> None:
        """End our side."""
        if self.is_client:
            self.ngh2.end_stream(stream)
        else:
            self.ngh2.send_response(stream, RESPONSE, end_stream=True)
        self.ngh2.data_to_send()

    def reset(self, stream: int) -> None:
        """End a stream."""
        self.ngh2.reset_stream(stream)
        self.ngh2.data_to_send()

    def room(self, stream: int) -> int:
        """Return the smaller window."""
        return min(self.ngh2.stream_remote_window_size(stream), self.ngh2.remote_window_size)
