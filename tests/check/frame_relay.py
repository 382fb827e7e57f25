"""A relay between a client and the good plugin that breaks HTTP/2 frame by frame; for mutants.

grpcio would never do what these mutants do, so they put this in front of it: it listens on the
public socket and forwards whole frames to a hidden one.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

PREFACE = 24
HEAD = 9
DATA, HEADERS, RST_STREAM, PING = 0, 1, 3, 6
ACK = 1


class Frame(NamedTuple):
    """One frame as it was received."""

    kind: int
    flags: int
    stream: int
    payload: bytes
    data: bytes


class CutOff(Exception):
    """The client closed the connection within a frame."""


async def read_frame(reader: asyncio.StreamReader) -> Frame | None:
    """Return the next frame, None at the end; raises `CutOff`."""
    try:
        head = await reader.readexactly(HEAD)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise CutOff from None
        return None
    except ConnectionError:
        return None
    try:
        payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
    except (asyncio.IncompleteReadError, ConnectionError):
        raise CutOff from None
    return Frame(head[3], head[4], int.from_bytes(head[5:], "big"), payload, head + payload)


Forward = Callable[[Frame], Awaitable[bool]]
"""Called with a frame of the client; the relay drops the frame if it returns False."""


class Relay:
    """Forwards connections from `public` to `hidden`; `filters` makes a filter per connection."""

    def __init__(
        self,
        public: Path,
        hidden: Path,
        filters: Callable[[asyncio.StreamWriter], Forward],
        *,
        on_cut: Callable[[], None] = lambda: None,
        one_at_a_time: bool = False,
    ) -> None:
        self._public, self._hidden = public, hidden
        self._filters, self._on_cut = filters, on_cut
        self._greeting = asyncio.Lock() if one_at_a_time else None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_unix_server(self._accept, self._public)

    async def stop(self) -> None:
        """End every connection."""
        if self._server:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            try:
                async with self._greeting or contextlib.nullcontext():
                    preface = await reader.readexactly(PREFACE)
                inner_reader, inner_writer = await asyncio.open_unix_connection(self._hidden)
                try:
                    inner_writer.write(preface)
                    back = asyncio.create_task(_copy(inner_reader, writer))
                    await self._forward(reader, inner_writer, self._filters(writer))
                    back.cancel()
                finally:
                    inner_writer.close()
            finally:
                writer.close()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wanted: Forward
    ) -> None:
        try:
            while frame := await read_frame(reader):
                if await wanted(frame):
                    writer.write(frame.data)
        except CutOff:
            self._on_cut()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
