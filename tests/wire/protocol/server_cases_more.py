"""What h2spec does not ask of a server, and RFC 9113, RFC 7541 or gRPC do."""

from tests.wire.frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    RST_STREAM,
    SETTINGS,
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
    NO_MESSAGE,
    PADDED,
    PREFACE,
    PROTOCOL,
    SIZE,
    SPOILT,
    Case,
    Field,
    blocked,
    body,
    call,
    connection_error,
    ended,
    goes_on,
    got,
    grow,
    head,
    literal,
    over,
    padded,
    ping,
    request,
    reset,
    stream_error,
    string,
    watch,
    whole,
)

STREAM_WINDOW = 2**18
"""Our INITIAL_WINDOW_SIZE; `test_server_cases` compares it with what the server says."""
WASTE = padded(DATA, 0, 1, b"", 255)


def malformed(text: str, *fields: Field) -> Case:
    """Return a case with fields that HTTP does not allow."""
    return Case("8.2.1", text, (whole(1, request(*fields)),), SPOILT | {"http 400"})


def called(authority: str, *fields: Field) -> Case:
    """Return a case of a call that is in order, whatever `:authority` is."""
    sent = raw(HEADERS, END_HEADERS, 1, block(fields))
    return Case("8.3.1", f":authority {authority}", (sent, body(1)), ANSWER)


def ends(section: str, text: str, fragment: bytes) -> Case:
    """Return a case whose header block cannot be decoded."""
    return Case(f"HPACK {section}", text, (blocked(fragment),), connection_error(COMPRESSION))


def reads(section: str, text: str, *fragments: bytes) -> Case:
    """Return a case whose header blocks, one a request, are in order."""
    sent = tuple(blocked(fragment, 2 * at + 1) for at, fragment in enumerate(fragments))
    last = ended(2 * len(fragments) - 1)
    return Case(f"HPACK {section}", text, (*sent, last), ALIVE)


PADDED_OUT = raw(DATA, PADDED, 1, bytes((5, 0, 0, 0, 0)))
WITHOUT_AUTHORITY = request(without=b":authority")
SPLIT = head(1) + body(1)
INDEXED = block(request()) + literal(b"x-kept", b"x" * 40, 0x40)
BIG = b"\x40" + string(b"x-big") + b"\x7f\x81\x1f" + bytes(b"x" * 4096)

