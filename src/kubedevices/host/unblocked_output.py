"""Lets a process write to stdout and stderr without waiting, even if nobody reads them.

With a full pipe, a stopped terminal or a log on a disk that hangs, every `print` and every log line
waits, and the event loop waits too. `unblocked_output` puts a queue and a thread in front of each
stream, so a writer never waits. If a pipe or socket has room, a line goes out directly, without
queue and thread. Lines without room or without a reader are dropped and counted; the count is
written as soon as writing works again. For `run` and verbs that keep running.
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
"""Most bytes in the queue. A longer text may wait if the queue is empty."""

FLUSH_LIMIT = 1.0
"""Seconds that the process waits for the reader when it ends."""

_LONGEST_PART = _AT_ONCE = 64 * 1024

DescribeDropped = Callable[[int], str]
"""Returns the text that replaces this number of dropped lines, without a line break."""


def say_dropped(lines: int) -> str:
    """Return the default text that replaces dropped lines."""
    return f"{lines} lines were dropped here: this output was not read, or could not be written"


class UnblockedStream(io.TextIOBase):
    """A text stream in front of `stream`, which has a file descriptor, that never blocks.

    Text is written line by line, or by `flush`. `describe_dropped` may be replaced at any time.
    Streams of one pipe or file (`2>&1`, a unit of systemd) share `turn`: whoever writes has it,
    until the end of a line. Without it a log line lands inside a long line of JSON.
    """

    def __init__(
        self, stream: TextIO, *, limit: int = QUEUE_LIMIT, turn: "threading.Lock | None" = None
    ) -> None:
        self.stream = stream
        self.describe_dropped: DescribeDropped = say_dropped
        self.dropped = 0
        """Number of lines dropped so far."""

        # First: the finaliser of a stream calls `flush`, also if `fileno` below raises.
        self._part = ""
        # Reentrant: a signal handler may log while the same thread holds the lock.
        self._changed = threading.Condition(threading.RLock())
        self._descriptor, self._limit = stream.fileno(), limit
        self._waiting: deque[bytes | int] = deque()  # a number stands for lines dropped there
        self._size = 0
        self._is_closing = self._is_writing = self._is_inside_line = False
        self._turn, self._has_turn = turn or threading.Lock(), False
        self._uncounted = 0  # dropped lines that no notice has counted yet
        self._can_refuse = True  # whether a write can return BlockingIOError instead of waiting
        name = f"output to {getattr(stream, 'name', 'a stream')}"
        self._thread = threading.Thread(target=self._write_all, name=name, daemon=True)
        self._thread.start()

    # ------------------------------------------------------------ the interface of a text stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of `stream`."""
        return self.stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """How `stream` handles characters that the encoding does not have."""
        return self.stream.errors

    @property
    def buffer(self) -> BinaryIO:
        """The byte stream below `stream`; a write to it waits for the reader."""
        return self.stream.buffer

    def fileno(self) -> int:
        """Return the descriptor that the thread writes to."""
        return self._descriptor

    def isatty(self) -> bool:
        """Whether `stream` is a terminal."""
        return self.stream.isatty()

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str, /) -> int:
        """Queue the complete lines of `text`; the rest waits for its line break."""
        if self._is_closing:  # a thread writes after the context ended
            return self.stream.write(text)
        with self._changed:
            whole, line_break, self._part = (self._part + text).rpartition("\n")
            if line_break:
                self._put(whole + line_break)
            if len(self._part) > _LONGEST_PART:
                self.flush()
        return len(text)

    def flush(self) -> None:
        """Queue a line without its line break; does not wait, see `wait_written`."""
        with self._changed:
            part, self._part = self._part, ""
            if part:
                self._put(part)

    def _put(self, text: str) -> None:
        data = text.encode(self.encoding, self.errors or "strict")
        if not (self._waiting or self._is_writing or self._uncounted or self._is_inside_line):
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
        # No call between reading and writing `_size`: a signal handler could run in between.
        self._size += size
        self._waiting.append(data)
        self._changed.notify_all()

    def _write_if_room(self, data: bytes) -> int:
        """Write without waiting, faster than the thread could; return the number of bytes."""
        if not self._can_refuse or not self._turn.acquire(blocking=False):
            return 0
        written = 0
        try:
            # RWF_NOWAIT is for this one write. O_NONBLOCK would affect every process that has the
            # same terminal or pipe.
            written = os.pwritev(self._descriptor, [data], -1, os.RWF_NOWAIT)
        except BlockingIOError:
            pass
        except OSError:  # a file, a terminal, an older kernel, or no reader any more
            self._can_refuse = False
        self._has_turn = 0 < written < len(data)  # until the thread has written the rest
        if not self._has_turn:
            self._turn.release()
        return written

    def wait_written(self, timeout: float) -> bool:
        """Wait up to `timeout` s until everything is written or dropped; return whether it is."""
        self.flush()
        with self._changed:
            return self._changed.wait_for(
                lambda: not (self._waiting or self._is_writing), timeout=timeout
            )

    def end(self, timeout: float) -> None:
        """Write the queue, for at most `timeout` seconds; later writes may block."""
        self.wait_written(timeout)
        with self._changed:
            self._is_closing = True
            self._waiting.clear()
            self._changed.notify_all()

    # ------------------------------------------------------------ the thread

    def _write_all(self) -> None:
        while (item := self._next()) is not None:
            lines, data = (item, b"") if isinstance(item, int) else (0, item)
            self._uncounted += lines
            try:
                if self._uncounted:
                    self._write_out(self._notice(self._uncounted))
                    self._uncounted = 0
                self._write_out(data)
            except OSError:  # no reader, or a full disk: the next line tries again
                with self._changed:
                    lines = _count_lines(data)
                    self.dropped += lines
                self._uncounted += lines

    def _notice(self, lines: int) -> bytes:
        return f"{self.describe_dropped(lines)}\n".encode(self.encoding, "backslashreplace")

    def _next(self) -> bytes | int | None:
        """Wait for the next item of the queue and return it; None at the end."""
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
            # The item is out of the queue, but not written: `wait_written` must wait for it too.
            self._is_writing = True
            return item

    def _write_out(self, data: bytes) -> None:
        if data and self._is_inside_line:  # the last write ended inside a line
            data = b"\n" + data
        at = 0
        if not self._has_turn:
            self._turn.acquire()
        try:
            while at < len(data):
                try:
                    at += os.write(self._descriptor, data[at : at + _AT_ONCE])
                except BlockingIOError:  # another process set O_NONBLOCK
                    ready = select.poll()
                    ready.register(self._descriptor, select.POLLOUT)
                    ready.poll()
        finally:
            self._is_inside_line = 0 < at < len(data) or (self._is_inside_line and not at)
            self._has_turn = False
            self._turn.release()


