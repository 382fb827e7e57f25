"""Reads from /proc: descriptors, threads and memory of a process. Finds the owner of a socket."""

import contextlib
import os
import re
import socket
import struct
from pathlib import Path
from typing import NamedTuple

_STATUS = re.compile(r"^(Threads|VmRSS):\s+(\d+)", re.MULTILINE)


class Figures(NamedTuple):
    """Open file descriptors, threads and resident memory (KiB) of a process."""

    descriptors: int
    threads: int
    memory: int


def figures_of(pid: int) -> Figures | None:
    """Return the figures of a process, None if it has ended or if we may not read them."""
    try:
        status = dict(_STATUS.findall(Path(f"/proc/{pid}/status").read_text()))
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208  names are not needed
    except OSError:
        return None
    return Figures(descriptors, int(status.get("Threads", 0)), int(status.get("VmRSS", 0)))


def is_there(pid: int) -> bool:
    """Whether a process has not ended. A zombie has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def listening_process(path: Path) -> int:
    """Return the ID of the process that listens on a Unix socket, 0 if none does."""
    with socket.socket(socket.AF_UNIX) as question, contextlib.suppress(OSError):
        question.setblocking(False)
        question.connect(str(path))
        size = struct.calcsize("3i")
        credentials = question.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        pid: int = struct.unpack("3i", credentials)[0]
        return pid
    return 0
