"""What a server does about bytes: RFC 9113 and RFC 7541, each as h2spec divides them, and more."""

from tests.wire.echo_server import WATCH
from tests.wire.frames import (
    ACK,
    CLIENT_HELLO,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    block,
    data,
    message,
    raw,
    settings,
)
from tests.wire.protocol.cases import (
    ALIVE,
    ANSWER,
    BLOCK,
    BROKEN,
    CLOSED,
    COMPRESSION,
    ENDED,
    FLOW,
    HAS_PRIORITY,
    MORE,
    NO_MESSAGE,
    PADDED,
    PREFACE,
    PROTOCOL,
    REFUSED,
    SIZE,
    SPOILT,
    UNFINISHED,
    Case,
    Field,
    acknowledged,
    blocked,
    body,
    call,
    case,
    connection_error,
    dependency,
    ended,
    goes_on,
    got,
    grow,
    head,
    literal,
    over,
    padded,
    ping,
    priority,
    request,
    reset,
    stream_error,
    string,
    watch,
    whole,
)

MAX_STREAMS = 10
"""What the server of these cases allows."""
MAX_FRAME = 65536
"""Our MAX_FRAME_SIZE; `test_server_cases` compares it with what the server says."""
UNKNOWN = raw(0x16, 0, 0, bytes(8))
STATES_CLOSED = stream_error(CLOSED)
CONFUSED = stream_error(CLOSED, PROTOCOL)
KEY, VALUE = bytes.fromhex("25a849e95ba97d7f"), bytes.fromhex("25a849e95bb8e8b4bf")
"""custom-key and custom-value in Huffman code (RFC 7541, C.4.3)."""
TRAILERS = raw(HEADERS, END_HEADERS | END_STREAM, 1, literal(b"x-test", b"ok"))
TE_GZIP = [(name, b"trailers, deflate" if name == b"te" else value) for name, value in request()]
STREAM_WINDOW = 2**18
"""Our INITIAL_WINDOW_SIZE; `test_server_cases` compares it with what the server says."""
WASTE = padded(DATA, 0, 1, b"", 255)
PADDED_OUT = raw(DATA, PADDED, 1, bytes((5, 0, 0, 0, 0)))
WITHOUT_AUTHORITY = request(without=b":authority")
SPLIT = head(1) + body(1)
INDEXED = block(request()) + literal(b"x-kept", b"x" * 40, 0x40)
BIG = b"\x40" + string(b"x-big") + b"\x7f\x81\x1f" + bytes(b"x" * 4096)


def coded(text: bytes) -> bytes:
    """Return a string literal that is in Huffman code already."""
    return bytes((0x80 | len(text),)) + text


def ends(section: str, text: str, fragment: bytes, *, first: bytes = b"") -> Case:
    """Return a case whose header block cannot be decoded."""
    sent = blocked(first + BLOCK + fragment)
    return Case(f"HPACK {section}", text, (sent,), connection_error(COMPRESSION))


def reads(section: str, text: str, fragment: bytes, *, first: bytes = b"") -> Case:
    """Return a case whose header block is in order."""
    return Case(f"HPACK {section}", text, (blocked(first + BLOCK + fragment),), NO_MESSAGE)


def malformed(section: str, text: str, fields: list[Field]) -> Case:
    """Return a case whose header fields no request may have."""
    return Case(section, text, (whole(1, fields),), SPOILT)


def unfit(text: str, *fields: Field) -> Case:
    """Return a case with fields that HTTP does not allow."""
    return Case("8.2.1", text, (whole(1, request(*fields)),), SPOILT | {"http 400"})


def called(authority: str, *fields: Field) -> Case:
    """Return a case of a call that is in order, whatever `:authority` is."""
    sent = raw(HEADERS, END_HEADERS, 1, block(fields))
    return Case("8.3.1", f":authority {authority}", (sent, body(1)), ANSWER)


def undecodable(section: str, text: str, fragment: bytes) -> Case:
    """Return a case whose header block cannot be decoded."""
    return Case(f"HPACK {section}", text, (blocked(fragment),), connection_error(COMPRESSION))


