"""What a case of the protocol is, and the pieces that many of them send."""

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from tests.wire.echo_server import CALL, WATCH
from tests.wire.frames import (
    ACK,
    CLIENT_HELLO,
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PRIORITY,
    REQUEST,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    block,
    data,
    message,
    raw,
)

if TYPE_CHECKING:
    from tests.wire.protocol.raw_end import RawEnd

PADDED, HAS_PRIORITY = 8, 0x20
Field = tuple[bytes, bytes]


class Code(IntEnum):
    """Error codes of RFC 9113, section 7."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


PROTOCOL, FLOW, SIZE = Code.PROTOCOL_ERROR, Code.FLOW_CONTROL_ERROR, Code.FRAME_SIZE_ERROR
CLOSED, COMPRESSION, REFUSED = Code.STREAM_CLOSED, Code.COMPRESSION_ERROR, Code.REFUSED_STREAM

Until = Callable[["RawEnd"], bool]
Step = bytes | Until
PREFACE = CLIENT_HELLO[:24]
HELLO = CLIENT_HELLO + raw(SETTINGS, ACK)


class Case(NamedTuple):
    """Bytes for the other end, and what it may do about them: words of `RawEnd.verdict`."""

    section: str
    text: str
    sent: tuple[Step, ...]
    allowed: frozenset[str]
    hello: bytes = HELLO

    def __repr__(self) -> str:
        return f"<Case {self.name}>"

    @property
    def name(self) -> str:
        return f"{self.section}: {self.text}"


def case(
    section: str, text: str, allowed: frozenset[str], *sent: Step, hello: bytes = HELLO
) -> Case:
    """Return a case; in this form a table of them has few lines."""
    return Case(section, text, sent, allowed, hello)


def connection_error(*codes: Code) -> frozenset[str]:
    """GOAWAY with one of the codes, then the end of the connection."""
    return frozenset(f"goaway {code.name}" for code in codes)


def stream_error(*codes: Code) -> frozenset[str]:
    """RST_STREAM with one of the codes; 5.4.2 lets an endpoint make a connection error of it."""
    return connection_error(*codes) | {f"reset {code.name}" for code in codes}


BROKEN = connection_error(PROTOCOL)
SPOILT = stream_error(PROTOCOL)
ALIVE = frozenset({"alive"})
"""The PING after it is answered, and nothing else happened."""
ENDED = frozenset({"ended"})
ANSWER = frozenset({"answer 0"})
NO_MESSAGE = frozenset({"answer 12"})
"""The call has no message: UNIMPLEMENTED, so the headers were read."""


def request(*more: Field, path: str = CALL, without: bytes = b"", **changed: bytes) -> list[Field]:
    """Return a request's fields: some added, one left out, pseudo-header fields changed."""
    fields = [
        (name, changed.get(name.decode().lstrip(":"), value))
        for name, value in REQUEST
        if name not in (without, b":path")
    ]
    if without != b":path":
        fields.insert(2, (b":path", changed.get("path", path.encode())))
    return [*fields, *more]


def head(stream: int, fields: Iterable[Field] | None = None, flags: int = END_HEADERS) -> bytes:
    """Return a HEADERS frame that opens a call."""
    return raw(HEADERS, flags, stream, block(request() if fields is None else fields))


def whole(stream: int, fields: Iterable[Field] | None = None) -> bytes:
    """Return a HEADERS frame that is a whole request."""
    return head(stream, fields, END_HEADERS | END_STREAM)


def blocked(fragment: bytes, stream: int = 1) -> bytes:
    """Return a HEADERS frame with this header block, the whole request."""
    return raw(HEADERS, END_HEADERS | END_STREAM, stream, fragment)


def body(stream: int, payload: bytes = b"hello") -> bytes:
    """Return the one message of a call and its end."""
    return data(stream, message(payload), end=True)


def call(stream: int, *more: Field, path: str = CALL) -> bytes:
    """Return a complete call of the echo."""
    return head(stream, request(*more, path=path)) + body(stream)


def watch(stream: int) -> bytes:
    """Return a complete call whose stream stays open at the server: half-closed (remote)."""
    return call(stream, path=WATCH)


def padded(kind: int, flags: int, stream: int, payload: bytes, size: int) -> bytes:
    """Return a frame with `size` bytes of padding."""
    return raw(kind, flags | PADDED, stream, bytes((size,)) + payload + bytes(size))


def priority(
    stream: int, depends_on: int = 0, weight: int = 0, *, exclusive: bool = False
) -> bytes:
    """Return a PRIORITY frame."""
    return raw(PRIORITY, 0, stream, dependency(depends_on, weight, exclusive=exclusive))


def dependency(depends_on: int, weight: int = 0, *, exclusive: bool = False) -> bytes:
    """Return the five bytes that PRIORITY and HEADERS share."""
    return (depends_on | exclusive << 31).to_bytes(4, "big") + bytes((weight,))


def reset(stream: int, code: int = Code.CANCEL) -> bytes:
    """Return an RST_STREAM frame."""
    return raw(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def grow(stream: int, size: int) -> bytes:
    """Return a WINDOW_UPDATE frame."""
    return raw(WINDOW_UPDATE, 0, stream, size.to_bytes(4, "big"))


def ping(payload: bytes = b"01234567", flags: int = 0) -> bytes:
    """Return a PING frame."""
    return raw(PING, flags, 0, payload)


def goes_on(stream: int, fragment: bytes, flags: int = END_HEADERS) -> bytes:
    """Return a CONTINUATION frame."""
    return raw(CONTINUATION, flags, stream, fragment)


def string(text: bytes) -> bytes:
    """Return a string literal of less than 127 bytes."""
    return bytes((len(text),)) + text


def literal(name: bytes, value: bytes, first: int = 0) -> bytes:
    """Return a literal field with a new name; `first` says what the table does with it."""
    return bytes((first,)) + string(name) + string(value)


BLOCK = block(request())
UNFINISHED = raw(HEADERS, 0, 1, BLOCK)
"""A header block without its end, and what may end it."""
MORE = literal(b"x-dummy", b"dummy")


def ended(stream: int) -> Until:
    """Wait until the other end has ended a stream."""
    return lambda end: stream in end.ended


def got(size: int) -> Until:
    """Wait for DATA: `size` bytes of it in all."""
    return lambda end: end.data >= size


def acknowledged(count: int) -> Until:
    """Wait until so many of our SETTINGS are acknowledged, with those of the greeting."""
    return lambda end: end.acknowledged >= count


def over(end: "RawEnd") -> bool:
    """Wait until the connection has ended."""
    return end.is_over
