"""Reads and replaces files in directories where other users may write, without following traps.

Every plugin pod mounts the plugin directory, and many write CDI files. A name may lead to another
file of the host (a link), to a named pipe without a writer, to a device that acts when it is
opened, or to a locked file. It may change between two calls. So we check the type of a file through
the same descriptor before we open it, and write new files under random names. Calls block only for
the disk. For sockets see `wire.unix_socket`.
"""

import contextlib
import errno
import fcntl
import json
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
_log = logging.getLogger(__name__)

_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_bytes(path: Path, *, limit: int, follow_links: bool = False) -> bytes:
    """Return the content of the regular file `path`, at most `limit` bytes.

    Raises `OSError`: EINVAL if it is not a regular file, EFBIG if it has more bytes.
    """
    file = open_regular(path, follow_links=follow_links)
    try:
        with open(file, "rb", closefd=False) as stream:
            data = stream.read(limit + 1) or b""  # None: a non-blocking read found no data
    finally:
        os.close(file)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"more than {limit} bytes")
    return data


def read_note(
    path: Path, parse: Callable[[Any], T], default: T, *, limit: int, level: int = logging.WARNING
) -> T:
    """Return `parse` of the JSON in `path`; `default` if the file does not exist.

    If the file cannot be read or parsed, logs this with `level` and returns `default`.
    """
    try:
        return parse(json.loads(read_bytes(path, limit=limit)))
    except FileNotFoundError:
        return default
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.log(level, "%s cannot be read: %s", path, error)
        return default


def open_regular(path: Path, *, follow_links: bool = False) -> int:
    """Open the regular file `path` for reading; raises `OSError`, EINVAL for anything else."""
    follow = 0 if follow_links else os.O_NOFOLLOW
    held = os.open(path, os.O_PATH | os.O_CLOEXEC | follow)
    try:
        _check(held)
        # Open the checked inode, not the name, which may lead to another file now. O_NONBLOCK:
        # another process could delay us with a lease on the file.
        how = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            return os.open(f"/proc/self/fd/{held}", how)
        except FileNotFoundError:  # /proc is not mounted
            file = os.open(path, how | follow)
    finally:
        os.close(held)
    try:
        _check(file)
    except OSError:
        os.close(file)
        raise
    return file


def _check(file: int) -> None:
    kind = stat.S_IFMT(os.fstat(file).st_mode)
    if kind != stat.S_IFREG:
        raise OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'something')}, not a regular file")


def replace(path: Path, data: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
    """Write `data` to `path` in one step: readers see the old or the new content.

    Replaces a file of that name, but no directory. After the return, a `durable` file survives a
    power failure; any file survives the end of this process. If the process dies before,
    `remove_leftovers` removes the temporary file. Raises `OSError`.
    """
    # The lock below shows that the writer is alive: then `remove_leftovers` of another process does
    # not remove the file.
    temporary = f"{path}.{os.urandom(8).hex()}{_ENDING}"
    file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with open(file, "wb", closefd=False) as stream:
            stream.write(data)
        # Here, not in os.open: the umask would remove bits, and no one shall read half a file.
        os.fchmod(file, mode)
        if durable:
            os.fsync(file)
        os.rename(temporary, path)  # noqa: PTH104
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise
    finally:
        os.close(file)
    # The content is on disk already. The new name is on disk only after this.
    if durable:
        sync_directory(path.parent)


_ENDING = ".tmp"


def remove_leftovers(directory: Path, prefix: str) -> tuple[Path, ...]:
    """Remove temporary files of dead writers whose names begin with `prefix`; return them."""
    found = sorted(directory.glob(f"{prefix}*{_ENDING}"))
    return tuple(path for path in found if _remove_unless_locked(path))


def _remove_unless_locked(path: Path) -> bool:
    if is_locked(path) is not False:
        return False
    with contextlib.suppress(OSError):
        path.unlink()
        return True
    return False


def is_locked(path: Path) -> bool | None:
    """Whether a running process holds a lock on the file; None if it is not a regular file."""
    try:
        file = open_regular(path)
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
        os.fsync(file)
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: the file system does not support this
            raise
    finally:
        os.close(file)
