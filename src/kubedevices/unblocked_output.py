"""stdout and stderr of a process that must go on although nobody reads them.

A full pipe, a stopped terminal or a log on a disk that hangs makes every `print` and log line wait,
and with them the event loop. `unblocked_output` puts a queue and a thread of its own before each
stream: whoever writes never waits. A pipe or socket with room takes a line without the two. Lines
for which there is no room, or no reader, are dropped and counted; the count is written as soon as
writing works again. For `run` and verbs that keep running.
"""

import contextlib
import io
import logging
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO, Literal, TextIO

QUEUE_LIMIT = 4 * 1024 * 1024
"""Bytes that wait for the reader; one line that is longer may wait alone."""

FLUSH_LIMIT = 1.0
"""Seconds that the end of the process waits for the reader."""

_LONGEST_PART = _AT_ONCE = 64 * 1024

DescribeDropped = Callable[[int], str]
"""Returns what is written in place of so many dropped lines; without a line break."""


def say_dropped(lines: int) -> str:
    """Return the words for people."""
    return f"{lines} lines were dropped here: this output was not read, or could not be written"


class UnblockedStream(io.TextIOBase):
    """A text stream in front of `stream`, which has a file descriptor, that never blocks.

    Text goes on line by line, or with `flush`. `describe_dropped` may be exchanged at any time.
    """

    def __init__(self, stream: TextIO, *, limit: int = QUEUE_LIMIT) -> None:
        self.stream = stream
        self.describe_dropped: DescribeDropped = say_dropped
        self.dropped = 0
        """How many lines were dropped so far."""

        self._descriptor, self._limit = stream.fileno(), limit
        self._part = ""
        # Reentrant, because a signal handler may log while its own thread holds it.
        self._changed = threading.Condition(threading.RLock())
        self._waiting: deque[bytes | int] = deque()  # a number is of lines dropped there
        self._size = 0
        self._is_closing = self._is_writing = self._is_cut = False
        self._lost = 0  # lines dropped of which nobody was told yet
        self._can_refuse = True  # the descriptor says so instead of waiting
        name = f"output to {getattr(stream, 'name', 'a stream')}"
        self._thread = threading.Thread(target=self._write_all, name=name, daemon=True)
        self._thread.start()

    # ------------------------------------------------------------ what a stream has

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The one of the stream behind."""
        return self.stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """What becomes of letters that the encoding does not have."""
        return self.stream.errors

    @property
    def buffer(self) -> BinaryIO:
        """The bytes of the stream behind: who writes there waits for the reader."""
        return self.stream.buffer

    def fileno(self) -> int:
        """Return the descriptor that the thread writes to."""
        return self._descriptor

    def isatty(self) -> bool:
        """Whether a person reads along."""
        return self.stream.isatty()

    def writable(self) -> bool:
        """Say yes."""
        return True

    def write(self, text: str, /) -> int:
        """Queue the whole lines of `text`; the rest waits for its end."""
        if self._is_closing:  # a thread of somebody's that outlived the context
            return self.stream.write(text)
        with self._changed:
            whole, line_break, self._part = (self._part + text).rpartition("\n")
            if line_break:
                self._put(whole + line_break)
            if len(self._part) > _LONGEST_PART:
                self.flush()
        return len(text)

    def flush(self) -> None:
        """Queue a line that has not ended; waits for nothing, see `wait_written`."""
        with self._changed:
            part, self._part = self._part, ""
            if part:
                self._put(part)

    def _put(self, text: str) -> None:
        data = text.encode(self.encoding, self.errors or "strict")
        if not (self._waiting or self._is_writing or self._lost or self._is_cut):
            data = data[self._write_if_room(data) :]
            if not data:
                return
        size = len(data)
        if self._waiting and self._size + size > self._limit:
            lines = _count_lines(data)
            self.dropped += lines
            if isinstance(before := self._waiting[-1], int):
                self._waiting[-1] = before + lines
            else:
                self._waiting.append(lines)
            return
        # No call between reading and writing the sum: a signal handler could come in between.
        self._size += size
        self._waiting.append(data)
        self._changed.notify_all()

    def _write_if_room(self, data: bytes) -> int:
        """Return how many bytes went out without waiting; waking the thread takes longer."""
        if not self._can_refuse:
            return 0
        try:
            # RWF_NOWAIT is about this one write: O_NONBLOCK would change the description for every
            # process that has the same terminal or pipe.
            return os.pwritev(self._descriptor, [data], -1, os.RWF_NOWAIT)
        except BlockingIOError:
            return 0
        except OSError:  # a file, a terminal, an older kernel; or nobody reads any more
            self._can_refuse = False
            return 0

    def wait_written(self, timeout: float) -> bool:
        """Wait until everything is written or dropped; say whether it is, after `timeout` s."""
        self.flush()
        with self._changed:
            return self._changed.wait_for(
                lambda: not (self._waiting or self._is_writing), timeout=timeout
            )

    def end(self, timeout: float) -> None:
        """Write what waits, for `timeout` seconds at most; from now on writing may block again."""
        self.wait_written(timeout)
        with self._changed:
            self._is_closing = True
            self._waiting.clear()
            self._changed.notify_all()

    # ------------------------------------------------------------ the thread

    def _write_all(self) -> None:
        while (item := self._next()) is not None:
            lines, data = (item, b"") if isinstance(item, int) else (0, item)
            self._lost += lines
            try:
                if self._lost:
                    self._write_out(self._notice(self._lost))
                    self._lost = 0
                self._write_out(data)
            except OSError:  # nobody reads any more, the disk is full: the next line tries again
                with self._changed:
                    lines = _count_lines(data)
                    self.dropped += lines
                self._lost += lines

    def _notice(self, lines: int) -> bytes:
        return f"{self.describe_dropped(lines)}\n".encode(self.encoding, "backslashreplace")

    def _next(self) -> bytes | int | None:
        """Wait for something to write; None at the end."""
        with self._changed:
            self._is_writing = False
            self._changed.notify_all()
            while not self._waiting:
                self._size = 0
                if self._is_closing:
                    return None
                self._changed.wait()
            item = self._waiting.popleft()
            size = 0 if isinstance(item, int) else len(item)
            self._size -= size
            # From here to the next call the thread may hang in the write; `wait_written` must know
            # of it.
            self._is_writing = True
            return item

    def _write_out(self, data: bytes) -> None:
        if data and self._is_cut:  # half a line stands there
            data = b"\n" + data
        at = 0
        try:
            while at < len(data):
                try:
                    at += os.write(self._descriptor, data[at : at + _AT_ONCE])
                except BlockingIOError:  # another process made the description non-blocking
                    ready = select.poll()
                    ready.register(self._descriptor, select.POLLOUT)
                    ready.poll()
        finally:
            self._is_cut = 0 < at < len(data) or (self._is_cut and not at)


def _count_lines(data: bytes) -> int:
    return data.count(b"\n") or min(len(data), 1)


@contextlib.contextmanager
def unblocked_output(*names: Literal["stdout", "stderr"]) -> Iterator[None]:
    """Let nobody wait for these streams (both by default) while the context lasts.

    Log handlers that write there go the same way. A stream in memory stays as it is.
    """
    made: dict[str, UnblockedStream] = {}
    every: tuple[str, ...] = names or ("stdout", "stderr")
    for name in every:
        stream = getattr(sys, name)
        if isinstance(stream, UnblockedStream):
            continue
        try:
            stream.flush()
            ours = UnblockedStream(stream)
        except (AttributeError, OSError, ValueError):  # none, closed, or without a descriptor
            continue
        made[name] = ours
        setattr(sys, name, ours)
        _exchange(stream, ours)
    try:
        yield
    finally:
        flush_output(FLUSH_LIMIT)
        for name, ours in made.items():
            ours.end(0)
            _exchange(ours, ours.stream)
            if getattr(sys, name) is ours:
                setattr(sys, name, ours.stream)


def flush_output(timeout: float) -> None:
    """Wait for what was written to unblocked streams, `timeout` seconds in all."""
    deadline = time.monotonic() + timeout
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, UnblockedStream):
            stream.wait_written(max(0.0, deadline - time.monotonic()))


def dropped_lines() -> Mapping[str, int]:
    """Return how many lines were dropped, by stream: `stdout`, `stderr`."""
    streams = {"stdout": sys.stdout, "stderr": sys.stderr}
    return {
        name: stream.dropped if isinstance(stream, UnblockedStream) else 0
        for name, stream in streams.items()
    }


def describe_dropped(stream: object, describe: DescribeDropped) -> None:
    """Choose the line for dropped ones, if `stream` is unblocked."""
    if isinstance(stream, UnblockedStream):
        stream.describe_dropped = describe


def _exchange(old: object, new: object) -> None:
    """Let every log handler that writes to `old` write to `new`."""
    loggers = [logging.getLogger(), *logging.getLogger().manager.loggerDict.values()]
    for logger in loggers:
        for handler in getattr(logger, "handlers", ()):
            if isinstance(handler, logging.StreamHandler) and handler.stream is old:
                handler.setStream(new)
