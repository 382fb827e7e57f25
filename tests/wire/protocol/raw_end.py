"""The end of a socket that writes bytes as they are and says in a word what came back.

The words: `goaway CODE` (and the connection ended after it), `reset CODE`, `answer GRPC-STATUS`,
`http STATUS`, `data SIZE`, `ended` (without a word), `alive` (a PING was answered), and what
should never be: `goaway CODE, not ended`, `silence`.
"""

import asyncio

from hpack import Decoder

from tests.wire.by_hand import Streams
from tests.wire.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    Received,
)
from tests.wire.protocol.cases import Case, Code, Until, ping

PROBE = b"are you?"
PATIENCE = 20.0
"""Seconds for what comes at once: only a fault, or a machine that stands still, takes them."""


class RawEnd:
    """One connection by hand."""

    def __init__(self, streams: Streams, *, is_server: bool = False) -> None:
        self.reader, self.writer = streams
        self._is_server = is_server
        self._decoder = Decoder()
        self.ended: dict[int, str] = {}
        self.resets: list[str] = []
        self.data = 0
        self.acknowledged = 0
        self.settings: dict[int, int] = {}
        self.goaway: str | None = None
        self.is_over = False
        self.is_alive = False

    async def verdict(self, case: Case) -> str:
        """Send what the case says and return what the other end did about it."""
        self.writer.write(case.hello)
        try:
            async with asyncio.timeout(PATIENCE):
                for step in case.sent:
                    if isinstance(step, bytes):
                        self.writer.write(step)
                    else:
                        await self.until(step)
                return await self._judged(case)
        except TimeoutError:
            return f"{self.goaway}, not ended" if self.goaway else "silence"

    async def _judged(self, case: Case) -> str:
        counts = any(word.startswith("data ") for word in case.allowed)
        answers = any(word.startswith(("answer ", "http ")) for word in case.allowed)
        if not answers:
            self.writer.write(ping(PROBE))
        await self.until(
            lambda _: bool(self.resets) or (self.is_alive if not answers else bool(self.ended))
        )
        if self.goaway is not None:
            await self.until(lambda _: self.is_over)
            return self.goaway
        if self.resets:
            return self.resets[0]
        if self.is_over:
            return "ended"
        if counts:
            return f"data {self.data}"
        return next(iter(self.ended.values())) if answers else "alive"

    async def until(self, condition: Until) -> None:
        while not (condition(self) or self.is_over):
            try:
                first = await self.reader.readexactly(9)
                payload = await self.reader.readexactly(int.from_bytes(first[:3], "big"))
            except (asyncio.IncompleteReadError, ConnectionError):
                self.is_over = True
                return
            self._take(Received(first[3], first[4], int.from_bytes(first[5:], "big"), payload))

    def _take(self, frame: Received) -> None:
        if frame.kind == GOAWAY:
            code = int.from_bytes(frame.payload[4:8], "big")
            if code:
                self.goaway = f"goaway {Code(code).name}"
        elif frame.kind == RST_STREAM:
            if self._is_server or frame.stream not in self.ended:
                self.resets.append(f"reset {Code(int.from_bytes(frame.payload, 'big')).name}")
                self.ended[frame.stream] = self.resets[-1]
        elif frame.kind == PING:
            self.is_alive = self.is_alive or (bool(frame.flags & ACK) and frame.payload == PROBE)
        elif frame.kind == SETTINGS:
            self._take_settings(frame)
        elif frame.kind in (DATA, HEADERS):
            self._take_answer(frame)
        assert frame.kind != CONTINUATION, "our header blocks fit into one frame"

    def _take_settings(self, frame: Received) -> None:
        if frame.flags & ACK:
            self.acknowledged += 1
        else:
            for at in range(0, len(frame.payload), 6):
                key = int.from_bytes(frame.payload[at : at + 2], "big")
                self.settings[key] = int.from_bytes(frame.payload[at + 2 : at + 6], "big")

    def _take_answer(self, frame: Received) -> None:
        word = "answer"
        if frame.kind == DATA:
            self.data += len(frame.payload)
        else:
            assert frame.flags & END_HEADERS
            fields = dict(self._decoder.decode(frame.payload, raw=True))
            if b"grpc-status" in fields:
                word = f"answer {bytes(fields[b'grpc-status']).decode()}"
            elif b":status" in fields:
                word = f"http {bytes(fields[b':status']).decode()}"
        if frame.flags & END_STREAM:
            self.ended[frame.stream] = word
