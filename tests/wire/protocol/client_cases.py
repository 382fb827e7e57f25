"""What a server may say to our channel, and what becomes of the call that is open then."""

from typing import NamedTuple

from tests.wire.frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    OK,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RESPONSE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    block,
    data,
    headers,
    message,
    raw,
    settings,
)
from tests.wire.protocol.cases import (
    ALIVE,
    BROKEN,
    CLOSED,
    COMPRESSION,
    FLOW,
    PADDED,
    PROTOCOL,
    SIZE,
    SPOILT,
    Case,
    Field,
    Step,
    connection_error,
    ended,
    goes_on,
    got,
    grow,
    literal,
    padded,
    ping,
    priority,
    reset,
    stream_error,
)

MAX_FRAME = 65536
HELLO = settings() + raw(SETTINGS, ACK)
LAST = END_HEADERS | END_STREAM
FAILED = frozenset({"INTERNAL", "UNKNOWN", "UNAVAILABLE"})
LOST = frozenset({"UNAVAILABLE"})
DONE = frozenset({"OK"})


class ClientCase(NamedTuple):
    """Bytes for our channel, sent when a call has come; `outcomes` are allowed for that call."""

    case: Case
    outcomes: frozenset[str]
    then: tuple[Step, ...] = ()

    def __repr__(self) -> str:
        return f"<ClientCase {self.case.name}>"


def answer(stream: int) -> bytes:
    """Return a whole answer."""
    return headers(stream, RESPONSE) + data(stream, message(b"hi")) + headers(stream, OK, LAST)


def ends(section: str, text: str, allowed: frozenset[str], *sent: Step) -> ClientCase:
    """Return a case that ends the connection."""
    return ClientCase(Case(section, text, (ended(1), *sent), allowed, HELLO), LOST)


def goes(section: str, text: str, *sent: Step) -> ClientCase:
    """Return a case in which the call has its answer and nothing else happens."""
    return ClientCase(Case(section, text, (ended(1), *sent), ALIVE, HELLO), DONE)


def malformed(section: str, text: str, *sent: bytes) -> ClientCase:
    """Return a case with an answer that may not be taken for one (8.1.1)."""
    return ClientCase(Case(section, text, (ended(1), *sent), SPOILT, HELLO), FAILED)


def late(text: str, *sent: bytes) -> ClientCase:
    """Return a case of frames on a stream that has ended: discarded, or an error (5.1)."""
    allowed = ALIVE | stream_error(CLOSED)
    return ClientCase(Case("5.1", text, (ended(1), answer(1), *sent), allowed, HELLO), DONE)


def response(*more: Field, status: bytes = b"200") -> list[Field]:
    """Return the fields of a response."""
    return [(b":status", status), (b"content-type", b"application/grpc"), *more]


BEGUN = headers(1, RESPONSE)
BOMB = literal(b"x-bomb", b"x" * 100, 0x40) + b"\xbe" * 1000

