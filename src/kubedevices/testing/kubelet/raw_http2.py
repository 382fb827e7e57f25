"""HTTP/2 frames by hand, for checks that break the protocol.

There is no flow control. `GrpcChannel` cannot do the following, this module can: send another
`:authority`, half a frame or no data, offer a window of one byte, close without a GOAWAY.
"""

import asyncio
import contextlib
from dataclasses import dataclass, field
from pathlib import Path

from kubedevices.errors import ProtocolError
from kubedevices.wire import hpack
from kubedevices.wire import http2_frames as frames
from kubedevices.wire.grpc_framing import frame
from kubedevices.wire.grpc_headers import request_headers
from kubedevices.wire.http2_frames import ACK, DATA, DEFAULT_WINDOW, END_STREAM, HEAD, HEADERS
from kubedevices.wire.http2_frames import frame as http2_frame

_MAX_FRAME = 2**20


@dataclass(slots=True)
class RawAnswer:
    """The answer on one stream. `headers` has headers and trailers, `data` all DATA frames."""

    headers: dict[bytes, bytes] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def grpc_status(self) -> int | None:
        """The gRPC status of the call, None if none has arrived."""
        text = self.headers.get(b"grpc-status", b"")
        return int(text) if text.isdigit() else None


class RawConnection:
    """One connection. A task reads answers; the caller decides what to send."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._decoder = hpack.Decoder(_MAX_FRAME)
        self._answers: dict[int, RawAnswer] = {}
        self._next_stream = 1
        self._is_mute = False
        self.is_greeted = False  # the peer's SETTINGS have arrived
        self.greeted_or_ended = asyncio.Event()  # set then, or when the connection ends
        self.ended = asyncio.Event()
        self._reading = asyncio.create_task(self._read(), name="raw connection")

    @classmethod
    async def open(
        cls, path: Path, *, window: int = DEFAULT_WINDOW, is_silent: bool = False
    ) -> "RawConnection":
        """Connect; raises OSError. `is_silent`: send nothing, not even preface and SETTINGS."""
        connection = cls(*await asyncio.open_unix_connection(path))
        connection._is_mute = is_silent
        if not is_silent:
            settings = frames.settings({frames.INITIAL_WINDOW_SIZE: window})
            connection.write(frames.PREFACE + settings)
        return connection

    def write(self, data: bytes) -> None:
        """Send bytes without any change; do nothing if the connection is silent."""
        if self._is_mute:
            return
        with contextlib.suppress(RuntimeError):  # the connection is closed: `ended` is set
            self._writer.write(data)

    def call(
        self, method: str, payload: bytes, *, authority: str = "localhost", leave_out: int = 0
    ) -> RawAnswer:
        """Begin a call without the last `leave_out` bytes of its DATA frame."""
        stream_id = self._next_stream
        self._next_stream += 2
        answer = self._answers[stream_id] = RawAnswer()
        fields = dict(request_headers(method, None)) | {b":authority": authority.encode()}
        block = hpack.encode(tuple(fields.items()))
        body = http2_frame(DATA, END_STREAM, stream_id, frame(payload))
        self.write(http2_frame(HEADERS, frames.END_HEADERS, stream_id, block))
        self.write(body[: len(body) - leave_out])
        self._is_mute = leave_out > 0  # the peer would read later bytes as the rest of the frame
        return answer

    def hang_up(self) -> None:
        """Close the connection without a GOAWAY."""
        self._reading.cancel()
        self._writer.transport.abort()

    async def _read(self) -> None:
        try:
            while True:
                head = await self._reader.readexactly(HEAD.size)
                high, low, kind, flags, stream_id = HEAD.unpack(head)
                payload = await self._reader.readexactly(min(high << 16 | low, _MAX_FRAME))
                self._handle_frame(kind, flags, stream_id, payload)
        except (OSError, EOFError, ProtocolError):
            pass
        finally:
            self.ended.set()
            self.greeted_or_ended.set()
            for answer in self._answers.values():
                answer.ended.set()

    def _handle_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        answer = self._answers.get(stream_id)
        if kind == frames.SETTINGS and not flags & ACK:
            self.write(http2_frame(frames.SETTINGS, ACK, 0))
            self.is_greeted = True
            self.greeted_or_ended.set()
        elif kind == frames.PING and not flags & ACK:
            self.write(http2_frame(frames.PING, ACK, 0, payload))
        elif kind == HEADERS:
            block = self._decoder.decode(payload)
            if answer:
                answer.headers |= block.named
        elif kind == frames.GOAWAY:
            self._reader.feed_eof()
        elif answer and kind == DATA:
            answer.data += payload
        if answer and (
            kind == frames.RST_STREAM or (kind in (DATA, HEADERS) and flags & END_STREAM)
        ):
            answer.ended.set()
