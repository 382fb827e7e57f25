"""The end of a plugin process that cannot end gently: whatever is wrong, it ends."""

import subprocess
import sys

import pytest

PROGRAM = """
import logging, os, signal, sys, time
from kubedevices.plugin.stop_signals import StopSignals

logging.basicConfig(format="%(message)s")

def clean_up():
    print("cleaned up", flush=True)
    CLEAN_UP

with StopSignals(lambda: None, clean_up, grace=0.1):
    BEFORE
    os.kill(os.getpid(), signal.SIGTERM)
    AFTER
    time.sleep(60)
"""


def end_of(*, clean_up: str = "pass", before: str = "pass", after: str = "pass") -> tuple[int, str]:
    """Run a process whose loop is blocked and tell it to stop; return its code and output."""
    program = PROGRAM.replace("CLEAN_UP", clean_up)
    program = program.replace("BEFORE", before).replace("AFTER", after)
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=20, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("after", "code"),
    [("pass", 1), ("os.kill(os.getpid(), signal.SIGINT)", 128 + 2)],
    ids=["grace is over", "second signal"],
)
def test_the_process_ends_although_the_clean_up_fails(after: str, code: int) -> None:
    """A socket file that cannot be removed, for example, keeps no process alive."""
    failing = "raise PermissionError('read-only')"
    assert end_of(clean_up=failing, after=after) == (code, "cleaned up\n")


def test_the_log_says_where_the_loop_is_blocked() -> None:
    """Whoever's pod was ended for its liveness learns which line of the author's to look at."""
    program = (
        PROGRAM.replace("CLEAN_UP", "pass")
        .replace("BEFORE", "pass")
        .replace("AFTER", "def blocking_hook(): time.sleep(60)\n    blocking_hook()")
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False
    )
    assert "something blocks the event loop, exiting (it is at <string>:" in done.stderr
    assert "in blocking_hook, called by <string>:" in done.stderr


IGNORING = """
import os, signal, sys
from kubedevices.plugin.stop_signals import StopSignals

taken = []
with StopSignals(lambda: taken.append("stop"), lambda: None, grace=60):
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGHUP)
    print(*taken)
    os.kill(os.getpid(), signal.SIGTERM)
    print(*taken)
"""


def test_signals_that_the_parent_ignores_stay_ignored() -> None:
    """Under `nohup` or as a background job of a script, a program goes on; SIGTERM stops it."""
    done = subprocess.run(
        ["sh", "-c", "trap '' INT HUP; exec \"$@\"", "sh", sys.executable, "-c", IGNORING],
        capture_output=True, text=True, timeout=20, check=True,
    )  # fmt: skip
    assert done.stdout == "\nstop\n"


def test_the_process_ends_although_the_log_blocks() -> None:
    """What blocks the process may be its own log, as a pipe that nobody reads."""
    hold = "logging.getLogger().handlers[0].acquire()"
    assert end_of(before=hold) == (1, "cleaned up\n")
