"""`kubedevices.cli.node.foreground`: a child in the foreground of a terminal, and its signals."""

import os
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.waiting import until_sync

PARENT = """\
import os, sys
from kubedevices.cli.node.foreground import Foreground, end_like
with Foreground() as foreground:
    status = foreground.run(sys.argv[1:], os.environ, inherit=1)
sys.exit(end_like(status))
"""
COUNTING = """\
import os, signal, sys
seen = []
def say(*words):  # not print: a handler may interrupt another print
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
def note(number, frame):
    seen.append(signal.Signals(number).name)
    say("got", seen[-1])
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, note)
def end(*_):
    say("all", *seen)
    sys.exit(3)
signal.signal(signal.SIGTERM, end)
awake, told = os.pipe()  # unlike pause(), a read cannot miss a signal just before it
os.set_blocking(told, False)
signal.set_wakeup_fd(told)
say("child has", os.getpid())
while True:
    os.read(awake, 1)
"""
TO_TERMINAL = (
    "import fcntl, os, sys, termios\n"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    "os.execvp(sys.argv[1], sys.argv[1:])\n"
)
DEADLINE = 30


class Terminal:
    """A terminal with a command as its session leader in the foreground."""

    def __init__(self, *command: str) -> None:
        self._master, slave = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", TO_TERMINAL, *command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.seen = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def shows(self, text: str) -> str:
        """Wait for `text` after what was waited for before; return the rest of its line."""
        deadline = time.monotonic() + DEADLINE
        while text not in self.seen or "\n" not in self.seen.split(text, 1)[1]:
            left = deadline - time.monotonic()
            assert left > 0, (text, self.seen)
            if select.select([self._master], [], [], left)[0]:
                self.seen += os.read(self._master, 4096).decode()
        _, _, after = self.seen.partition(text)
        line, _, self.seen = after.partition("\n")
        return line.strip()


@pytest.fixture
def child(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A parent with a counting child, outside of any terminal."""
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, sys.executable, "-c", COUNTING],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    yield process
    with process:
        process.kill()


def test_ctrl_c_reaches_the_child_once() -> None:
    """The terminal tells both; we do not tell the child again. Then our exit code is its own."""
    with Terminal(sys.executable, "-c", PARENT, sys.executable, "-c", COUNTING) as terminal:
        terminal.shows("child has")
        terminal.type("\x03")
        terminal.shows("got SIGINT")
        terminal.process.send_signal(signal.SIGUSR1)  # behind it would be a second SIGINT
        terminal.shows("got SIGUSR1")
        terminal.process.terminate()
        assert terminal.shows("all") == "SIGINT SIGUSR1"
        assert terminal.process.wait(DEADLINE) == 3


def test_signals_sent_to_us_alone_are_passed_on(child: "subprocess.Popen[str]") -> None:
    """Each once, also SIGINT, which no terminal told the child."""
    assert child.stdout is not None
    assert child.stdout.readline().startswith("child has")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        child.send_signal(number)
        assert child.stdout.readline() == f"got {number.name}\n"
    child.terminate()
    assert child.stdout.readline() == "all SIGINT SIGHUP SIGUSR1\n"
    assert child.wait(DEADLINE) == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGABRT])
def test_a_signal_that_kills_the_child_kills_the_parent(number: signal.Signals) -> None:
    """Shells and systemd look at the signal, not only at a number above 128."""
    ended = subprocess.run(
        [sys.executable, "-c", PARENT, "sh", "-c", f"kill -{number.value} $$"],
        check=False,
        timeout=DEADLINE,
    )
    assert ended.returncode == -number


def test_a_shells_job_control_works(tmp_path: Path) -> None:
    """Ctrl-Z stops both and gives the prompt back, fg goes on, the exit code arrives."""
    (tmp_path / "parent.py").write_text(PARENT)
    (tmp_path / "counting.py").write_text(COUNTING)
    with Terminal("bash", "--norc", "--noprofile", "-i") as terminal:
        python = shlex.quote(sys.executable)
        terminal.type(f"{python} {tmp_path}/parent.py {python} {tmp_path}/counting.py\n")
        pid = int(terminal.shows("child has"))
        terminal.type("\x1a")
        terminal.shows("Stopped")
        assert state_of(pid) == "T"
        terminal.type("fg; echo co''de $?\n")
        until_sync(lambda: state_of(pid) != "T", DEADLINE)
        terminal.type("\x03")
        terminal.shows("got SIGINT")
        os.kill(pid, signal.SIGTERM)
        assert terminal.shows("code") == "3"


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_end_of_a_stopped_child_is_noticed(child: "subprocess.Popen[str]") -> None:
    """A debugger's SIGSTOP stops it alone: we must see its end."""
    assert child.stdout is not None
    pid = int(child.stdout.readline().split()[-1])
    os.kill(pid, signal.SIGSTOP)
    until_sync(lambda: state_of(pid) == "T", DEADLINE)
    os.kill(pid, signal.SIGCONT)
    os.kill(pid, signal.SIGTERM)
    assert child.wait(DEADLINE) == 3


def test_the_child_inherits_our_original_signal_settings() -> None:
    """No blocked signal, and SIGPIPE as usual: Python's own settings are not for others."""
    ended = subprocess.run(
        [sys.executable, "-c", PARENT, "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"],
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE,
    )
    masks = [int(line.split()[1], 16) for line in ended.stdout.splitlines()]
    assert [mask & 0x7FFFFFFF for mask in masks] == [0, 0]  # above are those of libc itself


def test_an_ignored_signal_stays_ignored() -> None:
    """Under nohup, SIGHUP ends neither of us."""
    ended = subprocess.run(
        [
            *("sh", "-c", "trap '' HUP; exec \"$@\"", "sh", sys.executable, "-c", PARENT),
            *("sh", "-c", "kill -HUP $PPID $$; echo goes on"),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE,
    )
    assert ended.stdout == "goes on\n"
