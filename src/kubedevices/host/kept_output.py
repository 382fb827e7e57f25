"""Output of other programs in files: the beginning and the end are kept, the middle is dropped.

A program may print without an end. So nobody reads a whole file of output: `read_output` returns
the first 64 KiB and the last 1 MiB, and `drop_middle` gives the blocks between them back.
"""

import ctypes
import os
from pathlib import Path

KEPT_HEAD = 64 * 1024
KEPT_TAIL = 1024 * 1024

_PUNCH_HOLE_KEEP_SIZE = 0x03
_BLOCK = 4096


def read_output(path: Path) -> str:
    """Return the beginning and the end of a file, and between them how much is left out.

    A missing file is empty.
    """
    try:
        with path.open("rb") as file:
            head = file.read(KEPT_HEAD)
            size = os.fstat(file.fileno()).st_size
            if size <= KEPT_HEAD + KEPT_TAIL:
                return (head + file.read(KEPT_TAIL)).decode(errors="replace")
            file.seek(size - KEPT_TAIL)
            tail = file.read(KEPT_TAIL)
    except OSError:
        return ""
    dropped = size - KEPT_HEAD - KEPT_TAIL
    note = f"\n… {dropped:,} bytes of the output are left out here …\n"
    # The tail may begin inside a line or inside a character.
    tail = tail.partition(b"\n")[2] or tail
    return head.decode(errors="replace") + note + tail.decode(errors="replace")


def drop_middle(path: Path) -> None:
    """Free the disk or memory that the middle of a file uses; its size does not change.

    Does nothing if the file system cannot do this, or if there is no middle.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        end = (os.fstat(file).st_size - KEPT_TAIL) // _BLOCK * _BLOCK
        if end > KEPT_HEAD:
            libc = ctypes.CDLL(None, use_errno=True)
            span = (ctypes.c_int64(KEPT_HEAD), ctypes.c_int64(end - KEPT_HEAD))
            fallocate = getattr(libc, "fallocate64", None) or libc.fallocate
            fallocate(file, _PUNCH_HOLE_KEEP_SIZE, *span)
    finally:
        os.close(file)