def _count_lines(data: bytes) -> int:
    return data.count(b"\n") or min(len(data), 1)


@contextlib.contextmanager
def unblocked_output(*names: Literal["stdout", "stderr"]) -> Iterator[None]:
    """Replace these streams (both by default) by unblocked ones while the context lasts.

    Log handlers of a stream write to the unblocked stream as well. A stream without a file
    descriptor is not replaced.
    """
    replaced: dict[str, UnblockedStream] = {}
    turns: dict[tuple[int, int], threading.Lock] = {}
    every: tuple[str, ...] = names or ("stdout", "stderr")
    for name in every:
        stream = getattr(sys, name)
        if isinstance(stream, UnblockedStream):
            continue
        try:
            stream.flush()
            file = os.fstat(stream.fileno())
            turn = turns.setdefault((file.st_dev, file.st_ino), threading.Lock())
            ours = UnblockedStream(stream, turn=turn)
        except (AttributeError, OSError, ValueError):  # no stream, closed, or no descriptor
            continue
        replaced[name] = ours
        setattr(sys, name, ours)
        _replace_in_log_handlers(stream, ours)
    try:
        yield
    finally:
        flush_output(FLUSH_LIMIT)
        for name, ours in replaced.items():
            ours.end(0)
            _replace_in_log_handlers(ours, ours.stream)
            if getattr(sys, name) is ours:
                setattr(sys, name, ours.stream)


def flush_output(timeout: float) -> None:
    """Wait until unblocked streams have written everything, `timeout` seconds in all."""
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
    """Choose the text that replaces dropped lines of `stream`, if it is unblocked."""
    if isinstance(stream, UnblockedStream):
        stream.describe_dropped = describe


def _replace_in_log_handlers(old: object, new: object) -> None:
    """Let every log handler that writes to `old` write to `new`."""
    loggers = [logging.getLogger(), *logging.getLogger().manager.loggerDict.values()]
    for logger in loggers:
        for handler in getattr(logger, "handlers", ()):
            if isinstance(handler, logging.StreamHandler) and handler.stream is old:
                handler.setStream(new)
