"""Conversations with one end of a connection: mostly sensible, with something wrong now and then.

`conversation(seed)` always is the same. An act is a frame to send, or something the end does.
"""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from hpack import Encoder

from tests.wire.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    OK,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    REQUEST,
    RESPONSE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    raw,
)
from tests.wire.protocol.cases import HAS_PRIORITY, PADDED, Field

KINDS = {
    DATA: "DATA",
    HEADERS: "HEADERS",
    PRIORITY: "PRIORITY",
    RST_STREAM: "RST_STREAM",
    SETTINGS: "SETTINGS",
    PUSH_PROMISE: "PUSH_PROMISE",
    PING: "PING",
    GOAWAY: "GOAWAY",
    WINDOW_UPDATE: "WINDOW_UPDATE",
    CONTINUATION: "CONTINUATION",
}
WEIGHTS = (24, 30, 4, 8, 8, 1, 4, 1, 12, 2)
ODD_FIELDS: tuple[Field, ...] = (
    (b"X-Upper", b"x"),
    (b"x test", b"x"),
    (b"", b"x"),
    (b"x-test", b"a\0b"),
    (b"x-test", b"a\r\nb"),
    (b"connection", b"close"),
    (b"te", b"gzip"),
    (b":path", b""),
    (b":path", b"/again"),
    (b":status", b"200"),
    (b":unknown", b"x"),
    (b":method", b"GET"),
    (b"content-length", b"5"),
    (b"content-length", b"x"),
    (b"x-fine", b"\xff\x80"),
    (b"x-fine", b"x" * 300),
    (b"cookie", b"a=b"),
)


class Act(NamedTuple):
    """`what` is a kind of frame, or `finish`, `reset`; `data` the frame."""

    what: str
    stream: int
    data: bytes = b""
    detail: str = ""

    @property
    def leaves_open(self) -> bool:
        """Whether a header block is not complete yet."""
        kinds = (HEADERS, CONTINUATION, PUSH_PROMISE)
        return self.data[3] in kinds and not self.data[4] & END_HEADERS


