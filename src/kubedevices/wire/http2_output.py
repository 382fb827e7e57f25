"""The sending half of an HTTP/2 connection (RFC 9113), without I/O: streams, windows, frames out.

`http2_session` adds the receiving half, which knows when a peer's frames allow what.
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
from kubedevices.wire.http2_limits import MAX_FRAME_SIZE, MAX_HEADER_BLOCK, FloodGuard, Limits

MAX_DATA = 65536
"""Our largest DATA frame, whatever more the peer allows: calls take turns."""

# Ended streams whose late frames are still told from mistakes.
MAX_REMEMBERED = 1024


class Http2Stream:
    """The state of a stream in a session; base of `grpc_events.Call`."""

    __slots__ = ("has_headers", "is_closed", "is_ended", "promised", "room", "stream_id", "window")

    def __init__(self) -> None:
        self.stream_id = 0
        self.is_ended = self.is_closed = True

    def begin(self, stream_id: int, room: int, window: int) -> None:
        """Be a stream that has just been opened, maybe not for the first time."""
        self.stream_id = stream_id
        self.room, self.window = room, window  # bytes that we may send, and the peer
        self.has_headers = False  # of the peer: the next are trailers
        self.promised: int | None = None  # what is still to come of its content-length
        self.is_ended = self.is_closed = False  # the peer sends nothing more; we do not


S = TypeVar("S", bound=Http2Stream)


class Http2Output(Generic[S]):
    """What both ends send. Every method is safe to call at any time."""

    is_client: bool

    def __init__(self, *, clock: Callable[[], float], limits: Limits) -> None:
        self.limits = limits
        self.guard = FloodGuard(clock)
        self.streams: dict[int, S] = {}
        self._next_id, self._last_peer_id = 1, 0
        # The last streams that ended → whether their peer may send on, because we left them.
        self._past: dict[int, bool] = {}
        self._oldest_past = 0  # all before it are forgiven
        self.room, self._peer_window = frames.DEFAULT_WINDOW, frames.DEFAULT_WINDOW
        self._peer_frame_size = frames.DEFAULT_FRAME_SIZE
        self.peer_max_streams = MAX_31
        self._failure: Exception | None = None
        # Sent once, before the first header block: the peer need not keep a table for us.
        self._table_update = NO_TABLE
        settings = {
            frames.MAX_CONCURRENT_STREAMS: limits.max_streams,
            frames.INITIAL_WINDOW_SIZE: limits.stream_window,
            frames.FRAME_SIZE: MAX_FRAME_SIZE,
            frames.HEADER_LIST_SIZE: MAX_HEADER_BLOCK,
        }
        if self.is_client:
            settings[frames.ENABLE_PUSH] = 0
        # SETTINGS change the windows of streams only; that of the connection grows by WINDOW_UPDATE
        # (RFC 9113, section 6.9.2).
        more = limits.connection_window - frames.DEFAULT_WINDOW
        self._output: list[bytes | memoryview] = [PREFACE] if self.is_client else []
        self._output += [frames.settings(settings), frames.number(WINDOW_UPDATE, 0, more)]

    def _begin(self, stream: S, stream_id: int) -> None:
        stream.begin(stream_id, self._peer_window, self.limits.stream_window)
        self.streams[stream_id] = stream

    def open_stream(self, stream: S, fields: Fields) -> bool:
        """Open a stream; False when the connection has no numbers left."""
        if self._next_id > MAX_31:
            return False
        self._begin(stream, self._next_id)
        # Clients use odd numbers (section 5.1.1).
        self._next_id += 2
        self.send_headers(stream, fields)
        return True

    def send_headers(self, stream: S, fields: Fields, *, is_end: bool = False) -> None:
        """Send headers or trailers, in as many frames as the peer wants."""
        if self._failure is not None or stream.is_closed:
            return
        block, self._table_update = self._table_update + encode(fields), b""
        kind, flags, most = frames.HEADERS, END_STREAM if is_end else 0, self._peer_frame_size
        while len(block) > most:
            self._output.append(frames.frame(kind, flags, stream.stream_id, block[:most]))
            kind, flags, block = frames.CONTINUATION, 0, block[most:]
        self._output.append(frames.frame(kind, flags | END_HEADERS, stream.stream_id, block))
        if is_end:
            self._close(stream)

    def sendable(self, stream: S) -> int:
        """Return how many bytes one DATA frame may carry now; 0 or less means wait."""
        if self._failure is not None:
            return 0
        return min(stream.room, self.room, self._peer_frame_size, MAX_DATA)

    def send_data(self, stream: S, data: memoryview, *, is_end: bool) -> None:
        """Send one DATA frame of no more than `sendable` bytes."""
        size = len(data)
        stream.room -= size
        self.room -= size
        flags = END_STREAM if is_end else 0
        self._output += [frames.head(frames.DATA, flags, stream.stream_id, size), data]
        self.guard.refund(FloodGuard.payload_earns)
        if is_end:
            self._close(stream)

    def _close(self, stream: S) -> None:
        """Note that we send nothing more."""
        stream.is_closed = True
        if stream.is_ended:
            self._drop(stream, is_forgiven=False)

    def _drop(self, stream: S, *, is_forgiven: bool) -> None:
        stream.is_ended = stream.is_closed = True
        if self.streams.pop(stream.stream_id, None) is None:
            return
        # A dict keeps the order of insertion, so the first key is the oldest.
        self._past[stream.stream_id] = is_forgiven
        if len(self._past) > MAX_REMEMBERED:
            oldest = next(iter(self._past))
            del self._past[oldest]
            self._oldest_past = max(self._oldest_past, oldest)

    def acknowledge(self, stream: S, size: int) -> None:
        """Let the peer send `size` more bytes on a stream."""
        # A peer that has ended its side needs no more window.
        if not stream.is_ended and self._failure is None:
            stream.window += size
            self._output.append(frames.number(WINDOW_UPDATE, stream.stream_id, size))

    def reset(self, stream: S, code: ErrorCode) -> None:
        """End a stream at once; a stream that has ended stays as it is."""
        if stream.stream_id in self.streams and self._failure is None:
            self._output.append(frames.number(frames.RST_STREAM, stream.stream_id, code))
        self.leave(stream)

    def leave(self, stream: S) -> None:
        """Let go of a stream, though its peer may send on for a while."""
        self._drop(stream, is_forgiven=True)

    def ping(self) -> None:
        """Ask for a sign of life."""
        if self._failure is None:
            # Eight bytes of any content (section 6.7); pongs come back in the order of the pings,
            # so they need not differ.
            self._output.append(frames.frame(frames.PING, 0, 0, b"kubedevs"))

    def go_away(self) -> None:
        """Tell the peer that we take no more streams."""
        if self._failure is None:
            self._output.append(frames.goaway(self._last_peer_id, ErrorCode.NO_ERROR))

    def take_output(self) -> bytes:
        """Return everything that is ready for the peer."""
        if not self._output:
            return b""
        output = b"".join(self._output)
        self._output.clear()
        return output
