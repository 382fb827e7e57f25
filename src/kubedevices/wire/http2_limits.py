"""What h2 leaves unbounded: frames are cut, counted and checked here before h2 sees them.

`grpc_connection` feeds every received byte through a `FrameCutter`. It bounds the bytes kept for a
frame and for a header block, forgets settings nobody knows (h2 would keep each), takes GOAWAY out
(h2 closes on it although open calls go on) and ends a connection that floods.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kubedevices.errors import ProtocolError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = 9
MAX_FRAME_SIZE = 65536
MAX_HEADER_BLOCK = 65536

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 5, 6, 7, 8, 9
_ACK = 1
_END_HEADERS = 4
_KNOWN_SETTINGS = frozenset(range(1, 7))


class Frame(NamedTuple):
    """One whole frame: its kind, its stream, its payload's size and all its bytes."""

    kind: int
    stream_id: int
    size: int
    data: bytes


class FloodGuard:
    """Counts frames that cost us work and bring the peer nothing.

    Every such frame takes from a purse. Time and real work (payload moved, calls finished) fill it
    again, so a busy peer is never caught, and one that pings, resets or re-configures without end
    is.
    """

    purse = 10_000.0
    per_second = 1_000.0
    reset_costs = 10.0
    payload_earns = 4.0
    call_earns = 20.0

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left = self.purse
        self._at = clock()

    def spend(self, cost: float = 1.0) -> None:
        """Take `cost`; raises `ProtocolError` when the peer has nothing left."""
        if self._left < cost:
            now = self._clock()
            self.earn((now - self._at) * self.per_second)
            self._at = now
            if self._left < cost:
                raise ProtocolError("the peer floods the connection with control frames or resets")
        self._left -= cost

    def earn(self, amount: float) -> None:
        """Give back for work done, up to a full purse."""
        self._left = min(self.purse, self._left + amount)


class FrameCutter:
    """Cuts received bytes into frames; raises `ProtocolError` for those h2 must not see."""

    def __init__(self, guard: FloodGuard, *, expects_preface: bool) -> None:
        self._guard = guard
        self._buffer = bytearray()
        self._preface = PREFACE if expects_preface else b""
        self._is_first = True
        self._header_block = 0
        self._header_stream = 0

    @property
    def buffered(self) -> int:
        """Bytes of the frame that is not complete yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield every frame that `data` completes."""
        if self._preface:
            data = self._skip_preface(data)
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= HEAD:
                size = int.from_bytes(buffer[start : start + 3], "big")
                kind, flags = buffer[start + 3], buffer[start + 4]
                stream_id = int.from_bytes(buffer[start + 5 : start + HEAD], "big") & 0x7FFFFFFF
                self._check(kind, flags, stream_id, size)
                end = start + HEAD + size
                if len(buffer) < end:
                    return
                whole = bytes(memoryview(buffer)[start:end])
                start = end
                self._account(kind, flags, stream_id, size)
                if kind <= CONTINUATION:
                    yield Frame(kind, stream_id, size, whole)
        finally:
            del buffer[:start]

    def _skip_preface(self, data: bytes) -> bytes:
        count = min(len(self._preface), len(data))
        if data[:count] != self._preface[:count]:
            raise ProtocolError("the peer does not speak HTTP/2")
        self._preface = self._preface[count:]
        return data[count:]

    def _check(self, kind: int, flags: int, stream_id: int, size: int) -> None:
        if self._is_first and (kind != SETTINGS or flags & _ACK):
            raise ProtocolError("the peer does not speak HTTP/2: its first frame is no SETTINGS")
        if size > MAX_FRAME_SIZE:
            raise ProtocolError(f"frame of {size} bytes, {MAX_FRAME_SIZE} are allowed")
        if kind == PUSH_PROMISE:
            raise ProtocolError("the peer pushes, which gRPC never does")
        if self._header_block and (kind != CONTINUATION or stream_id != self._header_stream):
            raise ProtocolError("a header block is interrupted")
        if kind in (HEADERS, CONTINUATION) and self._header_block + size > MAX_HEADER_BLOCK:
            raise ProtocolError(f"header block above {MAX_HEADER_BLOCK} bytes")

    def _account(self, kind: int, flags: int, stream_id: int, size: int) -> None:
        self._is_first = False
        if kind in (HEADERS, CONTINUATION):
            # Empty frames count as well, or an endless block of them would.
            self._header_block = 0 if flags & _END_HEADERS else self._header_block + max(size, 1)
            self._header_stream = stream_id
        if kind == DATA and size:
            self._guard.earn(FloodGuard.payload_earns)
        else:
            self._guard.spend()


def known_settings(frame: Frame) -> bytes:
    """Return a SETTINGS frame without the settings that HTTP/2 does not define."""
    body = frame.data[HEAD:]
    if len(body) % 6:
        return frame.data
    kept = b"".join(
        body[at : at + 6]
        for at in range(0, len(body), 6)
        if int.from_bytes(body[at : at + 2], "big") in _KNOWN_SETTINGS
    )
    return len(kept).to_bytes(3, "big") + frame.data[3:HEAD] + kept


def goaway(last_stream_id: int, error_code: int, text: bytes = b"") -> bytes:
    """Return a GOAWAY frame; h2's own would close its state, but open calls go on."""
    body = last_stream_id.to_bytes(4, "big") + error_code.to_bytes(4, "big") + text
    return len(body).to_bytes(3, "big") + bytes((GOAWAY, 0, 0, 0, 0, 0)) + body


class GoAway(NamedTuple):
    """What the peer's GOAWAY says."""

    last_stream_id: int
    error_code: int
    text: str

    @property
    def reason(self) -> str:
        """Say it in words; grpc-go's text for one who pings too often is `too_many_pings`."""
        code = f" (HTTP/2 error code {self.error_code})" if self.error_code else ""
        return f"the peer is going away{code}" + (f": {self.text}" if self.text else "")


def parse_goaway(frame: Frame) -> GoAway:
    """Read a GOAWAY frame; raises `ProtocolError` for a malformed one."""
    if frame.size < 8 or frame.stream_id:
        raise ProtocolError("malformed GOAWAY")
    body = frame.data[HEAD:]
    return GoAway(
        int.from_bytes(body[:4], "big") & 0x7FFFFFFF,
        int.from_bytes(body[4:8], "big"),
        body[8:208].decode("utf-8", "replace"),
    )
