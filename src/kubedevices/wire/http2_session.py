"""HTTP/2 as gRPC needs it (RFC 9113), without I/O: bytes in → `on_…` methods, bytes out.

`grpc_connection` builds on it. The session keeps the rules and the memory of one connection: the
order of frames, the states of streams, windows in both directions, limits. Whatever bytes come,
`receive` raises nothing but `ProtocolError`, after which the connection is over.
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
from kubedevices.wire.http2_limits import MAX_FRAME_SIZE, MAX_HEADER_BLOCK, FloodGuard, Limits
from kubedevices.wire.http2_output import Http2Output, S


class Http2Session(Http2Output[S], ABC):
    """One end of a connection."""

    def __init__(self, *, clock: Callable[[], float], limits: Limits) -> None:
        super().__init__(clock=clock, limits=limits)
        self._decoder = Decoder(MAX_HEADER_BLOCK)
        # `_window`: what the peer may still send on the connection. `_unacknowledged`: what it has
        # sent since our last WINDOW_UPDATE.
        self._window, self._unacknowledged = limits.connection_window, 0
        # What came and is not complete yet: the first words, a frame, a header block.
        self._preface = b"" if self.is_client else PREFACE
        self._rest, self._wanted = bytearray(), 0
        self._block, self._block_stream, self._block_flags = bytearray(), 0, 0
        self._only: int | None = SETTINGS  # the one kind of frame that may come next
        # The place in this tuple is the type of the frame (RFC 9113, section 6). Other types are
        # skipped, as section 4.1 demands.
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
        """Received bytes that are kept."""
        return len(self._rest) + len(self._block)

    # ------------------------------------------------------------ what happens

    @abstractmethod
    def new_stream(self) -> S:
        """Return the stream that a client opens; called on servers."""

    @abstractmethod
    def on_headers(self, stream: S, block: HeaderBlock, *, is_end: bool) -> None:
        """A request or a response begins, or is complete already."""

    @abstractmethod
    def on_data(self, stream: S, data: bytes, size: int) -> None:
        """Payload came; `size` is what it takes from the window, with padding."""

    @abstractmethod
    def on_end(self, stream: S, trailers: HeaderBlock | None) -> None:
        """The peer sends nothing more on a stream that had headers."""

    @abstractmethod
    def on_reset(self, stream: S, code: int, fault: str) -> None:
        """A stream is over: by the peer, or by us for what the peer did (`fault`)."""

    @abstractmethod
    def on_room(self, stream: S) -> None:
        """More may be sent on a stream."""

    @abstractmethod
    def on_settings(self) -> None:
        """The peer's settings came."""

    @abstractmethod
    def on_pong(self) -> None:
        """The peer answered a ping."""

    @abstractmethod
    def on_go_away(self, last_stream_id: int, reason: str) -> None:
        """The peer takes no more streams, and does not look at those above the last."""

    @abstractmethod
    def on_failure(self, reason: str) -> None:
        """The peer broke the protocol, and the connection is over."""

    # ------------------------------------------------------------ in: frames

    def receive(self, data: bytes) -> None:
        """Work through bytes of the peer; raises `ProtocolError` when it broke the rules."""
        if self._failure is not None:
            raise self._failure
        try:
            self._read_frames(data)
        except ProtocolError as error:
            text = str(error)[:200].encode()
            # The peer is told why in the debug data of GOAWAY; section 6.8.
            self._output.append(frames.goaway(self._last_peer_id, error.code, text))
            self._failure = error
            self.on_failure(f"the peer broke the protocol: {error}")
            raise

    def _read_frames(self, data: bytes) -> None:
        if self._preface:
            data = self._skip_preface(data)
        # A frame that comes in many pieces is not looked at before it is complete, or each piece
        # would cost a copy of all before it.
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
            if self._only is not None:
                self._check_order(kind, flags, stream_id)
            if size > MAX_FRAME_SIZE:
                text = f"frame of {size} bytes, {MAX_FRAME_SIZE} are allowed"
                raise ProtocolError(text, ErrorCode.FRAME_SIZE)
            begin = at + HEAD.size
            if begin + size > end:
                self._wanted = HEAD.size + size
                break
            at = begin + size
            if size and not kind:
                # Kind 0 is DATA. An empty DATA frame is work for nothing, like a PING.
                self.guard.refund(FloodGuard.payload_earns)
            else:
                self.guard.spend()
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
        if self._only == CONTINUATION and (kind, stream_id) != (CONTINUATION, self._block_stream):
            raise ProtocolError("a header block is interrupted")
        if self._only == SETTINGS:
            if kind != SETTINGS or flags & ACK:
                raise ProtocolError(
                    "the peer does not speak HTTP/2: its first frame is no SETTINGS"
                )
            self._only = None

    # ------------------------------------------------------------ in: streams

    def _read_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if flags & PADDED:
            payload = frames.without_padding(payload)
        if flags & frames.WITH_PRIORITY:
            frames.check_priority(stream_id, payload[:5])
            payload = payload[5:]
        if flags & END_HEADERS:
            self._take_block(stream_id, payload, bool(flags & END_STREAM))
        else:
            self._block += payload
            # END_STREAM is a flag of HEADERS only, so it is kept until the last CONTINUATION
            # (section 6.10).
            self._block_stream, self._block_flags = stream_id, flags
            self._only = CONTINUATION

    def _read_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if self._only is None:
            raise ProtocolError("CONTINUATION of nothing")
        self._block += payload
        if len(self._block) > MAX_HEADER_BLOCK:
            text = f"header block above {MAX_HEADER_BLOCK} bytes"
            raise ProtocolError(text, ErrorCode.ENHANCE_YOUR_CALM)
        if flags & END_HEADERS:
            block = bytes(self._block)
            self._block.clear()
            self._only = None
            self._take_block(stream_id, block, bool(self._block_flags & END_STREAM))

    def _take_block(self, stream_id: int, data: bytes, is_end: bool) -> None:
        block = self._decoder.decode(data)  # of any stream: the table changes with each
        stream = self.streams.get(stream_id) or self._accept(stream_id)
        if stream is None:
            return
        part = HeaderKind.RESPONSE if self.is_client else HeaderKind.REQUEST
        if stream.is_ended:
            self._fault(stream, ErrorCode.STREAM_CLOSED, "headers after the end")
        elif stream.has_headers and not is_end:
            raise ProtocolError("headers in the middle of a stream")
        elif block.problem or block.kind is not (
            HeaderKind.TRAILERS if stream.has_headers else part
        ):
            problem = block.problem or f"{block.kind.value} out of place"
            self._fault(stream, ErrorCode.PROTOCOL, f"malformed headers: {problem}")
        elif stream.has_headers:
            self._note_end(stream)
            self.on_end(stream, block)
        elif block.is_informational:
            if is_end:
                raise ProtocolError("an informational response ends the stream")
        else:
            stream.has_headers = True
            stream.promised = block.content_length
            if is_end:
                self._note_end(stream)
            self.on_headers(stream, block, is_end=is_end)

    def _accept(self, stream_id: int) -> S | None:
        """Return the new stream a client opens, None for headers that are to be left alone."""
        if self.is_client or stream_id <= self._last_peer_id or stream_id % 2 == 0:
            self._check_ended(stream_id)
            return None
        self._last_peer_id = stream_id
        stream = self.new_stream()
        self._begin(stream, stream_id)
        if len(self.streams) > self.limits.max_streams:
            # The client may have opened it before it saw our settings.
            self.guard.spend(FloodGuard.reset_costs)
            self.reset(stream, ErrorCode.REFUSED_STREAM)
            return None
        return stream

    def _check_opened(self, stream_id: int) -> None:
        next_id = self._next_id if self.is_client else self._last_peer_id + 1
        if stream_id >= next_id or stream_id % 2 == 0:
            raise ProtocolError(f"stream {stream_id} is not open")

    def _check_ended(self, stream_id: int) -> None:
        """Raise unless we left this stream, which the peer may not have known."""
        self._check_opened(stream_id)
        # Frames may be on their way when we reset a stream; a peer that ended a stream itself and
        # goes on breaks the rules (section 5.1).
        is_forgiven = self._past.get(stream_id)
        # A client that opens stream 7 gives up 1 to 5 if they were idle (section 5.1.1). Below
        # `_oldest_past` we no longer know, and forgive.
        if is_forgiven is None and stream_id > self._oldest_past:
            raise ProtocolError(f"stream {stream_id} was left out")
        if is_forgiven is False:
            raise ProtocolError(f"stream {stream_id} has ended", ErrorCode.STREAM_CLOSED)

    def _read_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        stream = self.streams.get(stream_id)
        if size > self._window or (stream is not None and size > stream.window):
            raise ProtocolError("flow control: more than the window", ErrorCode.FLOW_CONTROL)
        # A slow reader slows its own stream and nobody else's.
        self._window -= size
        self._unacknowledged += size
        # A quarter at a time: a WINDOW_UPDATE per frame would nearly double the number of frames.
        if self._unacknowledged >= self.limits.connection_window // 4:
            self._output.append(frames.number(WINDOW_UPDATE, 0, self._unacknowledged))
            self._window += self._unacknowledged
            self._unacknowledged = 0
        if flags & PADDED:
            payload = frames.without_padding(payload)
        if stream is None:
            self._check_ended(stream_id)
            return
        if stream.is_ended:
            self._fault(stream, ErrorCode.STREAM_CLOSED, "data after the end")
            return
        if not stream.has_headers:
            raise ProtocolError("data before headers")
        stream.window -= size
        # A mismatch with content-length makes a message malformed (section 8.1.1).
        if stream.promised is not None:
            stream.promised -= len(payload)
            if stream.promised < 0:
                raise ProtocolError("more data than content-length says")
        if flags & END_STREAM:
            self._note_end(stream)
        if size:
            self.on_data(stream, payload, size)
        if flags & END_STREAM:
            self.on_end(stream, None)

    def _note_end(self, stream: S) -> None:
        """Note that the peer sends nothing more."""
        if stream.promised:
            raise ProtocolError("less data than content-length says")
        stream.is_ended = True
        if stream.is_closed:
            self._drop(stream, is_forgiven=False)

    def _fault(self, stream: S, code: ErrorCode, text: str) -> None:
        """End a stream for what the peer did on it."""
        self.guard.spend(FloodGuard.reset_costs)
        self.reset(stream, code)
        self.on_reset(stream, code, text)

    def _read_rst_stream(self, _flags: int, stream_id: int, payload: bytes) -> None:
        frames.check(frames.RST_STREAM, stream_id, payload, 4, of_stream=True)
        self._check_opened(stream_id)
        stream = self.streams.get(stream_id)
        if stream is not None:
            self._drop(stream, is_forgiven=False)
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
        values = frames.read_settings(payload, from_server=self.is_client)
        self._output.append(frames.frame(SETTINGS, ACK, 0))
        self._peer_frame_size = values.get(frames.FRAME_SIZE, self._peer_frame_size)
        self.peer_max_streams = values.get(frames.MAX_CONCURRENT_STREAMS, self.peer_max_streams)
        window = values.get(frames.INITIAL_WINDOW_SIZE, self._peer_window)
        more, self._peer_window = window - self._peer_window, window
        if more:
            # The change is work for each open stream, all for one small frame.
            self.guard.spend(len(self.streams) / 100)
        for stream in self.streams.values() if more else ():
            # May be negative afterwards: the peer has taken back room that we used already (section
            # 6.9.2).
            stream.room += more
            if stream.room > MAX_31:
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
            return
        # Updates of a stream that ended may still come for a while, and mean nothing (section 5.1).
        room = size + (self.room if stream is None else stream.room)
        if not size or room > MAX_31:
            text = f"WINDOW_UPDATE of {size} bytes"
            code = ErrorCode.FLOW_CONTROL if size else ErrorCode.PROTOCOL
            if stream is None:
                raise ProtocolError(text, code)
            self._fault(stream, code, text)
            return
        if stream is None:
            self.room = room
        else:
            stream.room = room
            self.on_room(stream)