class _Speaker:
    """The other side: keeps its compression table and the streams it has begun."""

    def __init__(self, random: Random, *, to_client: bool) -> None:
        self.random = random
        self.to_client = to_client
        self.encoder = Encoder()
        self.next_stream = 1
        self.unfinished = 0
        self.rest = b""

    def act(self) -> Act:
        random = self.random
        if self.unfinished and random.random() < 0.9:
            return self._continuation()
        choice = random.random()
        if choice < 0.08:
            return Act(random.choice(("finish", "reset")), self._stream())
        if choice < 0.12:
            return self._noise()
        (kind,) = random.choices(range(10), WEIGHTS)
        return self._frame(kind)

    def _stream(self) -> int:
        random = self.random
        if random.random() < 0.06:
            return random.choice((0, 2, 4, 99, 2**31 - 1))
        return (
            random.choice((1, 3, 5))
            if self.to_client
            else random.randrange(1, self.next_stream + 2, 2)
        )

    def _noise(self) -> Act:
        random = self.random
        kind, stream = random.choice((*range(10), 0x16)), self._stream()
        payload = random.randbytes(random.choice((0, 1, 3, 4, 5, 6, 8, 9, 12)))
        frame = raw(
            kind, random.choice((0, 1, 4, 5, 8, 0x2D, random.randrange(256))), stream, payload
        )
        return Act(KINDS.get(kind, "unknown"), stream, frame, "noise")

    def _frame(self, kind: int) -> Act:
        random = self.random
        stream, flags, payload, detail = self._stream(), 0, b"", ""
        if kind == DATA:
            payload = random.randbytes(random.choice((0, 1, 5, 100)))
            flags = random.choice((0, 0, 0, END_STREAM))
        elif kind == HEADERS:
            return self._headers(stream)
        elif kind == PRIORITY:
            depends_on = random.randrange(0, 12)
            payload = depends_on.to_bytes(4, "big") + b"\x10"
            detail = "on itself" if depends_on == stream else ""
        elif kind == RST_STREAM:
            payload = random.choice((0, 1, 7, 8, 99)).to_bytes(4, "big")
        elif kind == SETTINGS:
            stream, payload = 0, self._settings()
        elif kind == PUSH_PROMISE:
            payload = bytes((0, 0, 0, 2)) + self.encoder.encode(REQUEST)
            flags = END_HEADERS
        elif kind == PING:
            stream, payload, flags = 0, random.randbytes(8), random.choice((0, 0, ACK))
        elif kind == GOAWAY:
            stream, payload = 0, random.choice((b"", b"\x80"))
            payload = payload.ljust(4, b"\0") + random.randbytes(7)
        elif kind == WINDOW_UPDATE:
            stream = random.choice((0, stream))
            payload = random.choice((0, 1, 100, 2**30, 2**31 - 1)).to_bytes(4, "big")
        else:
            payload, flags = self.encoder.encode(OK), END_HEADERS
        if flags & END_STREAM == 0 and kind == DATA and random.random() < 0.1:
            flags |= PADDED
            payload = bytes((random.choice((0, 1, len(payload), len(payload) + 1, 255)),)) + payload
            detail = "padded"
        return Act(KINDS[kind], stream, raw(kind, flags, stream, payload), detail)

    def _settings(self) -> bytes:
        random = self.random
        values = {
            1: (0, 100, 4096, 2**32 - 1),
            2: (0, 1, 2),
            3: (0, 1, 1000),
            4: (0, 1, 65535, 2**31 - 1, 2**31),
            5: (16383, 16384, 2**24 - 1, 2**24),
            6: (0, 100, 2**32 - 1),
            99: (1,),
        }
        keys = random.choices(list(values), k=random.choice((0, 1, 1, 2)))
        pairs = ((key, random.choice(values[key])) for key in keys)
        return b"".join(key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in pairs)

    def _headers(self, stream: int) -> Act:
        random = self.random
        fields: list[Field]
        if not self.to_client and random.random() < 0.75:
            stream = self.next_stream
            self.next_stream += random.choice((2, 2, 2, 4))
            fields = list(REQUEST)
        else:
            options = (RESPONSE, OK) if self.to_client else (OK, [(b"x-trailer", b"x")])
            fields = list(random.choice(options))
        detail = ""
        if random.random() < 0.15:
            odd = random.choice(ODD_FIELDS)
            fields.insert(random.choice((0, len(fields))), odd)
            detail = odd[0].decode()
        if random.random() < 0.04:
            detail = f"without {fields.pop(random.randrange(len(fields)))[0].decode()}"
        block = self.encoder.encode(fields, huffman=random.random() < 0.5)
        if block and random.random() < 0.03:
            at = random.randrange(len(block))
            block = block[:at] + random.randbytes(1) + block[at + 1 :]
            detail = "damaged"
        flags = random.choice((END_HEADERS, END_HEADERS | END_STREAM, END_STREAM, 0))
        payload = block if flags & END_HEADERS else block[: random.randrange(len(block) + 1)]
        if not flags & END_HEADERS:
            self.unfinished, self.rest = stream, block[len(payload) :]
        if random.random() < 0.1:
            flags |= HAS_PRIORITY
            depends_on = random.randrange(0, 8)
            payload = depends_on.to_bytes(4, "big") + b"\x10" + payload
            detail = "on itself" if depends_on == stream else detail
        if random.random() < 0.1:
            flags |= PADDED
            detail = detail if payload else "padding alone"
            payload = b"\x03" + payload + bytes(3)
        return Act("HEADERS", stream, raw(HEADERS, flags, stream, payload), detail)

    def _continuation(self) -> Act:
        stream, size = self.unfinished, self.random.choice((0, 3, 1000))
        payload, self.rest = self.rest[:size], self.rest[size:]
        flags = 0 if self.rest else END_HEADERS
        if flags:
            self.unfinished = 0
        return Act("CONTINUATION", stream, raw(CONTINUATION, flags, stream, payload))


def conversation(seed: int, *, to_client: bool) -> Iterator[Act]:
    """Yield acts without end; the first SETTINGS, and a client's preface, are not among them."""
    speaker = _Speaker(Random(seed), to_client=to_client)
    while True:
        yield speaker.act()
