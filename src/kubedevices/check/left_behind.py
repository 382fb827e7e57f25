"""Finds what an earlier check left: its directory, and processes of its plugin.

The supervisor of a run kills all processes and removes the directory. A plugin that runs as root
can kill the supervisor. Then the check itself cleans up, and if somebody killed both, the next
check does. A run holds a lock in its directory, so a directory without a lock holder is left over.
"""

import contextlib
import fcntl
import logging
import os
import re
import shutil
import signal
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from kubedevices.host.untrusted_files import is_locked

MARK = "KUBEDEVICES_CHECK"
"""The variable with the directory of the run, which every process of the plugin inherits."""

LOCK_NAME = "lock"
PREFIX = "kd-check-"

_RUN = re.compile(rf"{PREFIX}[0-9a-f]{{8}}")
_MOST_ENTRIES = 20_000
_ENVIRONMENT_LIMIT = 256 * 1024
_COMMAND_LIMIT = 200

_log = logging.getLogger(__name__)


def hold(root: Path) -> int:
    """Lock the directory of a run for the life of this process; return the open lock.

    The file gets its name when it is locked. A check that begins at this moment would take a lock
    file without a holder for one of an ended run, and remove the directory.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    unnamed = root / f"{LOCK_NAME}.new"
    lock = os.open(unnamed, flags, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    unnamed.rename(root / LOCK_NAME)
    return lock


def clean_up_earlier_runs(parent: Path) -> None:
    """Remove directories of runs that have ended, and name processes that are left of them."""
    for root in _left_over(parent):
        shutil.rmtree(root, ignore_errors=True)
        what = "removed" if not root.exists() else "cannot be removed completely"
        running = processes_of(root)
        named = "; its plugin left processes, which you may want to end: " if running else ""
        _log.warning(
            "an earlier check left %s: %s%s%s", root, what, named, _text_of(running)
        )  # fmt: skip


def clean_up_own_run(root: Path) -> None:
    """End the processes of this run and remove its directory, if the supervisor could not do it."""
    if not root.exists():
        return
    running = processes_of(root)
    for pid in running:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(root, ignore_errors=True)
    _log.warning(
        "the supervisor of the plugin was killed; ended by the check itself: %s",
        _text_of(running) or "nothing was left",
    )


def _left_over(parent: Path) -> Iterator[Path]:
    """Yield the directories of ended runs of this user; the directory itself is not trusted."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for number, entry in enumerate(entries):
            if number >= _MOST_ENTRIES:
                return
            if _RUN.fullmatch(entry.name) and _is_left_over(Path(entry.path)):
                yield Path(entry.path)


def _is_left_over(root: Path) -> bool:
    try:
        found = root.lstat()
    except OSError:
        return False
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return False
    return is_locked(root / LOCK_NAME) is False  # None: a run that is just beginning


def processes_of(root: Path) -> Mapping[int, str]:
    """Return the command of each process that inherited the mark of a run, by process ID."""
    wanted, found = f"{MARK}={root}".encode(), {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError), Path(entry.path, "environ").open("rb") as file:
            if wanted in file.read(_ENVIRONMENT_LIMIT).split(b"\0"):
                with Path(entry.path, "cmdline").open("rb") as words:
                    command = words.read(_COMMAND_LIMIT).replace(b"\0", b" ").strip()
                if command and int(entry.name) != os.getpid():
                    found[int(entry.name)] = command.decode(errors="replace")
    return found


def _text_of(running: Mapping[int, str]) -> str:
    return ", ".join(f"{pid} ({command})" for pid, command in running.items())
