"""Whoever writes to an unblocked stream never waits; what is lost is counted and told."""

import contextlib
import fcntl
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubedevices.host.unblocked_output import (
    UnblockedStream,
    dropped_lines,
    flush_output,
    say_dropped,
    unblocked_output,
)
from tests.waiting import until_sync

LINE = "x" * 99 + "\n"


class Pipe:
    """A pipe with a stream at its writing end."""

    def __init__(self) -> None:
        self.reading, writing = os.pipe()
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        self.stream = os.fdopen(writing, "w")

    def fill(self) -> int:
        """Leave no room; return how many bytes that took."""
        number = self.stream.fileno()
        os.set_blocking(number, False)
        taken = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                taken += os.write(number, b"." * 4096)
        os.set_blocking(number, True)
        return taken

    def read(self, size: int) -> str:
        text = b""
        while len(text) < size:
            text += os.read(self.reading, size - len(text))
        return text.decode()

    def read_until(self, end: str) -> str:
        text = ""
        while not text.endswith(end):
            text += os.read(self.reading, 65536).decode()
        return text


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    with contextlib.suppress(OSError):
        os.close(made.reading)
    with contextlib.suppress(OSError):
        made.stream.close()


def test_a_full_pipe_drops_lines_and_reports_their_number(pipe: Pipe) -> None:
    """The oldest lines are kept, then comes how many are missing, then what is new."""
    filled = pipe.fill()
    stream = UnblockedStream(pipe.stream, limit=10 * len(LINE))
    stream.write("first\n")
    until_sync(lambda: not stream._waiting)  # the thread hangs in it
    for _ in range(25):
        stream.write(LINE)
    assert stream.dropped == 15
    assert not stream.wait_written(0.01)
    pipe.read(filled)
    assert pipe.read_until("written\n") == f"first\n{10 * LINE}{say_dropped(15)}\n"
    stream.write("new\n")
    assert pipe.read_until("new\n") == "new\n"
    stream.end(10)


def test_a_stream_without_a_descriptor_is_refused_and_can_be_closed() -> None:
    """The finaliser closes the refused object. An error there would be printed as a traceback."""
    with pytest.raises(io.UnsupportedOperation) as refusal:
        UnblockedStream(io.StringIO())
    refused: UnblockedStream = next(
        each.locals["self"] for each in refusal.traceback if each.name == "__init__"
    )
    refused.close()
    assert refused.closed


def test_a_line_longer_than_the_queue_is_written(pipe: Pipe) -> None:
    """A list of 100,000 devices is one line."""
    stream = UnblockedStream(pipe.stream, limit=10)
    stream.write(LINE * 100)
    assert pipe.read(100 * len(LINE)) == LINE * 100
    assert stream.dropped == 0
    stream.end(10)


def test_a_line_is_written_when_it_is_complete_or_flushed(pipe: Pipe) -> None:
    """As `print` writes it: the text, then its end."""
    stream = UnblockedStream(pipe.stream)
    print("one", "two", file=stream)
    assert pipe.read(8) == "one two\n"
    print("[1/2]", end="", file=stream, flush=True)
    assert pipe.read(5) == "[1/2]"
    stream.end(10)


def test_without_a_reader_only_lines_are_lost(pipe: Pipe) -> None:
    """Writing to a broken pipe or a full disk raises nothing anywhere."""
    os.close(pipe.reading)
    stream = UnblockedStream(pipe.stream)
    for written in range(1, 4):
        stream.write("lost\n")
        assert stream.wait_written(10)
        assert stream.dropped == written
    stream.end(10)