def in_turn(section: str, text: str, *fragments: bytes) -> Case:
    """Return a case whose header blocks, one a request, are in order."""
    sent = tuple(blocked(fragment, 2 * at + 1) for at, fragment in enumerate(fragments))
    last = ended(2 * len(fragments) - 1)
    return Case(f"HPACK {section}", text, (*sent, last), ALIVE)


# fmt: off
# -------------------- streams: sections 3 to 5 of RFC 9113
STREAMS = [
    case("3.4", "the preface", ALIVE, hello=CLIENT_HELLO),
    case("3.4", "another preface", BROKEN | {"ended"}, b"INVALID CONNECTION PREFACE\r\n\r\n",
         hello=b""),
    case("4.1", "a frame of unknown type", ALIVE, UNKNOWN),
    case("4.1", "a flag without meaning", ALIVE, ping(flags=0x16)),
    case("4.1", "the reserved bit", ALIVE, raw(PING, 0, 1 << 31, bytes(8))),
    case("4.2", "DATA of 2^14 bytes", ANSWER, head(1), body(1, bytes(2**14 - 5))),
    case("4.2", "DATA above MAX_FRAME_SIZE", stream_error(SIZE), head(1),
         data(1, bytes(MAX_FRAME + 1))),
    case("4.2", "HEADERS above MAX_FRAME_SIZE", connection_error(SIZE),
         blocked(bytes(MAX_FRAME + 1))),
    case("4.3", "a header block that is none", connection_error(COMPRESSION), blocked(b"\x40")),
    case("4.3", "PRIORITY within a header block", BROKEN, UNFINISHED, priority(1),
         goes_on(1, MORE)),
    case("4.3", "HEADERS of another stream within a header block", BROKEN, UNFINISHED, whole(3),
         goes_on(1, MORE)),
    # ---------------------------------------------------------------- states of a stream
    case("5.1", "idle: DATA", BROKEN, data(1, b"test", end=True)),
    case("5.1", "idle: RST_STREAM", BROKEN, reset(1)),
    case("5.1", "idle: WINDOW_UPDATE", BROKEN, grow(1, 100)),
    case("5.1", "idle: CONTINUATION", BROKEN, goes_on(1, BLOCK)),
    case("5.1", "half-closed (remote): DATA", STATES_CLOSED, watch(1), data(1, b"test", end=True)),
    case("5.1", "half-closed (remote): HEADERS", STATES_CLOSED, watch(1), whole(1)),
    case("5.1", "half-closed (remote): CONTINUATION", CONFUSED, watch(1), goes_on(1, BLOCK)),
    case("5.1", "closed by RST_STREAM: DATA", STATES_CLOSED, head(1), reset(1),
         data(1, b"test", end=True)),
    case("5.1", "closed by RST_STREAM: HEADERS", STATES_CLOSED, head(1), reset(1), whole(1)),
    case("5.1", "closed by RST_STREAM: CONTINUATION", CONFUSED, head(1), reset(1),
         goes_on(1, MORE)),
    case("5.1", "closed: DATA", connection_error(CLOSED), call(1), ended(1),
         data(1, b"test", end=True)),
    case("5.1", "closed: HEADERS", connection_error(CLOSED), call(1), ended(1), whole(1)),
    case("5.1", "closed: CONTINUATION", connection_error(CLOSED, PROTOCOL), call(1), ended(1),
         goes_on(1, MORE)),
    case("5.1.1", "an even number", BROKEN, whole(2)),
    case("5.1.1", "a number below the last one", BROKEN, watch(5), whole(3)),
    case("5.1.2", "more streams than MAX_CONCURRENT_STREAMS", stream_error(PROTOCOL, REFUSED),
         *tuple(head(2 * number + 1) for number in range(MAX_STREAMS + 1))),
    case("5.3.1", "HEADERS whose stream depends on itself", SPOILT,
         raw(HEADERS, END_HEADERS | END_STREAM | HAS_PRIORITY, 1, dependency(1) + BLOCK)),
    case("5.3.1", "PRIORITY whose stream depends on itself", SPOILT, priority(1, 1)),
    case("5.4.1", "the connection ends after an error", BROKEN, raw(PING, 0, 3, bytes(8))),
    case("5.5", "an unknown frame", ALIVE, UNKNOWN),
    case("5.5", "an unknown frame within a header block", BROKEN, UNFINISHED, UNKNOWN),
]
# -------------------- frames and flow control: sections 6 and 7
FRAMES = [
    # ---------------------------------------------------------------- kinds of frames
    case("6.1", "DATA without a stream", BROKEN, data(0, b"test", end=True)),
    case("6.1", "DATA on a stream that is half-closed", stream_error(CLOSED),
         whole(1, request(path=WATCH)), data(1, b"test", end=True)),
    case("6.1", "DATA with more padding than payload", BROKEN, head(1),
         raw(DATA, PADDED | END_STREAM, 1, b"\6test")),
    case("6.2", "HEADERS without END_HEADERS, then PRIORITY", BROKEN, UNFINISHED,
         priority(1, weight=255)),
    case("6.2", "HEADERS without END_HEADERS, then another stream", BROKEN, UNFINISHED, whole(3)),
    case("6.2", "HEADERS without a stream", BROKEN, whole(0)),
    case("6.2", "HEADERS with more padding than payload", SPOILT,
         raw(HEADERS, PADDED | END_HEADERS | END_STREAM, 1, bytes((len(BLOCK) + 2,)) + BLOCK)),
    case("6.3", "PRIORITY without a stream", BROKEN, priority(0)),
    case("6.3", "PRIORITY of four bytes", stream_error(SIZE), raw(PRIORITY, 0, 1, bytes(4))),
    case("6.4", "RST_STREAM without a stream", BROKEN, reset(0)),
    case("6.4", "RST_STREAM on an idle stream", BROKEN, reset(1)),
    case("6.4", "RST_STREAM of three bytes", connection_error(SIZE), head(1),
         raw(RST_STREAM, 0, 1, bytes(3))),
    case("6.5", "an acknowledgement with a payload", connection_error(SIZE),
         raw(SETTINGS, ACK, 0, b"\0")),
    case("6.5", "SETTINGS on a stream", BROKEN, raw(SETTINGS, 0, 1, bytes((0, 3, 0, 0, 0, 9)))),
    case("6.5", "SETTINGS of three bytes", connection_error(SIZE), raw(SETTINGS, 0, 0, b"\0\3\0")),
    case("6.5.2", "ENABLE_PUSH of 2", BROKEN, settings((2, 2))),
    case("6.5.2", "INITIAL_WINDOW_SIZE of 2^31", connection_error(FLOW), settings((4, 2**31))),
    case("6.5.2", "MAX_FRAME_SIZE of 2^14 - 1", BROKEN, settings((5, 2**14 - 1))),
    case("6.5.2", "MAX_FRAME_SIZE of 2^24", BROKEN, settings((5, 2**24))),
    case("6.5.2", "an unknown setting", ALIVE, settings((0xFF, 1))),
    case("6.5.3", "the last of two values counts", frozenset({"data 1"}),
         settings((4, 100), (4, 1)), acknowledged(2), call(1), got(1)),
    case("6.5.3", "SETTINGS are acknowledged", ALIVE, settings((2, 0)), acknowledged(2)),
    case("6.7", "PING", ALIVE, ping(b"abcdefgh")),
    case("6.7", "an answer to no PING", ALIVE, ping(b"invalid\0", ACK)),
    case("6.7", "PING on a stream", BROKEN, raw(PING, 0, 1, bytes(8))),
    case("6.7", "PING of six bytes", connection_error(SIZE), ping(bytes(6))),
    case("6.8", "GOAWAY on a stream", BROKEN, raw(GOAWAY, 0, 1, bytes(8))),
    # ---------------------------------------------------------------- flow control
    case("6.9", "WINDOW_UPDATE of nought", BROKEN, grow(0, 0)),
    case("6.9", "WINDOW_UPDATE of nought on a stream", SPOILT, head(1), grow(1, 0)),
    case("6.9", "WINDOW_UPDATE of three bytes", connection_error(SIZE),
         raw(WINDOW_UPDATE, 0, 0, b"\0\0\1")),
    case("6.9.1", "a window of one byte", frozenset({"data 1"}), settings((4, 1)), acknowledged(2),
         call(1), got(1)),
    case("6.9.1", "the connection's window above 2^31 - 1", connection_error(FLOW),
         grow(0, 2**31 - 1), grow(0, 2**31 - 1)),
    case("6.9.1", "a stream's window above 2^31 - 1", frozenset({"reset FLOW_CONTROL_ERROR"}),
         head(1), grow(1, 2**31 - 1), grow(1, 2**31 - 1)),
    case("6.9.2", "INITIAL_WINDOW_SIZE changes open streams", frozenset({"data 1"}),
         settings((4, 0)), acknowledged(2), call(1), settings((4, 1)), acknowledged(3), got(1)),
    case("6.9.2", "a window below nought", frozenset({"data 4"}), settings((4, 3)), acknowledged(2),
         call(1), got(3), settings((4, 2)), acknowledged(3), grow(1, 2), got(4)),
    case("6.9.2", "INITIAL_WINDOW_SIZE above the maximum", connection_error(FLOW),
         settings((4, 2**31))),
    # ---------------------------------------------------------------- CONTINUATION, error codes
    case("6.10", "two CONTINUATION frames", NO_MESSAGE, raw(HEADERS, END_STREAM, 1, BLOCK),
         goes_on(1, MORE, 0), goes_on(1, MORE)),
    case("6.10", "CONTINUATION, then DATA", BROKEN, UNFINISHED, goes_on(1, MORE, 0),
         data(1, b"test", end=True)),
    case("6.10", "CONTINUATION without a stream", BROKEN, UNFINISHED, goes_on(0, MORE)),
    case("6.10", "CONTINUATION after a whole block", BROKEN, watch(1), goes_on(1, MORE)),
    case("6.10", "CONTINUATION after the last one", BROKEN, raw(HEADERS, END_STREAM, 1, BLOCK),
         goes_on(1, MORE), goes_on(1, MORE)),
    case("6.10", "CONTINUATION after DATA", BROKEN, UNFINISHED, data(1, b"test", end=True),
         goes_on(1, MORE, 0), goes_on(0, MORE)),
    case("7", "GOAWAY with an unknown code", ENDED, raw(GOAWAY, 0, 0, bytes(4) + b"\0\0\0\xff"),
         over),
    case("7", "RST_STREAM with an unknown code", ALIVE, head(1), reset(1, 0xFF)),
]
GENERIC = [
    case("3.4", "the preface, then a call", ANSWER, call(1)),
    case("5.1", "PRIORITY on an idle stream", ALIVE, priority(1, weight=255)),
    case("5.1", "WINDOW_UPDATE on a half-closed stream", frozenset({"data 1"}), settings((4, 0)),
         call(1), grow(1, 1), got(1)),
    case("5.1", "PRIORITY on a half-closed stream", frozenset({"data 1"}), settings((4, 0)),
         call(1), priority(1), grow(1, 1), got(1)),
    case("5.1", "RST_STREAM on a half-closed stream", ALIVE, watch(1), reset(1)),
    case("5.1", "PRIORITY on a closed stream", ALIVE, call(1), ended(1), priority(1)),
    case("6.1", "one DATA frame", ANSWER, head(1), body(1)),
    case("6.1", "several DATA frames", ANSWER, head(1), data(1, message(b"test")[:3]),
         data(1, message(b"test")[3:], end=True)),
    case("6.1", "DATA with padding", ANSWER, head(1),
         padded(DATA, END_STREAM, 1, message(b"test"), 6)),
    case("6.2", "HEADERS", NO_MESSAGE, whole(1)),
    case("6.2", "HEADERS with padding", NO_MESSAGE,
         padded(HEADERS, END_HEADERS | END_STREAM, 1, BLOCK, 6)),
    case("6.2", "HEADERS with a priority", NO_MESSAGE,
         raw(HEADERS, END_HEADERS | END_STREAM | HAS_PRIORITY, 1,
         dependency(0, 255, exclusive=True) + BLOCK)),
    case("6.3", "PRIORITY of weight 1", ANSWER, priority(1), call(1)),
    case("6.3", "PRIORITY of weight 256", ANSWER, priority(1, weight=255), call(1)),
    case("6.3", "PRIORITY with a dependency", ANSWER, priority(3, 1), call(1)),
    case("6.3", "exclusive PRIORITY", ANSWER, priority(1, exclusive=True), call(1)),
    case("6.3", "PRIORITY on a stream above the next one", ANSWER, priority(3, weight=255),
         call(1)),
    case("6.4", "RST_STREAM", ALIVE, head(1), reset(1)),
    case("6.5", "SETTINGS", ALIVE, settings((3, 100)), acknowledged(2)),
    case("6.7", "PING of other bytes", ALIVE, ping()),
    case("6.8", "GOAWAY", ENDED, raw(GOAWAY, 0, 0, bytes(8)), over),
    case("6.9", "WINDOW_UPDATE", ANSWER, grow(0, 1), call(1)),
    case("6.9", "WINDOW_UPDATE on a stream", ANSWER, head(1), grow(1, 1), body(1)),
    case("6.10", "one CONTINUATION frame", NO_MESSAGE, raw(HEADERS, END_STREAM, 1, BLOCK[:9]),
         goes_on(1, BLOCK[9:])),
    case("6.10", "several CONTINUATION frames", NO_MESSAGE, raw(HEADERS, END_STREAM, 1, BLOCK[:9]),
         goes_on(1, BLOCK[9:20], 0), goes_on(1, BLOCK[20:])),
]
# -------------------- header blocks and requests: RFC 7541, section 8 of RFC 9113
REPRESENTATIONS = [
    reads("6.1", "an indexed field", b"\xba"),
    *(
        reads(section, f"{kind}, {what}", fragment)
        for section, kind, first in (
            ("6.2.1", "with incremental indexing", 0x40),
            ("6.2.2", "without indexing", 0x00),
            ("6.2.3", "never indexed", 0x10),
        )
        for what, fragment in (
            (
                "indexed name",
                bytes((first | (58 if first == 0x40 else 15),))
                + (b"" if first == 0x40 else b"\x2b")
                + string(b"test"),
            ),
            (
                "indexed name, Huffman",
                bytes((first | (58 if first == 0x40 else 15),))
                + (b"" if first == 0x40 else b"\x2b")
                + coded(VALUE),
            ),
            ("new name", literal(b"x-test", b"test", first)),
            ("new name, Huffman", bytes((first,)) + coded(KEY) + coded(VALUE)),
        )
    ),
    reads("6.3", "a table size update", b"", first=b"\x20"),
    reads("4.2", "two table size updates", b"", first=b"\x20\x3f\xe1\x1f"),
]
FIELDS = [
    # ---------------------------------------------------------------- requests
    case("8.1", "HEADERS in the middle of a request", SPOILT, head(1), head(1)),
    malformed("8.2.1", "a name in upper case", request((b"X-TEST", b"ok"))),
    malformed("8.3", "an unknown pseudo-header field", [(b":test", b"ok"), *request()]),
    malformed("8.3", "a pseudo-header field of responses", [(b":status", b"200"), *request()]),
    case("8.3", "a pseudo-header field in trailers", SPOILT, head(1), data(1, message(b"test")),
         whole(1, [(b":method", b"POST")])),
    malformed("8.3", "a pseudo-header field after others",
         [*request(without=b":path"), (b":path", b"/")]),
    malformed("8.2.2", "a field of HTTP/1.1 connections", request((b"connection", b"keep-alive"))),
    malformed("8.2.2", "TE other than trailers", TE_GZIP),
    malformed("8.3.1", "an empty :path", request(path="")),
    malformed("8.3.1", "no :method", request(without=b":method")),
    malformed("8.3.1", "no :scheme", request(without=b":scheme")),
    malformed("8.3.1", "no :path", request(without=b":path")),
    malformed("8.3.1", "two :method", [(b":method", b"POST"), *request()]),
    malformed("8.3.1", "two :scheme", [(b":scheme", b"http"), *request()]),
    malformed("8.3.1", "two :path", [(b":path", b"/"), *request()]),
    case("8.1.1", "content-length other than what comes", SPOILT,
         head(1, request((b"content-length", b"1"))), body(1, b"test")),
    case("8.1.1", "content-length other than what comes in two frames", SPOILT,
         head(1, request((b"content-length", b"1"))), data(1, message(b"test")),
         data(1, b"test", end=True)),
    case("8.4", "PUSH_PROMISE", BROKEN,
         raw(PUSH_PROMISE, END_HEADERS, 1, bytes((0, 0, 0, 2)) + BLOCK)),
    # ---------------------------------------------------------------- header blocks
    ends("2.3.3", "an index that the tables do not have", b"\xfe"),
    ends("2.3.3", "a name that the tables do not have", b"\x7f\x3f" + string(b"test")),
    ends("4.2", "a table size update at the end of the block", b"\x20"),
    ends("5.2", "padding of more than seven bits", b"\0" + coded(KEY + b"\xff") + string(b"ok")),
    ends("5.2", "padding with zeros", b"\0" + coded(KEY[:-1] + b"\x00") + string(b"ok")),
    ends("5.2", "the end of a string within it",
         b"\0" + coded(b"\xff\xff\xff\xff" + KEY) + string(b"ok")),
    ends("6.1", "index nought", b"\x80"),
    ends("6.3", "a table size above HEADER_TABLE_SIZE", b"", first=b"\x3f\xe2\x1f"),
]
EXCHANGES = [
    case("8.1", "GET", frozenset({"http 405"}), whole(1, request(method=b"GET"))),
    case("8.1", "HEAD", frozenset({"http 405"}), whole(1, request(method=b"HEAD"))),
    case("8.1", "POST", ANSWER, head(1), body(1)),
    case("8.1", "POST with trailers", ANSWER, head(1, request((b"trailer", b"x-test"))),
         data(1, message(b"test")), TRAILERS),
]
# -------------------- what h2spec does not ask
MORE_CASES = [
    # ---------------------------------------------------------------- frames
    case("3.4", "a preface that comes in pieces", ANSWER, PREFACE[:9],
         PREFACE[9:] + settings() + call(1), hello=b""),
    case("3.4", "no SETTINGS after the preface", BROKEN, PREFACE, ping(), hello=b""),
    case("3.4", "an acknowledgement instead of SETTINGS", BROKEN, PREFACE, raw(SETTINGS, ACK),
         hello=b""),
    case("4.1", "the reserved bit of a call", ANSWER, raw(HEADERS, END_HEADERS, 1 | 1 << 31, BLOCK),
         body(1)),
    case("4.1", "flags without meaning on every frame of a call", ANSWER,
         raw(HEADERS, END_HEADERS | 0xD2, 1, BLOCK),
         raw(DATA, END_STREAM | 0xF6, 1, message(b"x"))),
    case("4.1", "one byte at a time", ANSWER, *tuple(bytes((each,)) for each in SPLIT)),
    case("5.1", "closed: WINDOW_UPDATE", ALIVE, call(1), ended(1), grow(1, 9)),
    case("5.1", "closed: RST_STREAM", ALIVE, call(1), ended(1), reset(1)),
    case("5.1", "closed by RST_STREAM: RST_STREAM", ALIVE, head(1), reset(1), reset(1)),
    case("5.1", "closed by RST_STREAM: WINDOW_UPDATE", ALIVE | stream_error(CLOSED), head(1),
         reset(1), grow(1, 9)),
    case("5.1", "skipped: DATA", connection_error(PROTOCOL, CLOSED) | {"reset STREAM_CLOSED"},
         watch(5), data(3, b"x")),
    case("5.1", "the server's own: RST_STREAM", BROKEN, reset(2)),
    case("5.1", "the server's own: WINDOW_UPDATE", BROKEN, grow(2, 1)),
    case("5.1.1", "the largest number", ANSWER, call(2**31 - 1)),
    case("5.1.1", "a number that was used", connection_error(PROTOCOL, CLOSED), call(1), ended(1),
         call(3), ended(3), whole(1)),
    case("6.1", "DATA without the length of its padding", connection_error(PROTOCOL, SIZE), head(1),
         raw(DATA, PADDED, 1)),
    case("6.1", "DATA of padding as long as the frame", BROKEN, head(1), PADDED_OUT),
    case("6.1", "DATA of padding alone", ANSWER, head(1), padded(DATA, 0, 1, b"", 200), body(1)),
    case("6.1", "DATA of nothing, with the end", ANSWER, head(1), data(1, message(b"x")),
         data(1, b"", end=True)),
    case("6.2", "HEADERS without room for the priority", connection_error(PROTOCOL, SIZE),
         raw(HEADERS, END_HEADERS | HAS_PRIORITY, 1, bytes(4))),
    case("6.2", "HEADERS without the length of the padding", connection_error(PROTOCOL, SIZE),
         raw(HEADERS, END_HEADERS | PADDED, 1)),
    case("6.4", "RST_STREAM of five bytes", connection_error(SIZE), head(1),
         raw(RST_STREAM, 0, 1, bytes(5))),
    case("6.5", "an acknowledgement nobody waits for", ALIVE, raw(SETTINGS, ACK),
         raw(SETTINGS, ACK)),
    case("6.5", "every setting at its limits", ANSWER,
         settings((1, 0), (1, 2**32 - 1), (2, 1), (3, 0), (3, 2**32 - 1), (4, 2**31 - 1),
         (5, 2**14), (5, 2**24 - 1), (6, 0), (6, 2**32 - 1)), call(1)),
    case("6.5.2", "settings of extensions", ANSWER, settings((8, 1), (9, 1), (0xFFFF, 2**32 - 1)),
         call(1)),
    case("6.8", "GOAWAY of seven bytes", connection_error(SIZE), raw(GOAWAY, 0, 0, bytes(7))),
    case("6.8", "a call that is open at GOAWAY", frozenset({"answer 0"}), head(1),
         raw(GOAWAY, 0, 0, bytes(8)), body(1), ended(1)),
    case("6.8", "GOAWAY with words", ENDED, raw(GOAWAY, 0, 0, bytes(8) + b"bye \xff"), over),
    # ---------------------------------------------------------------- flow control
    case("6.9", "the reserved bit of WINDOW_UPDATE", ALIVE, grow(0, 1 | 1 << 31)),
    case("6.9", "the reserved bit and nought", BROKEN, grow(0, 1 << 31)),
    case("6.9", "a window as large as allowed", ANSWER, head(1), grow(1, 2**31 - 1 - 65535),
         grow(0, 2**31 - 1 - 65535), body(1)),
    case("6.9.1", "DATA above a stream's window", stream_error(FLOW), head(1),
         data(1, message(b"x")), WASTE * 1100),
    case("6.9.1", "an answer of nothing without a window", NO_MESSAGE, settings((4, 0)), whole(1)),
    case("6.9.2", "a setting opens a window beyond the maximum", connection_error(FLOW), head(1),
         grow(1, 2**31 - 1 - 65535), settings((4, 65536))),
    case("6.9.2", "a window that a call needs comes later", frozenset({"data 10"}),
         settings((4, 0)), call(1), ping(), settings((4, 5)), got(5), grow(1, 5), got(10)),
    # ---------------------------------------------------------------- header fields
    case("6.10", "a block of one byte a frame", NO_MESSAGE, raw(HEADERS, END_STREAM, 1),
         *(goes_on(1, BLOCK[at : at + 1], 0) for at in range(len(BLOCK))), goes_on(1, b"")),
    case("8.1", "trailers without an end", SPOILT, head(1), data(1, message(b"x")),
         head(1, [(b"x-test", b"ok")])),
    unfit("a space in a name", (b"x test", b"ok")),
    unfit("a name of nothing", (b"", b"ok")),
    unfit("a colon in a name", (b"x:test", b"ok")),
    unfit("a name beyond ASCII", ("tëst".encode(), b"ok")),
    unfit("NUL in a name", (b"x\0", b"ok")),
    unfit("NUL in a value", (b"x-test", b"o\0k")),
    unfit("a line feed in a value", (b"x-test", b"o\nk")),
    unfit("a carriage return in a value", (b"x-test", b"o\rk")),
    unfit("a value that begins with a space", (b"x-test", b" ok")),
    unfit("a value that ends with a tab", (b"x-test", b"ok\t")),
    *(
        case("8.2.2", f"the field {name.decode()}", SPOILT, whole(1, request((name, b"x"))))
        for name in (b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade")
    ),
    case("8.2.2", "no TE", ANSWER, head(1, request(without=b"te")), body(1)),
    case("8.1.1", "the content-length that comes", ANSWER,
         head(1, request((b"content-length", b"6"))), body(1, b"x")),
    case("8.1.1", "a content-length that is not a number", SPOILT | {"http 400"},
         head(1, request((b"content-length", b"+6"))), body(1, b"x")),
    case("8.5", "CONNECT", SPOILT | {"http 405"},
         whole(1, [(b":method", b"CONNECT"), (b":authority", b"a:1")])),
    case("8.3.1", "OPTIONS *", frozenset({"http 405"}) | SPOILT,
         whole(1, request(method=b"OPTIONS", path="*"))),
    called("as a raw path", *request(authority=b"/var/lib/kubelet/device-plugins/a b.sock")),
    called("percent-encoded", *request(authority=b"%2Fvar%2Flib%2Fkubelet%2Fa.sock")),
    called("localhost", *request(authority=b"localhost")),
    called("empty", *request(authority=b"")),
    called("absent", *WITHOUT_AUTHORITY),
    called("absent, with Host", *WITHOUT_AUTHORITY, (b"host", b"localhost")),
    called("with user", *request(authority=b"me@host:1")),
    # ---------------------------------------------------------------- HPACK
    undecodable("5.1", "an integer of more than 2^32", b"\xff\xff\xff\xff\xff\xff\x7f"),
    undecodable("5.1", "an integer that never ends", b"\xff" + b"\x80" * 40 + b"\x01"),
    undecodable("5.1", "an integer without its end", b"\xff\x80"),
    undecodable("5.2", "a string longer than the block", b"\0\x7e" + b"x" * 20),
    undecodable("5.2", "a Huffman string longer than the block", b"\0\xfe" + b"x" * 20),
    undecodable("5.2", "a name without a value", b"\0" + string(b"x-test")),
    undecodable("6.3", "a table size update between fields", b"\x82\x20" + BLOCK),
    undecodable("6.3", "a table size update without its end", b"\x3f\xe1"),
    undecodable("4.4", "an entry that was evicted", INDEXED + BIG + b"\xbe"),
    in_turn("2.3.2", "an entry of an earlier block", INDEXED, BLOCK + b"\xbe"),
    in_turn("4.2", "the table emptied between blocks", INDEXED, b"\x20" + BLOCK,
         b"\x3f\xe1\x1f" + INDEXED, BLOCK + b"\xbe"),
    in_turn("4.4", "an entry larger than the table", BLOCK + BIG, BLOCK),
    in_turn("6.2.1", "an indexed name from the dynamic table", INDEXED,
         BLOCK + b"\x7e" + string(b"other"), BLOCK + b"\xbe\xbf"),
    in_turn("5.1", "an index with needless zeros", BLOCK + b"\x0f\x80\x00" + string(b"ok")),
]
