"""The part of inotify that watching names in directories needs. For `file_watch`.

Events are read without much work for each: other programs may write to a directory all the time,
and a program that waits for one name must read the events of all names.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO = 0x4, 0x8, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x100, 0x200, 0x400, 0x800
_ONLYDIR, _DONT_FOLLOW = 0x1000000, 0x2000000

IGNORED = 0x8000
"""In an event: the watch ended, because its file was deleted, or because we removed the watch."""

OF_ITSELF = _DELETE_SELF | _MOVE_SELF | _ONLYDIR
OF_NAMES = OF_ITSELF | _CREATE | _DELETE | _MOVED_FROM | _MOVED_TO
OF_CONTENTS = OF_NAMES | _CLOSE_WRITE
"""Masks for a directory: its own removal; also changes of names in it; also writes to its files."""

OF_A_FILE = _ATTRIB | _MOVE_SELF | _DELETE_SELF | _DONT_FOLLOW
"""Mask for a file that may lose its name; IN_ATTRIB reports a changed number of links."""

_HEAD = struct.Struct("iIII")
# Bytes, for hundreds of events. If the next event does not fit, read fails with EINVAL.
_READ_SIZE = 65536


class FileEvent(NamedTuple):
    """One event: `watch` is -1 when events were lost, `name` is empty for the directory itself."""

    watch: int
    mask: int
    name: bytes


class Inotify:
    """One inotify instance; raises `OSError` if the system has no inotify."""

    def __init__(self) -> None:
        try:
            # Imported here: it costs memory, and not every platform has it.
            import ctypes  # noqa: PLC0415

            # Python has no inotify module, but the loaded C library has the functions.
            libc = ctypes.CDLL(None, use_errno=True)
            self._errno = ctypes.get_errno
            self._add, self._remove = libc.inotify_add_watch, libc.inotify_rm_watch
            self.fd = self._checked(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        except (ImportError, AttributeError) as error:
            raise OSError(f"no inotify here: {error}") from error

    def add(self, path: Path, mask: int) -> int:
        """Watch `path`; return the watch's number, the same number for the same inode."""
        return self._checked(self._add(self.fd, os.fsencode(path), mask))

    def remove(self, watch: int) -> None:
        """Remove a watch; raises `OSError` if its file was deleted, which removed the watch."""
        self._checked(self._remove(self.fd, watch))

    def read(self) -> Iterator[FileEvent]:
        """Yield the events up to now, without waiting."""
        try:
            data = os.read(self.fd, _READ_SIZE)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            watch, mask, _, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size + length
            yield FileEvent(watch, mask, data[at - length : at].rstrip(b"\0"))

    def close(self) -> None:
        """Close the instance and all its watches."""
        os.close(self.fd)

    def _checked(self, result: int) -> int:
        if result < 0:
            number = self._errno()
            raise OSError(number, os.strerror(number))
        return result
