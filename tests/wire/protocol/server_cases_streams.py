"""What a server does about streams: sections 3 to 5 of RFC 9113, as h2spec divides them."""

from tests.wire.frames import CLIENT_HELLO, END_HEADERS, END_STREAM, HEADERS, PING, data, raw
from tests.wire.protocol.cases import (
    ALIVE,
    ANSWER,
    BLOCK,
    BROKEN,
    CLOSED,
    COMPRESSION,
    HAS_PRIORITY,
    MORE,
    PROTOCOL,
    REFUSED,
    SIZE,
    SPOILT,
    UNFINISHED,
    Case,
    blocked,
    body,
    call,
    connection_error,
    dependency,
    ended,
    goes_on,
    grow,
    head,
    ping,
    priority,
    reset,
    stream_error,
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

STREAMS = [
    Case("3.4", "the preface", (), ALIVE, CLIENT_HELLO),
    Case(
        "3.4",
        "another preface",
        (b"INVALID CONNECTION PREFACE\r\n\r\n",),
        BROKEN | {"ended"},
        b"",
    ),
    Case("4.1", "a frame of unknown type", (UNKNOWN,), ALIVE),
    Case("4.1", "a flag without meaning", (ping(flags=0x16),), ALIVE),
    Case("4.1", "the reserved bit", (raw(PING, 0, 1 << 31, bytes(8)),), ALIVE),
    Case("4.2", "DATA of 2^14 bytes", (head(1), body(1, bytes(2**14 - 5))), ANSWER),
    Case(
        "4.2",
        "DATA above MAX_FRAME_SIZE",
        (head(1), data(1, bytes(MAX_FRAME + 1))),
        stream_error(SIZE),
    ),
    Case(
        "4.2",
        "HEADERS above MAX_FRAME_SIZE",
        (blocked(bytes(MAX_FRAME + 1)),),
        connection_error(SIZE),
    ),
    Case("4.3", "a header block that is none", (blocked(b"\x40"),), connection_error(COMPRESSION)),
    Case(
        "4.3",
        "PRIORITY within a header block",
        (UNFINISHED, priority(1), goes_on(1, MORE)),
        BROKEN,
    ),
    Case(
        "4.3",
        "HEADERS of another stream within a header block",
        (UNFINISHED, whole(3), goes_on(1, MORE)),
        BROKEN,
    ),
    # ---------------------------------------------------------------- states of a stream
    Case("5.1", "idle: DATA", (data(1, b"test", end=True),), BROKEN),
    Case("5.1", "idle: RST_STREAM", (reset(1),), BROKEN),
    Case("5.1", "idle: WINDOW_UPDATE", (grow(1, 100),), BROKEN),
    Case("5.1", "idle: CONTINUATION", (goes_on(1, BLOCK),), BROKEN),
    Case(
        "5.1", "half-closed (remote): DATA", (watch(1), data(1, b"test", end=True)), STATES_CLOSED
    ),
    Case("5.1", "half-closed (remote): HEADERS", (watch(1), whole(1)), STATES_CLOSED),
    Case("5.1", "half-closed (remote): CONTINUATION", (watch(1), goes_on(1, BLOCK)), CONFUSED),
    Case(
        "5.1",
        "closed by RST_STREAM: DATA",
        (head(1), reset(1), data(1, b"test", end=True)),
        STATES_CLOSED,
    ),
    Case("5.1", "closed by RST_STREAM: HEADERS", (head(1), reset(1), whole(1)), STATES_CLOSED),
    Case(
        "5.1", "closed by RST_STREAM: CONTINUATION", (head(1), reset(1), goes_on(1, MORE)), CONFUSED
    ),
    Case(
        "5.1",
        "closed: DATA",
        (call(1), ended(1), data(1, b"test", end=True)),
        connection_error(CLOSED),
    ),
    Case("5.1", "closed: HEADERS", (call(1), ended(1), whole(1)), connection_error(CLOSED)),
    Case(
        "5.1",
        "closed: CONTINUATION",
        (call(1), ended(1), goes_on(1, MORE)),
        connection_error(CLOSED, PROTOCOL),
    ),
    Case("5.1.1", "an even number", (whole(2),), BROKEN),
    Case("5.1.1", "a number below the last one", (watch(5), whole(3)), BROKEN),
    Case(
        "5.1.2",
        "more streams than MAX_CONCURRENT_STREAMS",
        tuple(head(2 * number + 1) for number in range(MAX_STREAMS + 1)),
        stream_error(PROTOCOL, REFUSED),
    ),
    Case(
        "5.3.1",
        "HEADERS whose stream depends on itself",
        (raw(HEADERS, END_HEADERS | END_STREAM | HAS_PRIORITY, 1, dependency(1) + BLOCK),),
        SPOILT,
    ),
    Case(
        "5.3.1",
        "PRIORITY whose stream depends on itself",
        (priority(1, 1),),
        SPOILT,
    ),
    Case(
        "5.4.1",
        "the connection ends after an error",
        (raw(PING, 0, 3, bytes(8)),),
        BROKEN,
    ),
    Case("5.5", "an unknown frame", (UNKNOWN,), ALIVE),
    Case(
        "5.5",
        "an unknown frame within a header block",
        (UNFINISHED, UNKNOWN),
        BROKEN,
    ),
]
