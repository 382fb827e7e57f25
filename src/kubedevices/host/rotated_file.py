"""A log file of limited size with older files beside it: `FILE`, `FILE.1`, `FILE.2` …

Other users may write to the directory. So we hold the directory open, create each file new
(`O_EXCL`), and rename an existing file of that name without opening it. Blocking: not for an event
loop.
"""

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path

from kubedevices.host import untrusted_files


class RotatedFile:
    """Keeps at most `files` files, this one included, with mode 0600."""

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
        """Rename the existing files by one number and create a new file; raises `OSError`.

        The oldest file is removed. EBUSY: another process writes the file.
        """
        if not self.is_open and untrusted_files.is_locked(self.path):
            raise OSError(errno.EBUSY, "another process writes this file")
        self.close()
        how = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        self._directory = os.open(self.path.parent, how)
        name, where = self.path.name, self._directory
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(name, dir_fd=where, follow_symlinks=False).st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            names = [name, *(f"{name}.{number}" for number in range(1, self._files))]
            # The oldest first: each rename overwrites the next older file.
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
        """Append all of `data`; raises `OSError` and then has written nothing of it."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            # Remove the written part: otherwise the next line would follow half a line.
            os.ftruncate(self._file, self.size)
            os.lseek(self._file, self.size, os.SEEK_SET)
            raise
        self.size += len(data)

    def close(self) -> None:
        """Close the file; `begin` creates another one."""
        for descriptor in (self._file, self._directory):
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        self._file = self._directory = -1
