"""HTTP/2 frames by hand, for a probe that has to misbehave. Not for honest traffic.

There is no flow control. What `GrpcChannel` would never do can be done here: another `:authority`,
half a frame, a window of one byte, silence, and hanging up without a word.
"""

import asyncio
import contextlib
from dataclasses import dataclass, field
from pathlib import Path

from kubedevices.errors import ProtocolError
from kubedevices.wire import hpack
from kubedevices.wire import http2_frames as frames
from kubedevices.wire.grpc_framing import PREFIX, frame
from kubedevices.wire.grpc_headers import request_headers
from kubedevices.wire.http2_frames import ACK, DATA, DEFAULT_WINDOW, END_STREAM, HEAD, HEADERS
from kubedevices.wire.http2_frames import frame as http2_frame

_MAX_FRAME = 2**20


@dataclass(slots=True)
class RawAnswer:
    """What came back on one stream: headers and trailers as one, and the bytes between them."""

    headers: dict[bytes, bytes] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    is_reset: bool = False

    @property
    def grpc_status(self) -> int | None:
        """The call's status, None when there is none (yet)."""
        text = self.headers.get(b"grpc-status", b"")
        return int(text) if text.isdigit() else None

    @property
    def message(self) -> bytes:
        """The first message without its prefix."""
        return bytes(self.data[PREFIX:])


class RawConnection:
    """One connection; a task reads what comes, everything else is up to the caller."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._decoder = hpack.Decoder(_MAX_FRAME)
        self._answers: dict[int, RawAnswer] = {}
        self._next_stream = 1
        self._is_mute = False
        self.is_greeted = False  # by the peer's SETTINGS
        self.greeted_or_ended = asyncio.Event()  # it did, or it hung up
        self.ended = asyncio.Event()
        self._reading = asyncio.create_task(self._read(), name="raw connection")

    @classmethod
    async def open(
        cls, path: Path, *, window: int = DEFAULT_WINDOW, is_silent: bool = False
    ) -> "RawConnection":
        """Connect; raises OSError. `is_silent`: say nothing, not even what the protocol demands."""
        connection = cls(*await asyncio.open_unix_connection(path))
        connection._is_mute = is_silent
        if not is_silent:
            settings = frames.settings({frames.INITIAL_WINDOW_SIZE: window})
            connection.write(frames.PREFACE + settings)
        return connection

    def write(self, data: bytes) -> None:
        """Send these bytes as they are, unless nothing must follow any more."""
        if self._is_mute:
            return
        with contextlib.suppress(RuntimeError):  # closed meanwhile: `ended` says so
            self._writer.write(data)

    def call(
        self, method: str, payload: bytes, *, authority: str = "localhost", leave_out: int = 0
    ) -> RawAnswer:
        """Open a call; `leave_out` bytes of the end of its DATA frame are never sent."""
        stream_id = self._next_stream
        self._next_stream += 2
        answer = self._answers[stream_id] = RawAnswer()
        fields = dict(request_headers(method, None)) | {b":authority": authority.encode()}
        block = hpack.encode(tuple(fields.items()))
        body = http2_frame(DATA, END_STREAM, stream_id, frame(payload))
        self.write(http2_frame(HEADERS, frames.END_HEADERS, stream_id, block))
        self.write(body[: len(body) - leave_out])
        self._is_mute = leave_out > 0  # whatever followed would be taken for the rest of the frame
        return answer

    def hang_up(self) -> None:
        """Close without a word."""
        self._reading.cancel()
        self._writer.transport.abort()

    async def _read(self) -> None:
        try:
            while True:
                head = await self._reader.readexactly(HEAD.size)
                high, low, kind, flags, stream_id = HEAD.unpack(head)
                payload = await self._reader.readexactly(min(high << 16 | low, _MAX_FRAME))
                self._take(kind, flags, stream_id, payload)
        except (OSError, EOFError, ProtocolError):
            pass
        finally:
            self.ended.set()
            self.greeted_or_ended.set()
            for answer in self._answers.values():
                answer.ended.set()

    def _take(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
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
        elif answer and kind == frames.RST_STREAM:
            answer.is_reset = True
        if answer and (
            kind == frames.RST_STREAM or (kind in (DATA, HEADERS) and flags & END_STREAM)
        ):
            answer.ended.set()
