"""A run that is interrupted at any moment leaves nothing behind."""

import os
import random
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.check.leftovers import (
    MARK,
    mounts_of_runs,
    processes_marked,
)
from tests.check.rig import GOOD_PLUGIN, widgets
from tests.waiting import until_sync

ROUNDS = 6
LONGEST = 4.0
"""Seconds until the signal, at most: a run at this speed is in the middle of everything."""

_PROBE = re.compile("[a-z0-9_]{8}")
"""The name of the file with which Python's `gettempdir` tries a directory, and then removes it."""


def start(devices: Path, tmp: Path, mark: str) -> "subprocess.Popen[bytes]":
    plugin = [sys.executable, str(GOOD_PLUGIN), "--device-dir", str(devices)]
    plugin += ["--socket-dir", "{socket_dir}", "--cdi-dir", "{cdi_dir}"]
    command = [sys.executable, "-m", "kubedevices.cli", "check", "--timeout-scale", "0.1", "--"]
    return subprocess.Popen(
        [*command, *plugin],
        env=os.environ | {MARK: mark, "TMPDIR": str(tmp)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # as a terminal's foreground job: signals go to its group
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_after_a_signal(number: signal.Signals, short_dir: Path) -> None:
    """No process, no directory and no mount, whenever the signal comes."""
    mark = uuid.uuid4().hex
    checks = []
    with widgets() as devices:
        for _ in range(ROUNDS):
            checks.append(start(devices, short_dir, mark))
            time.sleep(random.uniform(0, LONGEST / ROUNDS))
        for check in checks:
            os.killpg(check.pid, number)
        for check in checks:
            check.communicate(timeout=30)
        until_sync(lambda: not processes_marked(mark), what="the end of all")
    assert not [each for each in short_dir.iterdir() if not _PROBE.fullmatch(each.name)]
    assert not mounts_of_runs()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_says_nothing_more(
    number: signal.Signals, code: int, short_dir: Path
) -> None:
    """The exit code is that of the signal, and there is no traceback."""
    mark = uuid.uuid4().hex
    with widgets() as devices:
        check = start(devices, short_dir, mark)
        until_sync(lambda: len(processes_marked(mark)) > 2, what="a started plugin")
        os.killpg(check.pid, number)
        _, errors = check.communicate(timeout=30)
    assert check.returncode == code
    assert errors == b""
