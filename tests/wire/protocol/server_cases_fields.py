"""What a server does about header blocks and requests: RFC 7541, and section 8 of RFC 9113."""

from tests.wire.frames import END_HEADERS, END_STREAM, HEADERS, PUSH_PROMISE, data, message, raw
from tests.wire.protocol.cases import (
    ANSWER,
    BLOCK,
    BROKEN,
    COMPRESSION,
    NO_MESSAGE,
    SPOILT,
    Case,
    Field,
    blocked,
    body,
    connection_error,
    head,
    literal,
    request,
    string,
    whole,
)

KEY, VALUE = bytes.fromhex("25a849e95ba97d7f"), bytes.fromhex("25a849e95bb8e8b4bf")
"""custom-key and custom-value in Huffman code (RFC 7541, C.4.3)."""


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

TRAILERS = raw(HEADERS, END_HEADERS | END_STREAM, 1, literal(b"x-test", b"ok"))
TE_GZIP = [(name, b"trailers, deflate" if name == b"te" else value) for name, value in request()]

FIELDS = [
    # ---------------------------------------------------------------- requests
    Case("8.1", "HEADERS in the middle of a request", (head(1), head(1)), SPOILT),
    malformed("8.2.1", "a name in upper case", request((b"X-TEST", b"ok"))),
    malformed("8.3", "an unknown pseudo-header field", [(b":test", b"ok"), *request()]),
    malformed("8.3", "a pseudo-header field of responses", [(b":status", b"200"), *request()]),
    Case(
        "8.3",
        "a pseudo-header field in trailers",
        (head(1), data(1, message(b"test")), whole(1, [(b":method", b"POST")])),
        SPOILT,
    ),
    malformed(
        "8.3", "a pseudo-header field after others", [*request(without=b":path"), (b":path", b"/")]
    ),
    malformed("8.2.2", "a field of HTTP/1.1 connections", request((b"connection", b"keep-alive"))),
    malformed("8.2.2", "TE other than trailers", TE_GZIP),
    malformed("8.3.1", "an empty :path", request(path="")),
    malformed("8.3.1", "no :method", request(without=b":method")),
    malformed("8.3.1", "no :scheme", request(without=b":scheme")),
    malformed("8.3.1", "no :path", request(without=b":path")),
    malformed("8.3.1", "two :method", [(b":method", b"POST"), *request()]),
    malformed("8.3.1", "two :scheme", [(b":scheme", b"http"), *request()]),
    malformed("8.3.1", "two :path", [(b":path", b"/"), *request()]),
    Case(
        "8.1.1",
        "content-length other than what comes",
        (head(1, request((b"content-length", b"1"))), body(1, b"test")),
        SPOILT,
    ),
    Case(
        "8.1.1",
        "content-length other than what comes in two frames",
        (
            head(1, request((b"content-length", b"1"))),
            data(1, message(b"test")),
            data(1, b"test", end=True),
        ),
        SPOILT,
    ),
    Case(
        "8.4",
        "PUSH_PROMISE",
        (raw(PUSH_PROMISE, END_HEADERS, 1, (2).to_bytes(4, "big") + BLOCK),),
        BROKEN,
    ),
    # ---------------------------------------------------------------- header blocks
    ends("2.3.3", "an index that the tables do not have", b"\xfe"),
    ends("2.3.3", "a name that the tables do not have", b"\x7f\x3f" + string(b"test")),
    ends("4.2", "a table size update at the end of the block", b"\x20"),
    ends("5.2", "padding of more than seven bits", b"\0" + coded(KEY + b"\xff") + string(b"ok")),
    ends("5.2", "padding with zeros", b"\0" + coded(KEY[:-1] + b"\x00") + string(b"ok")),
    ends(
        "5.2",
        "the end of a string within it",
        b"\0" + coded(b"\xff\xff\xff\xff" + KEY) + string(b"ok"),
    ),
    ends("6.1", "index nought", b"\x80"),
    ends("6.3", "a table size above HEADER_TABLE_SIZE", b"", first=b"\x3f\xe2\x1f"),
]

EXCHANGES = [
    Case("8.1", "GET", (whole(1, request(method=b"GET")),), frozenset({"http 405"})),
    Case("8.1", "HEAD", (whole(1, request(method=b"HEAD")),), frozenset({"http 405"})),
    Case("8.1", "POST", (head(1), body(1)), ANSWER),
    Case(
        "8.1",
        "POST with trailers",
        (head(1, request((b"trailer", b"x-test"))), data(1, message(b"test")), TRAILERS),
        ANSWER,
    ),
]
