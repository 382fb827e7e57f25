"""HTTP/2 as far as gRPC needs it (RFC 9113), without I/O: `receive` calls `on_…` methods.

Base of `grpc_connection`. The session checks the rules of one connection: the order of frames, the
states of streams, the windows in both directions, limits. `receive` raises only `ProtocolError`,
for any bytes from the peer; after it the connection is over.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

from kubedevices.errors import ProtocolError
from kubedevices.wire import http2_frames as frames
from kubedevices.wire.header_block import HeaderBlock, HeaderKind
from kubedevices.wire.hpack import Decoder
from kubedevices.wire.http2_frames import (
    ACK,
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    HEAD,
    MAX_31,
    PADDED,
    PREFACE,
    SETTINGS,
    WINDOW_UPDATE,
    ErrorCode,
)
from kubedevices.wire.http2_limits import MAX_FRAME_SIZE, FloodGuard, Limits
from kubedevices.wire.http2_output import Http2Output, S


class Http2Session(Http2Output[S], ABC):
    """One end of an HTTP/2 connection; subclasses implement the `on_…` methods."""

    def __init__(self, *, clock: Callable[[], float], limits: Limits) -> None:
        super().__init__(clock=clock, limits=limits)
        self._decoder = Decoder(limits.max_header_block)
        # For the connection, in bytes: what the peer may still send, and what has arrived since our
        # last WINDOW_UPDATE.
        self._receive_window, self._unacknowledged = limits.connection_window, 0
        self._preface = b"" if self.is_client else PREFACE  # the part that has not arrived yet
        # An incomplete frame, and how many bytes it needs.
        self._rest, self._wanted = bytearray(), 0
        # A header block that CONTINUATION frames will complete.
        self._block, self._block_stream, self._block_flags = bytearray(), 0, 0
        self._required_kind: int | None = SETTINGS  # the next frame must have this type
        # The index in this tuple is the type of the frame (RFC 9113, section 6). Other types are
        # ignored (section 4.1).
        self._readers = (
            self._read_data,
            self._read_headers,
            self._read_priority,
            self._read_rst_stream,
            self._read_settings,
            self._read_push_promise,
            self._read_ping,
            self._read_goaway,
            self._read_window_update,
            self._read_continuation,
        )

    @property
    def buffered(self) -> int:
        """Received bytes of incomplete frames and header blocks."""
        return len(self._rest) + len(self._block)

    # ------------------------------------------------------------ implemented by subclasses

    @abstractmethod
    def new_stream(self) -> S:
        """Return the object for a stream that a client opens; called on servers."""

    @abstractmethod
    def on_headers(self, stream: S, block: HeaderBlock, *, is_end: bool) -> None:
        """Request or response headers came; `is_end`: the peer sends nothing more."""

    @abstractmethod
    def on_data(self, stream: S, data: bytes, size: int) -> None:
        """Payload arrived; `size` is the bytes of `data` and padding: flow control counts both."""

    @abstractmethod
    def on_end(self, stream: S, trailers: HeaderBlock | None) -> None:
        """The peer has ended its side of the stream, in a frame after its headers."""

    @abstractmethod
    def on_reset(self, stream: S, code: int, error: str) -> None:
        """The stream was reset: by the peer (`error` is ""), or by us because of this `error`."""

    @abstractmethod
    def on_send_window(self, stream: S) -> None:
        """The send window of the stream grew."""

    @abstractmethod
    def on_settings(self) -> None:
        """The peer's SETTINGS came."""

    @abstractmethod
    def on_pong(self) -> None:
        """The peer answered a PING."""

    @abstractmethod
    def on_go_away(self, last_stream_id: int, reason: str) -> None:
        """The peer sent GOAWAY: it does not process streams above `last_stream_id`."""

    @abstractmethod
    def on_connection_error(self, reason: str) -> None:
        """The peer broke the protocol, and the connection is over."""

    # ------------------------------------------------------------ in: frames

    def receive(self, data: bytes) -> None:
        """Handle bytes from the peer; raises `ProtocolError` if the peer broke the protocol."""
        if self._connection_error is not None:
            raise self._connection_error
        try:
            self._read_frames(data)
        except ProtocolError as error:
            text = str(error)[:200].encode()
            # The debug data of GOAWAY tells the peer the reason (section 6.8).
            self._output.append(frames.goaway(self._last_peer_id, error.code, text))
            self._connection_error = error
            self.on_connection_error(f"the peer broke the protocol: {error}")
            raise

    def _read_frames(self, data: bytes) -> None:
        if self._preface:
            data = self._skip_preface(data)
        # Wait until a frame is complete. Otherwise each small read would copy all bytes of the
        # frame again.
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return
            data = bytes(self._rest)
        at, end = 0, len(data)
        while end - at >= HEAD.size:
            high, low, kind, flags, stream_id = HEAD.unpack_from(data, at)
            size = high << 16 | low
            stream_id &= MAX_31
            if self._required_kind is not None:
                self._check_order(kind, flags, stream_id)
            if size > MAX_FRAME_SIZE:
                text = f"frame of {size} bytes, {MAX_FRAME_SIZE} are allowed"
                raise ProtocolError(text, ErrorCode.FRAME_SIZE)
            begin = at + HEAD.size
            if begin + size > end:
                self._wanted = HEAD.size + size
                break
            at = begin + size
            if kind or size < FloodGuard.payload_per_unit:
                # Kind 0 is DATA. A DATA frame of a few bytes uses the budget, as a PING does.
                self.guard.spend()
            else:
                self.guard.refund(size / FloodGuard.payload_per_unit - 1)
            if kind < len(self._readers):
                self._readers[kind](flags, stream_id, data[begin:at])
        else:
            self._wanted = HEAD.size
        if self._rest or at < end:
            self._rest = bytearray(data[at:])

    def _skip_preface(self, data: bytes) -> bytes:
        count = min(len(self._preface), len(data))
        if data[:count] != self._preface[:count]:
            raise ProtocolError("the peer does not speak HTTP/2")
        self._preface = self._preface[count:]
        return data[count:]

    def _check_order(self, kind: int, flags: int, stream_id: int) -> None:
        required = self._required_kind
        if required == CONTINUATION and (kind, stream_id) != (required, self._block_stream):
            raise ProtocolError("a header block is interrupted")
        if required == SETTINGS:
            if kind != SETTINGS or flags & ACK:
                raise ProtocolError(
                    "the peer does not speak HTTP/2: its first frame is no SETTINGS"
                )
            self._required_kind = None

    # ------------------------------------------------------------ in: streams

    def _read_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if flags & PADDED:
            payload = frames.without_padding(payload)
        if flags & frames.WITH_PRIORITY:
            frames.check_priority(stream_id, payload[:5])
            payload = payload[5:]
        if flags & END_HEADERS:
            self._read_block(stream_id, payload, bool(flags & END_STREAM))
        else:
            self._block += payload
            # Only HEADERS carries END_STREAM, so we store its flags until the last CONTINUATION
            # (section 6.10).
            self._block_stream, self._block_flags = stream_id, flags
            self._required_kind = CONTINUATION

    def _read_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if self._required_kind is None:
            raise ProtocolError("CONTINUATION of nothing")
        self._block += payload
        self._check_block(len(self._block))
        if flags & END_HEADERS:
            block = bytes(self._block)
            self._block.clear()
            self._required_kind = None
            self._read_block(stream_id, block, bool(self._block_flags & END_STREAM))

    def _check_block(self, size: int) -> None:
        if size > (most := self.limits.max_header_block):
            raise ProtocolError(f"header block above {most} bytes", ErrorCode.ENHANCE_YOUR_CALM)

    def _read_block(self, stream_id: int, data: bytes, is_end: bool) -> None:
        # Decode the blocks of ended streams too: each block may change the dynamic table, which
        # later blocks need.
        block = self._decoder.find(data)
        if block is None:
            self._check_block(len(data))
            self.guard.spend_bytes(len(data))
            block = self._decoder.decode(data)
        stream = self.streams.get(stream_id) or self._accept(stream_id)
        if stream is None:
            return
        part = HeaderKind.RESPONSE if self.is_client else HeaderKind.REQUEST
        if stream.is_remote_closed:
            self._stream_error(stream, ErrorCode.STREAM_CLOSED, "headers after the end")
        elif stream.has_headers and not is_end:
            raise ProtocolError("headers in the middle of a stream")
        elif block.problem or block.kind is not (
            HeaderKind.TRAILERS if stream.has_headers else part
        ):
            problem = block.problem or f"{block.kind.value} out of place"
            self._stream_error(stream, ErrorCode.PROTOCOL, f"malformed headers: {problem}")
        elif stream.has_headers:
            self._close_remote(stream)
            self.on_end(stream, block)
        elif block.is_informational:
            if is_end:
                raise ProtocolError("an informational response ends the stream")
        else:
            stream.has_headers = True
            stream.content_left = block.content_length
            if is_end:
                self._close_remote(stream)
            self.on_headers(stream, block, is_end=is_end)

    def _accept(self, stream_id: int) -> S | None:
        """Return the stream that the client opens, None if its headers shall be ignored."""
        if self.is_client or stream_id <= self._last_peer_id or stream_id % 2 == 0:
            self._check_ended(stream_id)
            return None
        self._last_peer_id = stream_id
        stream = self.new_stream()
        self._begin(stream, stream_id)
        if len(self.streams) > self.limits.max_streams:
            # Too many streams are not a protocol error: the client may have opened this stream
            # before our SETTINGS arrived. So refuse only this stream.
            self.guard.spend(FloodGuard.reset_cost)
            self.reset(stream, ErrorCode.REFUSED_STREAM)
            return None
        return stream

    def _check_opened(self, stream_id: int) -> None:
        next_id = self._next_id if self.is_client else self._last_peer_id + 1
        if stream_id >= next_id or stream_id % 2 == 0:
            raise ProtocolError(f"stream {stream_id} is not open")

    def _check_ended(self, stream_id: int) -> None:
        """Return if frames of the peer may still arrive on this ended stream; otherwise raise."""
        self._check_opened(stream_id)
        # When we reset a stream, frames of the peer may be on their way. A peer that sent
        # END_STREAM or RST_STREAM must not send more (section 5.1).
        late_frames_allowed = self._ended_streams.get(stream_id)
        # When a client opens stream 7, idle streams 1 to 5 become closed (section 5.1.1). Up to
        # `_forgotten_up_to` we no longer know which streams were idle, and raise nothing.
        if late_frames_allowed is None and stream_id > self._forgotten_up_to:
            raise ProtocolError(f"stream {stream_id} was left out")
        if late_frames_allowed is False:
            raise ProtocolError(f"stream {stream_id} has ended", ErrorCode.STREAM_CLOSED)

    def _read_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        stream = self.streams.get(stream_id)
        if size > self._receive_window or (stream is not None and size > stream.receive_window):
            raise ProtocolError("flow control: more than the window", ErrorCode.FLOW_CONTROL)
        # For the connection, bytes count as received when they arrive, not when the message is
        # read. So a slow reader delays only its own stream.
        self._receive_window -= size
        self._unacknowledged += size
        # After each quarter of the window: a WINDOW_UPDATE per frame would be too many frames.
        if self._unacknowledged >= self.limits.connection_window // 4:
            self._output.append(frames.number(WINDOW_UPDATE, 0, self._unacknowledged))
            self._receive_window += self._unacknowledged
            self._unacknowledged = 0
        if flags & PADDED:
            payload = frames.without_padding(payload)
        if stream is None:
            self._check_ended(stream_id)
            return
        if stream.is_remote_closed:
            self._stream_error(stream, ErrorCode.STREAM_CLOSED, "data after the end")
            return
        if not stream.has_headers:
            raise ProtocolError("data before headers")
        stream.receive_window -= size
        # A length other than content-length makes a message malformed (section 8.1.1).
        if stream.content_left is not None:
            stream.content_left -= len(payload)
            if stream.content_left < 0:
                raise ProtocolError("more data than content-length says")
        if flags & END_STREAM:
            self._close_remote(stream)
        if size:
            self.on_data(stream, payload, size)
        if flags & END_STREAM:
            self.on_end(stream, None)

    def _close_remote(self, stream: S) -> None:
        """Record that the peer sends nothing more on the stream."""
        if stream.content_left:
            raise ProtocolError("less data than content-length says")
        stream.is_remote_closed = True
        if stream.is_local_closed:
            self._drop(stream, late_frames_allowed=False)

    def _stream_error(self, stream: S, code: ErrorCode, text: str) -> None:
        """Reset a stream on which the peer broke a rule (a stream error, section 5.4.2)."""
        self.guard.spend(FloodGuard.reset_cost)
        self.reset(stream, code)
        self.on_reset(stream, code, text)

    def _read_rst_stream(self, _flags: int, stream_id: int, payload: bytes) -> None:
        frames.check(frames.RST_STREAM, stream_id, payload, 4, of_stream=True)
        self._check_opened(stream_id)
        stream = self.streams.get(stream_id)
        if stream is not None:
            self._drop(stream, late_frames_allowed=False)
            self.on_reset(stream, int.from_bytes(payload, "big"), "")

    def _read_priority(self, _flags: int, stream_id: int, payload: bytes) -> None:
        frames.check_priority(stream_id, payload)

    def _read_push_promise(self, _flags: int, _stream_id: int, _payload: bytes) -> None:
        raise ProtocolError("the peer pushes, which gRPC never does")

    # ------------------------------------------------------------ in: the connection

    def _read_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = 0 if flags & ACK else len(payload) // 6 * 6
        frames.check(SETTINGS, stream_id, payload, size, of_stream=False)
        if flags & ACK:
            return
        self.guard.spend_bytes(len(payload))
        values = frames.read_settings(payload, from_server=self.is_client)
        self._output.append(frames.frame(SETTINGS, ACK, 0))
        self._peer_frame_size = values.get(frames.FRAME_SIZE, self._peer_frame_size)
        self.peer_max_streams = values.get(frames.MAX_CONCURRENT_STREAMS, self.peer_max_streams)
        window = values.get(frames.INITIAL_WINDOW_SIZE, self._peer_initial_window)
        more, self._peer_initial_window = window - self._peer_initial_window, window
        # This small frame causes work for each open stream, so its cost grows with them.
        self.guard.spend(len(self.streams) / 100 if more else 0)
        for stream in self.streams.values() if more else ():
            # The window may become negative, if the peer makes its window smaller than what we
            # already sent (section 6.9.2).
            stream.send_window += more
            if stream.send_window > MAX_31:
                text = "INITIAL_WINDOW_SIZE makes a window overflow"
                raise ProtocolError(text, ErrorCode.FLOW_CONTROL)
        self.on_settings()

    def _read_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        frames.check(frames.PING, stream_id, payload, 8, of_stream=False)
        if flags & ACK:
            self.on_pong()
        else:
            self._output.append(frames.frame(frames.PING, ACK, 0, payload))

    def _read_goaway(self, _flags: int, stream_id: int, payload: bytes) -> None:
        frames.check(frames.GOAWAY, stream_id, payload, max(8, len(payload)), of_stream=False)
        self.on_go_away(*frames.read_goaway(payload))

    def _read_window_update(self, _flags: int, stream_id: int, payload: bytes) -> None:
        frames.check(WINDOW_UPDATE, stream_id, payload, 4, of_stream=bool(stream_id))
        size = int.from_bytes(payload, "big") & MAX_31
        stream = self.streams.get(stream_id)
        if stream is None and stream_id:
            self._check_opened(stream_id)
            return  # updates of an ended stream may still come, and have no effect (section 5.1)
        # `stream is None` from here on means: the window of the connection.
        window = size + (self.send_window if stream is None else stream.send_window)
        if not size or window > MAX_31:
            text = f"WINDOW_UPDATE of {size} bytes"
            code = ErrorCode.FLOW_CONTROL if size else ErrorCode.PROTOCOL
            if stream is None:
                raise ProtocolError(text, code)
            self._stream_error(stream, code, text)
        elif stream is None:
            self.send_window = window
        else:
            stream.send_window = window
            self.on_send_window(stream)
