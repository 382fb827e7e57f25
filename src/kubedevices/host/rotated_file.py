"""A file that grows to a bound and then makes room for the next: `FILE`, `FILE.1`, `FILE.2` …

Its directory may be one where strangers write. So the directory is held open, every file is new
under its name (`O_EXCL`), and whatever had the name is renamed, never opened. Blocks as the disk
does: not for an event loop.
"""

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path

from kubedevices.host import untrusted_files


class RotatedFile:
    """Keeps `files` files, with this one; each is only for its owner."""

    def __init__(self, path: Path, *, files: int) -> None:
        self.path = path.absolute()
        self._files = files
        self._directory = self._file = -1
        self.size = 0

    @property
    def is_open(self) -> bool:
        """Whether there is a file to write to."""
        return self._file >= 0

    def begin(self) -> None:
        """Put the file aside that has the name, and make the next; raises `OSError`.

        EBUSY: another process writes it. The oldest file goes.
        """
        if not self.is_open and untrusted_files.is_claimed(self.path):
            raise OSError(errno.EBUSY, "another process writes this file")
        self.close()
        how = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        self._directory = os.open(self.path.parent, how)
        name, where = self.path.name, self._directory
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(name, dir_fd=where, follow_symlinks=False).st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            names = [name, *(f"{name}.{number}" for number in range(1, self._files))]
            for older, newer in zip(names[:0:-1], names[-2::-1], strict=True):
                with contextlib.suppress(FileNotFoundError):
                    os.rename(newer, older, src_dir_fd=where, dst_dir_fd=where)
            if self._files == 1:
                os.unlink(name, dir_fd=where)
        create = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(name, create, 0o600, dir_fd=where)
        self.size = 0
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, data: bytes) -> None:
        """Add all of `data`, or nothing of it and raise `OSError`."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            # Else the next line would begin in the middle of this one.
            os.ftruncate(self._file, self.size)
            os.lseek(self._file, self.size, os.SEEK_SET)
            raise
        self.size += len(data)

    def close(self) -> None:
        """Write no more; `begin` makes another file."""
        for descriptor in (self._file, self._directory):
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        self._file = self._directory = -1