MORE_CASES = [
    # ---------------------------------------------------------------- frames
    Case(
        "3.4",
        "a preface that comes in pieces",
        (PREFACE[:9], PREFACE[9:] + settings() + call(1)),
        ANSWER,
        b"",
    ),
    Case("3.4", "no SETTINGS after the preface", (PREFACE, ping()), BROKEN, b""),
    Case(
        "3.4", "an acknowledgement instead of SETTINGS", (PREFACE, raw(SETTINGS, ACK)), BROKEN, b""
    ),
    Case(
        "4.1",
        "the reserved bit of a call",
        (raw(HEADERS, END_HEADERS, 1 | 1 << 31, BLOCK), body(1)),
        ANSWER,
    ),
    Case(
        "4.1",
        "flags without meaning on every frame of a call",
        (
            raw(HEADERS, END_HEADERS | 0xD2, 1, BLOCK),
            raw(DATA, END_STREAM | 0xF6, 1, message(b"x")),
        ),
        ANSWER,
    ),
    Case("4.1", "one byte at a time", tuple(bytes((each,)) for each in SPLIT), ANSWER),
    Case("5.1", "closed: WINDOW_UPDATE", (call(1), ended(1), grow(1, 9)), ALIVE),
    Case("5.1", "closed: RST_STREAM", (call(1), ended(1), reset(1)), ALIVE),
    Case("5.1", "closed by RST_STREAM: RST_STREAM", (head(1), reset(1), reset(1)), ALIVE),
    Case(
        "5.1",
        "closed by RST_STREAM: WINDOW_UPDATE",
        (head(1), reset(1), grow(1, 9)),
        ALIVE | stream_error(CLOSED),
    ),
    Case(
        "5.1",
        "skipped: DATA",
        (watch(5), data(3, b"x")),
        connection_error(PROTOCOL, CLOSED) | {"reset STREAM_CLOSED"},
    ),
    Case("5.1", "the server's own: RST_STREAM", (reset(2),), BROKEN),
    Case("5.1", "the server's own: WINDOW_UPDATE", (grow(2, 1),), BROKEN),
    Case("5.1.1", "the largest number", (call(2**31 - 1),), ANSWER),
    Case(
        "5.1.1",
        "a number that was used",
        (call(1), ended(1), call(3), ended(3), whole(1)),
        connection_error(PROTOCOL, CLOSED),
    ),
    Case(
        "6.1",
        "DATA without the length of its padding",
        (head(1), raw(DATA, PADDED, 1)),
        connection_error(PROTOCOL, SIZE),
    ),
    Case("6.1", "DATA of padding as long as the frame", (head(1), PADDED_OUT), BROKEN),
    Case("6.1", "DATA of padding alone", (head(1), padded(DATA, 0, 1, b"", 200), body(1)), ANSWER),
    Case(
        "6.1",
        "DATA of nothing, with the end",
        (head(1), data(1, message(b"x")), data(1, b"", end=True)),
        ANSWER,
    ),
    Case(
        "6.2",
        "HEADERS without room for the priority",
        (raw(HEADERS, END_HEADERS | HAS_PRIORITY, 1, bytes(4)),),
        connection_error(PROTOCOL, SIZE),
    ),
    Case(
        "6.2",
        "HEADERS without the length of the padding",
        (raw(HEADERS, END_HEADERS | PADDED, 1),),
        connection_error(PROTOCOL, SIZE),
    ),
    Case(
        "6.4",
        "RST_STREAM of five bytes",
        (head(1), raw(RST_STREAM, 0, 1, bytes(5))),
        connection_error(SIZE),
    ),
    Case(
        "6.5",
        "an acknowledgement nobody waits for",
        (raw(SETTINGS, ACK), raw(SETTINGS, ACK)),
        ALIVE,
    ),
    Case(
        "6.5",
        "every setting at its limits",
        (
            settings(
                (1, 0),
                (1, 2**32 - 1),
                (2, 1),
                (3, 0),
                (3, 2**32 - 1),
                (4, 2**31 - 1),
                (5, 2**14),
                (5, 2**24 - 1),
                (6, 0),
                (6, 2**32 - 1),
            ),
            call(1),
        ),
        ANSWER,
    ),
    Case(
        "6.5.2",
        "settings of extensions",
        (settings((8, 1), (9, 1), (0xFFFF, 2**32 - 1)), call(1)),
        ANSWER,
    ),
    Case("6.8", "GOAWAY of seven bytes", (raw(GOAWAY, 0, 0, bytes(7)),), connection_error(SIZE)),
    Case(
        "6.8",
        "a call that is open at GOAWAY",
        (head(1), raw(GOAWAY, 0, 0, bytes(8)), body(1), ended(1)),
        frozenset({"answer 0"}),
    ),
    Case("6.8", "GOAWAY with words", (raw(GOAWAY, 0, 0, bytes(8) + b"bye \xff"), over), ENDED),
    # ---------------------------------------------------------------- flow control
    Case("6.9", "the reserved bit of WINDOW_UPDATE", (grow(0, 1 | 1 << 31),), ALIVE),
    Case("6.9", "the reserved bit and nought", (grow(0, 1 << 31),), BROKEN),
    Case(
        "6.9",
        "a window as large as allowed",
        (head(1), grow(1, 2**31 - 1 - 65535), grow(0, 2**31 - 1 - 65535), body(1)),
        ANSWER,
    ),
    Case(
        "6.9.1",
        "DATA above a stream's window",
        (head(1), data(1, message(b"x")), WASTE * 1100),
        stream_error(FLOW),
    ),
    Case(
        "6.9.1", "an answer of nothing without a window", (settings((4, 0)), whole(1)), NO_MESSAGE
    ),
    Case(
        "6.9.2",
        "a setting opens a window beyond the maximum",
        (head(1), grow(1, 2**31 - 1 - 65535), settings((4, 65536))),
        connection_error(FLOW),
    ),
    Case(
        "6.9.2",
        "a window that a call needs comes later",
        (settings((4, 0)), call(1), ping(), settings((4, 5)), got(5), grow(1, 5), got(10)),
        frozenset({"data 10"}),
    ),
    # ---------------------------------------------------------------- header fields
    Case(
        "6.10",
        "a block of one byte a frame",
        (
            raw(HEADERS, END_STREAM, 1),
            *(goes_on(1, BLOCK[at : at + 1], 0) for at in range(len(BLOCK))),
            goes_on(1, b""),
        ),
        NO_MESSAGE,
    ),
    Case(
        "8.1",
        "trailers without an end",
        (head(1), data(1, message(b"x")), head(1, [(b"x-test", b"ok")])),
        SPOILT,
    ),
    malformed("a space in a name", (b"x test", b"ok")),
    malformed("a name of nothing", (b"", b"ok")),
    malformed("a colon in a name", (b"x:test", b"ok")),
    malformed("a name beyond ASCII", ("tëst".encode(), b"ok")),
    malformed("NUL in a name", (b"x\0", b"ok")),
    malformed("NUL in a value", (b"x-test", b"o\0k")),
    malformed("a line feed in a value", (b"x-test", b"o\nk")),
    malformed("a carriage return in a value", (b"x-test", b"o\rk")),
    malformed("a value that begins with a space", (b"x-test", b" ok")),
    malformed("a value that ends with a tab", (b"x-test", b"ok\t")),
    *(
        Case("8.2.2", f"the field {name.decode()}", (whole(1, request((name, b"x"))),), SPOILT)
        for name in (b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade")
    ),
    Case("8.2.2", "no TE", (head(1, request(without=b"te")), body(1)), ANSWER),
    Case(
        "8.1.1",
        "the content-length that comes",
        (head(1, request((b"content-length", b"6"))), body(1, b"x")),
        ANSWER,
    ),
    Case(
        "8.1.1",
        "a content-length that is not a number",
        (head(1, request((b"content-length", b"+6"))), body(1, b"x")),
        SPOILT | {"http 400"},
    ),
    Case(
        "8.5",
        "CONNECT",
        (whole(1, [(b":method", b"CONNECT"), (b":authority", b"a:1")]),),
        SPOILT | {"http 405"},
    ),
    Case(
        "8.3.1",
        "OPTIONS *",
        (whole(1, request(method=b"OPTIONS", path="*")),),
        frozenset({"http 405"}) | SPOILT,
    ),
    called("as a raw path", *request(authority=b"/var/lib/kubelet/device-plugins/a b.sock")),
    called("percent-encoded", *request(authority=b"%2Fvar%2Flib%2Fkubelet%2Fa.sock")),
    called("localhost", *request(authority=b"localhost")),
    called("empty", *request(authority=b"")),
    called("absent", *WITHOUT_AUTHORITY),
    called("absent, with Host", *WITHOUT_AUTHORITY, (b"host", b"localhost")),
    called("with user", *request(authority=b"me@host:1")),
    # ---------------------------------------------------------------- HPACK
    ends("5.1", "an integer of more than 2^32", b"\xff\xff\xff\xff\xff\xff\x7f"),
    ends("5.1", "an integer that never ends", b"\xff" + b"\x80" * 40 + b"\x01"),
    ends("5.1", "an integer without its end", b"\xff\x80"),
    ends("5.2", "a string longer than the block", b"\0\x7e" + b"x" * 20),
    ends("5.2", "a Huffman string longer than the block", b"\0\xfe" + b"x" * 20),
    ends("5.2", "a name without a value", b"\0" + string(b"x-test")),
    ends("6.3", "a table size update between fields", b"\x82\x20" + BLOCK),
    ends("6.3", "a table size update without its end", b"\x3f\xe1"),
    ends("4.4", "an entry that was evicted", INDEXED + BIG + b"\xbe"),
    reads("2.3.2", "an entry of an earlier block", INDEXED, BLOCK + b"\xbe"),
    reads(
        "4.2",
        "the table emptied between blocks",
        INDEXED,
        b"\x20" + BLOCK,
        b"\x3f\xe1\x1f" + INDEXED,
        BLOCK + b"\xbe",
    ),
    reads("4.4", "an entry larger than the table", BLOCK + BIG, BLOCK),
    reads(
        "6.2.1",
        "an indexed name from the dynamic table",
        INDEXED,
        BLOCK + b"\x7e" + string(b"other"),
        BLOCK + b"\xbe\xbf",
    ),
    reads("5.1", "an index with needless zeros", BLOCK + b"\x0f\x80\x00" + string(b"ok")),
]
