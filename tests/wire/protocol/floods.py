"""Floods: what a peer may send but not without end, and bombs: few bytes that cost much."""

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from hpack import Encoder

from kubedevices.errors import ProtocolError
from kubedevices.wire.client_connection import ClientConnection
from kubedevices.wire.http2_limits import Limits
from tests.wire.frames import (
    ACK,
    CONTINUATION,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    METHOD,
    PRIORITY,
    PUSH_PROMISE,
    REQUEST,
    RST_STREAM,
    data,
    headers,
    new_client,
    new_server,
    raw,
    settings,
)
from tests.wire.protocol.cases import grow, literal, padded, ping, request, reset

Frames = Iterator[bytes]
MAX_STREAMS = 100
ODD = range(1, 2**31, 2)


def pings() -> Frames:
    while True:
        yield ping()


def answers_to_no_ping() -> Frames:
    while True:
        yield ping(flags=ACK)


def changing_settings() -> Frames:
    while True:
        yield settings((4, 1)) + settings((4, 2))


def bomb_of_settings() -> Frames:
    while True:
        yield settings(*((key, 1) for key in range(10, 1000)))


def window_updates() -> Frames:
    yield headers(1)
    while True:
        yield grow(1, 1)


def windows_of_the_connection() -> Frames:
    for stream in ODD[:MAX_STREAMS]:
        yield headers(stream)
    while True:
        yield grow(0, 1)


def priorities() -> Frames:
    for stream in ODD:
        yield raw(PRIORITY, 0, stream, bytes((0, 0, 0, 0, 7)))


def unknown_frames() -> Frames:
    while True:
        yield raw(0x99, 0, 0, b"grease")


def goaways() -> Frames:
    while True:
        yield raw(GOAWAY, 0, 0, bytes(8) + b"bye" * 50)


def empty_data() -> Frames:
    yield headers(1)
    while True:
        yield data(1, b"")


def rapid_resets() -> Frames:
    for stream in ODD:
        yield headers(stream) + reset(stream)


def refused_streams() -> Frames:
    for stream in ODD:
        yield headers(stream)


def malformed_requests() -> Frames:
    for stream in ODD:
        yield headers(stream, request((b"X", b"")))


def faults_on_streams() -> Frames:
    for stream in ODD:
        yield headers(stream) + grow(stream, 0)


def unknown_methods() -> Frames:
    for stream in ODD:
        yield headers(stream, request(path="/no/such")) + reset(stream)


def continuations() -> Frames:
    yield raw(HEADERS, 0, 1)
    while True:
        yield raw(CONTINUATION, 0, 1)


def continuations_of_one_byte() -> Frames:
    yield raw(HEADERS, 0, 1)
    while True:
        yield raw(CONTINUATION, 0, 1, b"\x82")


def informational_responses() -> Frames:
    while True:
        yield headers(1, [(b":status", b"103"), (b"link", b"x" * 100)])


def pushes() -> Frames:
    while True:
        yield raw(PUSH_PROMISE, END_HEADERS, 1, bytes((0, 0, 0, 2)))


def resets_of_what_is_over() -> Frames:
    while True:
        yield raw(RST_STREAM, 0, 1, bytes(4))


def bomb_of_indices() -> Frames:
    """A large field in the table, then one byte for each time it is used."""
    encoder = Encoder()
    yield raw(HEADERS, END_HEADERS, 1, encoder.encode([*REQUEST, (b"bomb", b"x" * 3000)]))
    for stream in ODD[1:]:
        yield raw(HEADERS, END_HEADERS, stream, encoder.encode([(b"bomb", b"x" * 3000)]) * 15_000)


def bomb_of_tiny_fields() -> Frames:
    for stream in ODD:
        yield raw(HEADERS, END_HEADERS, stream, b"\x82" * 15_000)


def bomb_of_table_entries() -> Frames:
    for stream in ODD:
        yield raw(HEADERS, END_HEADERS, stream, literal(b"", b"", 0x40) * 5_000)


def bomb_of_table_sizes() -> Frames:
    for stream in ODD:
        yield raw(HEADERS, END_HEADERS, stream, b"\x20\x3f\xe1\x1f" * 4_000)


def bomb_of_huffman() -> Frames:
    """Codes of five bits: the text is larger than its code."""
    text = b"\x00" * 15_000
    size = len(text) - 127
    string = bytes((0xFF, size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14)) + text
    for stream in ODD:
        yield raw(HEADERS, END_HEADERS, stream, b"\x00\x01x" + string)


def bomb_of_padding() -> Frames:
    yield headers(1)
    while True:
        yield padded(0, 0, 1, b"", 255)


TO_SERVERS: tuple[Callable[[], Frames], ...] = (
    pings,
    answers_to_no_ping,
    changing_settings,
    window_updates,
    windows_of_the_connection,
    priorities,
    unknown_frames,
    goaways,
    empty_data,
    rapid_resets,
    refused_streams,
    malformed_requests,
    faults_on_streams,
    unknown_methods,
    continuations,
    continuations_of_one_byte,
)
TO_CLIENTS: tuple[Callable[[], Frames], ...] = (
    pings,
    changing_settings,
    unknown_frames,
    goaways,
    informational_responses,
    pushes,
    resets_of_what_is_over,
    continuations,
)
BOMBS: tuple[Callable[[], Frames], ...] = (
    bomb_of_indices,
    bomb_of_tiny_fields,
    bomb_of_table_entries,
    bomb_of_table_sizes,
    bomb_of_huffman,
    bomb_of_settings,
    bomb_of_padding,
)


class Cost(NamedTuple):
    """What a flood cost us; `calls` are those of Python and C functions, `peak` is memory."""

    is_cut_off: bool
    frames: int
    received: int
    calls: int
    peak: int
    sent: int


def cost(flood: Callable[[], Frames], most: int, *, is_client: bool = False) -> Cost:
    """Endure a flood until it is cut off, or `most` frames of it, with a peer that never reads."""
    connection = new_client() if is_client else new_server(Limits(max_streams=MAX_STREAMS))
    if isinstance(connection, ClientConnection):
        connection.start_call(METHOD, b"x")
    connection.take_output()
    pieces = list(islice(flood(), most))
    frames = received = calls = 0
    is_cut_off = False

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    tracemalloc.start()
    sys.setprofile(note)
    try:
        for piece in pieces:
            frames += 1
            received += len(piece)
            connection.receive(piece)
            connection.take_events()
    except ProtocolError:
        is_cut_off = True
    finally:
        sys.setprofile(None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return Cost(is_cut_off, frames, received, calls, peak, len(connection.take_output()))
