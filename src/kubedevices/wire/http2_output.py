"""The sending half of an HTTP/2 connection (RFC 9113), without I/O: streams, windows, frames out.

`http2_session` adds the receiving half, which updates the states and windows from frames.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from kubedevices.wire import http2_frames as frames
from kubedevices.wire.header_block import Fields
from kubedevices.wire.hpack import NO_TABLE, encode
from kubedevices.wire.http2_frames import (
    END_HEADERS,
    END_STREAM,
    MAX_31,
    PREFACE,
    WINDOW_UPDATE,
    ErrorCode,
)
from kubedevices.wire.http2_limits import MAX_FRAME_SIZE, FloodGuard, Limits

MAX_DATA = 65536
"""Bytes of our largest DATA frame, even if the peer allows more, so that calls take turns."""

# Number of ended streams for which we still know whether a late frame is allowed.
MAX_REMEMBERED = 256


class Http2Stream:
    """The state of a stream; base of `grpc_events.Call`.

    `is_remote_closed`: the peer sends nothing more on the stream. `is_local_closed`: we send
    nothing more. RFC 9113, section 5.1, names these states half-closed (remote) and (local).
    """

    __slots__ = (
        "content_left",
        "has_headers",
        "is_local_closed",
        "is_remote_closed",
        "receive_window",
        "send_window",
        "stream_id",
    )

    def __init__(self) -> None:
        self.stream_id = 0
        self.is_remote_closed = self.is_local_closed = True

    def begin(self, stream_id: int, send_window: int, receive_window: int) -> None:
        """Start as an open stream; a refused call may start again with another `stream_id`."""
        self.stream_id = stream_id
        self.send_window, self.receive_window = send_window, receive_window
        self.has_headers = False  # the peer's headers came: the next block has trailers
        self.content_left: int | None = None  # bytes of the peer's content-length still to come
        self.is_remote_closed = self.is_local_closed = False


S = TypeVar("S", bound=Http2Stream)


class Http2Output(Generic[S]):
    """Writes the frames of a client or server. Every method is safe to call at any time."""

    is_client: bool

    def __init__(self, *, clock: Callable[[], float], limits: Limits) -> None:
        self.limits = limits
        self.guard = FloodGuard(clock)
        """A server replaces it, so that all connections of one process share a guard."""

        self.streams: dict[int, S] = {}
        self._next_id, self._last_peer_id = 1, 0
        # Recently ended streams → whether late frames of the peer are allowed, because we ended the
        # stream and the peer may not know yet.
        self._ended_streams: dict[int, bool] = {}
        # Streams up to this number may be missing there: for these late frames are allowed.
        self._forgotten_up_to = 0
        self.send_window, self._peer_initial_window = frames.DEFAULT_WINDOW, frames.DEFAULT_WINDOW
        self._peer_frame_size = frames.DEFAULT_FRAME_SIZE
        self.peer_max_streams = MAX_31
        self._connection_error: Exception | None = None
        # Sent once, in the first header block: the peer need not store a dynamic table for us.
        self._table_update = NO_TABLE
        settings = {
            frames.MAX_CONCURRENT_STREAMS: limits.max_streams,
            frames.INITIAL_WINDOW_SIZE: limits.stream_window,
            frames.FRAME_SIZE: MAX_FRAME_SIZE,
            frames.HEADER_LIST_SIZE: limits.max_header_block,
        }
        if self.is_client:
            settings[frames.ENABLE_PUSH] = 0
        # SETTINGS change the windows of streams only. Only WINDOW_UPDATE changes the window of the
        # connection (RFC 9113, section 6.9.2).
        more = limits.connection_window - frames.DEFAULT_WINDOW
        self._output: list[bytes | memoryview] = [PREFACE] if self.is_client else []
        self._output += [frames.settings(settings), frames.number(WINDOW_UPDATE, 0, more)]

    def _begin(self, stream: S, stream_id: int) -> None:
        stream.begin(stream_id, self._peer_initial_window, self.limits.stream_window)
        self.streams[stream_id] = stream

    def open_stream(self, stream: S, fields: Fields) -> bool:
        """Open a stream on a client; return False if no stream number is left."""
        if self._next_id > MAX_31:
            return False
        self._begin(stream, self._next_id)
        # Clients use odd numbers (section 5.1.1).
        self._next_id += 2
        self.send_headers(stream, fields)
        return True

    def send_headers(self, stream: S, fields: Fields, *, is_end: bool = False) -> None:
        """Send headers or trailers, split into frames that the peer's MAX_FRAME_SIZE allows."""
        if self._connection_error is not None or stream.is_local_closed:
            return
        block, self._table_update = self._table_update + encode(fields), b""
        kind, flags, most = frames.HEADERS, END_STREAM if is_end else 0, self._peer_frame_size
        while len(block) > most:
            self._output.append(frames.frame(kind, flags, stream.stream_id, block[:most]))
            kind, flags, block = frames.CONTINUATION, 0, block[most:]
        self._output.append(frames.frame(kind, flags | END_HEADERS, stream.stream_id, block))
        if is_end:
            self._close_local(stream)

    def sendable(self, stream: S) -> int:
        """Return how many bytes the next DATA frame may have; 0 or less: wait for the peer."""
        if self._connection_error is not None:
            return 0
        return min(stream.send_window, self.send_window, self._peer_frame_size, MAX_DATA)

    def send_data(self, stream: S, data: memoryview, *, is_end: bool) -> None:
        """Send one DATA frame; the caller passes at most `sendable` bytes."""
        size = len(data)
        stream.send_window -= size
        self.send_window -= size
        flags = END_STREAM if is_end else 0
        self._output += [frames.head(frames.DATA, flags, stream.stream_id, size), data]
        self.guard.refund(size / FloodGuard.payload_per_unit)
        if is_end:
            self._close_local(stream)

    def _close_local(self, stream: S) -> None:
        """Record that we send nothing more on the stream."""
        stream.is_local_closed = True
        if stream.is_remote_closed:
            self._drop(stream, late_frames_allowed=False)

    def _drop(self, stream: S, *, late_frames_allowed: bool) -> None:
        stream.is_remote_closed = stream.is_local_closed = True
        if self.streams.pop(stream.stream_id, None) is None:
            return
        # A dict keeps the order of insertion: its first key ended first.
        self._ended_streams[stream.stream_id] = late_frames_allowed
        if len(self._ended_streams) > MAX_REMEMBERED:
            oldest = next(iter(self._ended_streams))
            del self._ended_streams[oldest]
            self._forgotten_up_to = max(self._forgotten_up_to, oldest)

    def acknowledge(self, stream: S, size: int) -> None:
        """Allow the peer to send `size` more bytes on a stream, with WINDOW_UPDATE."""
        # After END_STREAM the peer needs no window.
        if not stream.is_remote_closed and self._connection_error is None:
            stream.receive_window += size
            self._output.append(frames.number(WINDOW_UPDATE, stream.stream_id, size))

    def reset(self, stream: S, code: ErrorCode) -> None:
        """End a stream with RST_STREAM, if it is not ended yet."""
        if stream.stream_id in self.streams and self._connection_error is None:
            self._output.append(frames.number(frames.RST_STREAM, stream.stream_id, code))
        self.abandon(stream)

    def abandon(self, stream: S) -> None:
        """Forget a stream; late frames of the peer, which may not know it, are allowed."""
        self._drop(stream, late_frames_allowed=True)

    def ping(self) -> None:
        """Send PING, which the peer must answer."""
        if self._connection_error is None:
            # Any eight bytes (section 6.7). The answers come in the order of the PINGs, so the
            # payloads need not differ.
            self._output.append(frames.frame(frames.PING, 0, 0, b"kubedevs"))

    def go_away(self) -> None:
        """Send GOAWAY: we accept no more streams. The last stream in it is one we processed."""
        if self._connection_error is None:
            self._output.append(frames.goaway(self._last_peer_id, ErrorCode.NO_ERROR))

    def take_output(self) -> bytes:
        """Return and remove all bytes that are ready for the peer."""
        if not self._output:
            return b""
        output = b"".join(self._output)
        self._output.clear()
        return output
