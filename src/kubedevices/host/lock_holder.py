"""Locks (flock) between processes, and the process that holds one. Blocking."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from kubedevices.errors import CannotAsk
from kubedevices.host.shared_directory import SharedDirectory

_LONGEST = 200
"""Characters of a command, enough to recognise it."""

_LOOK = 0.02
"""Seconds between two attempts to get the lock."""


@contextlib.contextmanager
def locked(directory: SharedDirectory, name: str, timeout: float) -> Iterator[None]:
    """Hold the lock of the file `name`, for which the caller waits `timeout` seconds at most.

    Raises `CannotAsk` with the process that holds it, and `OSError`.
    """
    file = directory.open_lock(name)
    try:
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    path, holder = directory.path / name, holder_of(file)
                    text = f"{holder} has held the lock {path} for {timeout:g} s: try again"
                    raise CannotAsk(text) from None
                time.sleep(_LOOK)
        yield
    finally:
        os.close(file)


def holder_of(file: int, proc: Path = Path("/proc")) -> str:
    """Return `process PID (COMMAND)` for the holder of a lock on the open `file`.

    The kernel does not show processes of other containers: the text then says so.
    """
    here = os.fstat(file)
    try:
        lines = (proc / "locks").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        # 1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF; a waiting process has "->".
        fields = line.split()
        if len(fields) < 8 or fields[1] != "FLOCK":
            continue
        pid, place = fields[4], fields[5]
        # The kernel and `stat` may number the device differently, on overlayfs for example.
        if place.rpartition(":")[2] == str(here.st_ino) and _has_open(proc / pid, here):
            return f"process {pid} ({_command(proc / pid)})"
    return "a process that is not visible from here, perhaps of another container"


def _has_open(process: Path, file: os.stat_result) -> bool:
    try:
        for each in (process / "fd").iterdir():
            if os.path.samestat(each.stat(), file):
                return True
    except PermissionError:
        return True  # of another user: the inode number has to be enough
    except OSError:
        pass
    return False


def _command(process: Path) -> str:
    try:
        with (process / "cmdline").open("rb") as file:
            text = file.read(4 * _LONGEST).replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "its command is unknown"
    # The command is the text of a stranger: one line, no control characters.
    return "".join(each if each.isprintable() else "?" for each in text)[:_LONGEST]
