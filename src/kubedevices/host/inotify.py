"""inotify, as little of it as watching names in directories takes. For `file_watch`.

Events are read as they come from the kernel: others may write to a directory all the time, and a
program that waits for one name has to read the events of all names.
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
"""In an event: the watch is over, because what it watched is deleted, or we removed it."""

OF_ITSELF = _DELETE_SELF | _MOVE_SELF | _ONLYDIR
OF_NAMES = OF_ITSELF | _CREATE | _DELETE | _MOVED_FROM | _MOVED_TO
OF_CONTENTS = OF_NAMES | _CLOSE_WRITE
"""What to tell of a directory: that it goes, also the names in it, also what is written there."""

OF_A_FILE = _ATTRIB | _MOVE_SELF | _DELETE_SELF | _DONT_FOLLOW
"""What to tell of a file that must not lose its name: the number of its links is an attribute."""

_HEAD = struct.Struct("iIII")
# Hundreds of events. A read that has no room for one event fails with EINVAL.
_READ_SIZE = 65536


class FileEvent(NamedTuple):
    """What happened: `watch` is -1 when events were lost, `name` empty for the directory itself."""

    watch: int
    mask: int
    name: bytes


class Inotify:
    """One queue of events; raises `OSError` where the system has none."""

    def __init__(self) -> None:
        try:
            # Not for platforms, and not in the memory, of those who look instead of watching.
            import ctypes  # noqa: PLC0415

            # Python has no inotify of its own; the C library that is loaded already has.
            libc = ctypes.CDLL(None, use_errno=True)
            self._errno = ctypes.get_errno
            self._add, self._remove = libc.inotify_add_watch, libc.inotify_rm_watch
            self.fd = self._checked(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        except (ImportError, AttributeError) as error:
            raise OSError(f"no inotify here: {error}") from error

    def add(self, path: Path, mask: int) -> int:
        """Watch `path`; return the number of the watch, the old number if it is watched already."""
        return self._checked(self._add(self.fd, os.fsencode(path), mask))

    def remove(self, watch: int) -> None:
        """Watch no more; what was deleted is not watched any more already."""
        self._checked(self._remove(self.fd, watch))

    def read(self) -> Iterator[FileEvent]:
        """Give what has happened up to now, without waiting."""
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
        """Give the queue up, and every watch."""
        os.close(self.fd)

    def _checked(self, result: int) -> int:
        if result < 0:
            number = self._errno()
            raise OSError(number, os.strerror(number))
        return result