# fmt: off
CLIENT_CASES = [
    goes("3.4", "an answer", answer(1)),
    ends("3.4", "HTTP/1.1", connection_error(PROTOCOL, SIZE), b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    goes("4.1", "an unknown frame", raw(0x16, 0xFF, 1, b"x"), answer(1)),
    goes("4.1", "one byte at a time", *(bytes((each,)) for each in answer(1))),
    ends("4.2", "DATA too large", stream_error(SIZE), BEGUN, data(1, bytes(MAX_FRAME + 1))),
    ends("4.2", "HEADERS too large", connection_error(SIZE), raw(HEADERS, LAST, 1, bytes(65537))),
    ends("4.3", "a block that is none", connection_error(COMPRESSION),
         raw(HEADERS, LAST, 1, b"\x40")),
    ends("4.3", "PING within a block", BROKEN, raw(HEADERS, 0, 1, block(RESPONSE)), ping()),
    ends("4.3", "an unknown frame within a block", BROKEN, raw(HEADERS, 0, 1), raw(0x16, 0, 1)),
    ends("5.1", "HEADERS on an idle stream", BROKEN, headers(3, RESPONSE)),
    ends("5.1", "DATA on an idle stream", BROKEN, data(3, b"x")),
    ends("5.1", "RST_STREAM on an idle stream", BROKEN, reset(3)),
    ends("5.1", "WINDOW_UPDATE on an idle stream", BROKEN, grow(3, 1)),
    ends("5.1", "CONTINUATION on an idle stream", BROKEN, goes_on(3, block(RESPONSE))),
    ends("5.1.1", "a stream of the server's own", BROKEN, headers(2, RESPONSE)),
    ends("5.1", "DATA on a stream of the server's own", BROKEN, data(2, b"x")),
    late("DATA after the end", data(1, b"x")),
    late("HEADERS after the end", headers(1, RESPONSE)),
    goes("5.1", "WINDOW_UPDATE after the end", answer(1), grow(1, 1)),
    goes("5.1", "RST_STREAM after the end", answer(1), reset(1)),
    goes("5.1", "PRIORITY on any stream", priority(1), priority(7), priority(8), answer(1)),
    ends("6.1", "DATA without a stream", BROKEN, data(0, b"x")),
    ends("6.1", "DATA with too much padding", BROKEN, BEGUN, raw(DATA, PADDED, 1, b"\6test")),
    ends("6.1", "as much padding as payload", BROKEN, BEGUN, raw(DATA, PADDED, 1, b"\5test")),
    goes("6.1", "padding", BEGUN, padded(DATA, 0, 1, message(b"hi"), 255), headers(1, OK, LAST)),
    ends("6.2", "HEADERS without a stream", BROKEN, headers(0, RESPONSE)),
    ends("6.3", "PRIORITY without a stream", BROKEN, raw(PRIORITY, 0, 0, bytes(5))),
    ends("6.4", "RST_STREAM without a stream", BROKEN, reset(0)),
    ends("6.4", "RST_STREAM of three bytes", connection_error(SIZE),
         raw(RST_STREAM, 0, 1, bytes(3))),
    ends("6.5", "an acknowledgement with a payload", connection_error(SIZE),
         raw(SETTINGS, ACK, 0, b"x")),
    ends("6.5", "SETTINGS on a stream", BROKEN, raw(SETTINGS, 0, 1)),
    ends("6.5", "SETTINGS of five bytes", connection_error(SIZE), raw(SETTINGS, 0, 0, bytes(5))),
    ends("6.5.2", "ENABLE_PUSH of 1", BROKEN, settings((2, 1))),
    ends("6.5.2", "ENABLE_PUSH of 2", BROKEN, settings((2, 2))),
    ends("6.5.2", "INITIAL_WINDOW_SIZE of 2^31", connection_error(FLOW), settings((4, 2**31))),
    ends("6.5.2", "MAX_FRAME_SIZE of 2^14 - 1", BROKEN, settings((5, 2**14 - 1))),
    ends("6.5.2", "MAX_FRAME_SIZE of 2^24", BROKEN, settings((5, 2**24))),
    goes("6.5.2", "unknown settings", settings((0, 1), (7, 1), (0xFFFF, 1)), answer(1)),
    ends("6.6", "PUSH_PROMISE", BROKEN, raw(PUSH_PROMISE, END_HEADERS, 1, bytes((0, 0, 0, 2)))),
    ends("6.7", "PING on a stream", BROKEN, raw(PING, 0, 1, bytes(8))),
    ends("6.7", "PING of six bytes", connection_error(SIZE), ping(bytes(6))),
    goes("6.7", "an answer to no PING", ping(flags=ACK), answer(1)),
    ends("6.8", "GOAWAY on a stream", BROKEN, raw(GOAWAY, 0, 1, bytes(8))),
    ends("6.8", "GOAWAY of seven bytes", connection_error(SIZE), raw(GOAWAY, 0, 0, bytes(7))),
    ends("6.9", "WINDOW_UPDATE of nought", BROKEN, grow(0, 0)),
    ends("6.9", "WINDOW_UPDATE of three bytes", connection_error(SIZE),
         raw(WINDOW_UPDATE, 0, 0, bytes(3))),
    ends("6.9.1", "the connection's window too large", connection_error(FLOW), grow(0, 2**31 - 1)),
    ClientCase(Case("6.9.1", "a window of one byte", (got(1),), frozenset({"data 1"}),
         settings((4, 1))), DONE, (settings((4, 65535)), ended(1), answer(1))),
    ClientCase(Case("6.9.2", "a window that shrinks below nought",
         (got(9), settings((4, 2)), grow(1, 7)), frozenset({"data 9"}), settings((4, 9))), DONE,
         (settings((4, 65535)), ended(1), answer(1))),
    ends("6.10", "CONTINUATION after nothing", BROKEN, goes_on(1, block(RESPONSE))),
    ends("6.10", "CONTINUATION of another stream", BROKEN, raw(HEADERS, 0, 1), goes_on(3, b"")),
    goes("6.10", "a block in pieces", raw(HEADERS, 0, 1),
         *(goes_on(1, block(RESPONSE)[at : at + 1], 0) for at in range(len(block(RESPONSE)))),
         goes_on(1, b""), answer(1)[len(BEGUN) :]),
    # ---------------------------------------------------------------- responses
    goes("8.1", "RST_STREAM without an error after the answer", answer(1), reset(1, 0)),
    goes("8.1", "an informational response", headers(1, [(b":status", b"103")]), answer(1)),
    malformed("8.1", "an informational response that ends",
         headers(1, [(b":status", b"103")], LAST)),
    malformed("8.1", "DATA before HEADERS", data(1, message(b"hi"))),
    malformed("8.1", "a second response", BEGUN, BEGUN),
    malformed("8.3", "pseudo-header fields in trailers", BEGUN,
         headers(1, [(b":status", b"200"), *OK], LAST)),
    malformed("8.3.2", "no :status", headers(1, RESPONSE[1:])),
    malformed("8.3.2", "two :status", headers(1, [RESPONSE[0], *RESPONSE])),
    malformed("8.3", "a pseudo-header field of requests",
         headers(1, [(b":path", b"/"), *RESPONSE])),
    malformed("8.3", "an unknown pseudo-header field", headers(1, [(b":x", b"/"), *RESPONSE])),
    malformed("8.3", ":status after others", headers(1, RESPONSE[::-1])),
    malformed("8.2.1", "a name in upper case", headers(1, response((b"X-Test", b"x")))),
    malformed("8.2.1", "a line feed in a value", headers(1, response((b"x-test", b"a\nb")))),
    malformed("8.2.1", "NUL in a value of trailers", BEGUN,
         headers(1, [*OK, (b"x-test", b"\0")], LAST)),
    malformed("8.2.2", "a field of HTTP/1.1 connections",
         headers(1, response((b"connection", b"x")))),
    malformed("8.1.1", "another content-length", headers(1, response((b"content-length", b"3"))),
         data(1, message(b"hi")), headers(1, OK, LAST)),
    # ---------------------------------------------------------------- header blocks
    ends("HPACK 2.3.3", "an unknown index", connection_error(COMPRESSION),
         raw(HEADERS, LAST, 1, b"\xff\x60")),
    ends("HPACK 5.1", "an endless integer", connection_error(COMPRESSION),
         raw(HEADERS, LAST, 1, b"\xff" + b"\x80" * 99)),
    ends("HPACK 6.3", "a table too large", connection_error(COMPRESSION),
         raw(HEADERS, LAST, 1, b"\x3f\xe2\x1f" + block(RESPONSE))),
    ends("10.5.1", "a header bomb", connection_error(*(PROTOCOL,
         COMPRESSION)) | {"goaway ENHANCE_YOUR_CALM"}, raw(HEADERS, LAST, 1, BOMB)),
]