def test_lines_lost_on_a_full_disk_are_counted_when_there_is_room(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a line of its own, also where half a line was written."""
    real = os.write
    answers: list[int | OSError] = [3, OSError(28, "No space left on device")]

    def write(descriptor: int, data: bytes) -> int:
        if descriptor != pipe.stream.fileno() or not answers:
            return real(descriptor, data)
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return real(descriptor, data[:answer])

    def wait_or_fail(*_arguments: object) -> int:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(os, "pwritev", wait_or_fail)  # as files do
    stream = UnblockedStream(pipe.stream)
    stream.write("half a line\n")
    assert stream.wait_written(10)
    stream.write("whole\n")
    assert pipe.read_until("whole\n") == f"hal\n{say_dropped(1)}\nwhole\n"
    stream.end(10)


def test_the_thread_sleeps_while_there_is_room(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waking it for each line takes longer than all the rest of an Allocate."""
    by_the_thread: list[bytes] = []
    real = os.write

    def write(descriptor: int, data: bytes) -> int:
        by_the_thread.append(data)
        return real(descriptor, data)

    stream = UnblockedStream(pipe.stream)
    monkeypatch.setattr(os, "write", write)
    lines = [f"{number:04}\n" for number in range(1000)]  # 5,000 bytes, 4,096 have room
    for line in lines[:800]:
        stream.write(line)
    assert by_the_thread == []
    for line in lines[800:]:
        stream.write(line)
    assert pipe.read(5000) == "".join(lines)
    assert by_the_thread
    stream.end(10)


def test_a_stream_that_another_process_made_non_blocking_loses_nothing(pipe: Pipe) -> None:
    """Programs do that to the pipe they share with us."""
    filled = pipe.fill()
    os.set_blocking(pipe.stream.fileno(), False)
    stream = UnblockedStream(pipe.stream)
    stream.write("whole\n")
    assert not stream.wait_written(0.01)
    pipe.read(filled)
    assert pipe.read(6) == "whole\n"
    assert stream.dropped == 0
    stream.end(10)


def test_log_handlers_and_prints_use_the_unblocked_stream(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a handler that an author configured before."""
    monkeypatch.setattr(sys, "stderr", pipe.stream)
    handler = logging.StreamHandler(sys.stderr)
    logger = logging.getLogger("tests.unblocked")
    logger.addHandler(handler)
    logger.propagate = False
    filled = pipe.fill()
    try:
        with unblocked_output("stderr"):
            logger.warning("a log line")
            print("a print", file=sys.stderr)
            assert dropped_lines() == {"stdout": 0, "stderr": 0}
            pipe.read(filled)
            assert pipe.read_until("print\n") == "a log line\na print\n"
        assert sys.stderr is handler.stream is pipe.stream
    finally:
        logger.removeHandler(handler)


def test_two_streams_of_one_pipe_keep_their_lines_whole(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `2>&1` a log line does not land inside a JSON line that had no room."""
    with os.fdopen(os.dup(pipe.stream.fileno()), "w") as log:
        monkeypatch.setattr(sys, "stdout", pipe.stream)
        monkeypatch.setattr(sys, "stderr", log)
        with unblocked_output():
            for _ in range(20):
                print("j" * 10_000)
                print("a log line", file=sys.stderr)
                lines = pipe.read(10_012).splitlines()
                assert sorted(lines) == ["a log line", "j" * 10_000]


def test_the_end_waits_for_a_reader_with_a_limit(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is told to stop stops."""
    monkeypatch.setattr(sys, "stderr", pipe.stream)
    monkeypatch.setattr("kubedevices.host.unblocked_output.FLUSH_LIMIT", 0.01)
    pipe.fill()
    with unblocked_output("stderr"):
        print("never read", file=sys.stderr)
        stuck = next(each for each in threading.enumerate() if "output to" in each.name)
    assert sys.stderr is pipe.stream
    os.close(pipe.reading)  # lets the thread go
    stuck.join(10)
    assert not stuck.is_alive()


def test_a_signal_handler_may_write_while_its_thread_writes(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log line in a handler neither waits for the lock it interrupts nor is lost."""
    monkeypatch.setattr(sys, "stderr", pipe.stream)
    before = signal.signal(signal.SIGUSR1, lambda *_: print("s" * 9, file=sys.stderr))
    try:
        with unblocked_output("stderr"):
            for _ in range(300):
                os.kill(os.getpid(), signal.SIGUSR1)
                print("m" * 9, file=sys.stderr)
                flush_output(0)
                pipe.read(20)
            assert sum(dropped_lines().values()) == 0
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_streams_without_a_descriptor_are_not_replaced(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Writing to memory never waits."""
    closed = (tmp_path / "x").open("w")
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    with unblocked_output():
        assert not isinstance(sys.stdout, UnblockedStream)
        assert sys.stderr is closed
        print("in memory")
    assert capsys.readouterr().out == "in memory\n"
