"""Files in directories where strangers write too: read and replaced without being led astray.

Every plugin pod mounts the plugin directory, and many write CDI files. Behind any name there may be
a link to a file of the host's, a named pipe that nobody writes to, a device that acts when it is
opened, or a file somebody holds a lock on; and it may be swapped between two calls. So a file is
looked at before it is opened, by the same descriptor, and written under a name nobody can guess.
Blocks for no longer than the disk takes. Sockets are for `wire.unix_socket`.
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
    """Return what the regular file `path` holds, up to `limit` bytes.

    Raises `OSError`: EINVAL, with the kind, for what is not a regular file, EFBIG for more bytes.
    """
    file = open_regular(path, follow_links=follow_links)
    try:
        with open(file, "rb", closefd=False) as stream:
            data = stream.read(limit + 1) or b""  # None: nothing to read now
    finally:
        os.close(file)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"more than {limit} bytes")
    return data


def read_note(
    path: Path, parse: Callable[[Any], T], default: T, *, limit: int, level: int = logging.WARNING
) -> T:
    """Return what `parse` makes of the JSON in `path`; `default` if there is no such file.

    Any other file is worth a line in the log of that `level`, and also gives `default`.
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
        # Not by its name again, which may lead elsewhere by now. Without waiting: who has a lease
        # on the file could delay it.
        how = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            return os.open(f"/proc/self/fd/{held}", how)
        except FileNotFoundError:  # no /proc here
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


def replace(path: Path, data: bytes, *, mode: int = 0o600, overwrite: bool = True) -> None:
    """Let `path` hold `data`, the old content or the new one at any moment; raises `OSError`.

    A file of that name is replaced, a directory is not; without `overwrite` no file is replaced.
    Returns when it would survive a power cut. `remove_leftovers` knows what a killed writer leaves.
    """
    # The lock below says that the writer lives: `remove_leftovers` of another process spares the
    # file.
    temporary = f"{path}.{os.urandom(8).hex()}{_ENDING}"
    file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with open(file, "wb", closefd=False) as stream:
            stream.write(data)
        # The umask may have taken bits away; and nobody reads the file before it is complete.
        os.fchmod(file, mode)
        os.fsync(file)
        if overwrite:
            os.rename(temporary, path)  # noqa: PTH104
        else:
            # Fails if the name is taken, which a rename would overwrite.
            os.link(temporary, path, follow_symlinks=False)
            os.unlink(temporary)  # noqa: PTH108
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise
    finally:
        os.close(file)
    # The content is on disk by now, the name only after this: rename itself is not durable.
    sync_directory(path.parent)


_ENDING = ".tmp"


def remove_leftovers(directory: Path, prefix: str) -> tuple[Path, ...]:
    """Remove unfinished files of writers that died, by the `prefix` of the name; return them."""
    found = sorted(directory.glob(f"{prefix}*{_ENDING}"))
    return tuple(path for path in found if _remove_unless_claimed(path))


def _remove_unless_claimed(path: Path) -> bool:
    if is_claimed(path) is not False:
        return False
    with contextlib.suppress(OSError):
        path.unlink()
        return True
    return False


def is_claimed(path: Path) -> bool | None:
    """Whether a process that lives has a lock on the file; None for what is not a regular file."""
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
    """Make the names in `directory` last, after a rename; raises `OSError`."""
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno != errno.EINVAL:  # what file systems say that cannot do it
            raise
    finally:
        os.close(file)
