"""Reads files that other users may have created, without following traps.

Every plugin pod mounts the plugin directory, and many write CDI files. A name may lead to another
file of the host (a link), to a named pipe without a writer, to a device that acts when it is
opened, or to a locked file. It may change between two calls. So we check the type of a file through
the same descriptor before we open it. Calls block only for the disk. For writing see
`shared_directory`, for sockets `wire.unix_socket`.
"""

import errno
import fcntl
import os
import stat
from pathlib import Path

_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_bytes(
    path: Path | str,
    *,
    limit: int,
    follow_links: bool = False,
    dir_fd: int | None = None,
    below: Path | None = None,
) -> bytes:
    """Return the content of the regular file `path`, at most `limit` bytes.

    With `dir_fd` the path is relative to this open directory. Raises `OSError`: EINVAL if it is not
    a regular file, EFBIG if it has more bytes, EXDEV if links lead out of the directory `below`.
    """
    file = open_regular(path, follow_links=follow_links, dir_fd=dir_fd, below=below)
    try:
        with open(file, "rb", closefd=False) as stream:
            data = stream.read(limit + 1) or b""  # None: a non-blocking read found no data
    finally:
        os.close(file)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"more than {limit} bytes")
    return data


def read_head(path: Path, *, limit: int) -> bytes:
    """Return the first `limit` bytes of the regular file `path`, as `read_bytes` does."""
    file = open_regular(path)
    try:
        return os.pread(file, limit, 0)
    finally:
        os.close(file)


def open_regular(
    path: Path | str,
    *,
    follow_links: bool = False,
    dir_fd: int | None = None,
    flags: int = os.O_RDONLY,
    below: Path | None = None,
) -> int:
    """Open the regular file `path` with `flags`; raises `OSError` as `read_bytes`."""
    follow = 0 if follow_links else os.O_NOFOLLOW
    held = os.open(path, os.O_PATH | os.O_CLOEXEC | follow, dir_fd=dir_fd)
    try:
        if below is not None:
            check_below(held, below)
        _check(held)
        # Open the checked inode, not the name, which may lead to another file now. O_NONBLOCK:
        # another process could delay us with a lease on the file.
        how = flags | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            return os.open(f"/proc/self/fd/{held}", how)
        except FileNotFoundError:  # /proc is not mounted
            file = os.open(path, how | follow, dir_fd=dir_fd)
    finally:
        os.close(held)
    try:
        _check(file)
    except OSError:
        os.close(file)
        raise
    return file


def check_below(file: int, directory: Path) -> None:
    """Raise `OSError` (EXDEV) if the open `file` is not below `directory`, wherever links led."""
    real = os.readlink(f"/proc/self/fd/{file}")  # noqa: PTH115 - no file of this name
    root = os.path.realpath(directory)
    if os.path.commonpath((real, root)) != root:
        raise OSError(errno.EXDEV, f"a link leads out of {directory}")


def _check(file: int) -> None:
    kind = stat.S_IFMT(os.fstat(file).st_mode)
    if kind != stat.S_IFREG:
        raise OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'something')}, not a regular file")


def is_locked(path: Path | str, *, dir_fd: int | None = None) -> bool | None:
    """Whether a running process holds a lock on the file; None if it is not a regular file."""
    try:
        file = open_regular(path, dir_fd=dir_fd)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(file)
    return False


def sync_directory(directory: Path) -> None:
    """Write the names in `directory` to disk, after a rename; raises `OSError`."""
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(file)
    finally:
        os.close(file)


def sync(directory: int) -> None:
    """Write the names in an open directory to disk, after a rename; raises `OSError`."""
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: the file system does not support this
            raise
