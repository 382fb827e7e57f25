"""A directory of ours that strangers may reach: files in it are listed, written and removed safely.

Other pods mount the directories of drivers, plugins and CDI files, often as root. They may replace
any name by a link that leads to a directory of the host. So each operation opens the directory
anew, follows no link below the trusted root, and works relative to the open directory. Only names
of our own form are removed. Whatever else has a name that we need is replaced; a directory is
renamed, because it cannot be replaced. Calls block only for the disk.
"""

import contextlib
import errno
import fcntl
import logging
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from kubedevices.host import listing, untrusted_files

_log = logging.getLogger(__name__)

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_TEMPORARY = re.compile(r"(.+)\.[0-9a-f]{16}\.tmp")
_ATTEMPTS = 8
"""Attempts at a name that another process changes again and again."""


class SharedDirectory:
    """The directory `below` in `root`. Links that lead to `root` count; links below are refused.

    All methods raise `OSError`, ENOTDIR if a link or another file is in the place of a directory.
    """

    def __init__(self, root: Path, *below: str) -> None:
        self._root, self._below = root, below
        self.path = root.joinpath(*below)

    @classmethod
    def at(cls, directory: Path) -> Self:
        """Return the place `directory`, which strangers may replace, in a trusted parent."""
        place = directory.absolute()
        return cls(place.parent, place.name)

    def __repr__(self) -> str:
        return f"<SharedDirectory {self.path}>"

    def folder(self, name: str) -> "SharedDirectory":
        """Return the directory `name` in this directory."""
        return SharedDirectory(self._root, *self._below, name)

    def create(self, *, mode: int = 0o750, for_all: bool = False) -> None:
        """Create the directory with `mode`, and what is missing above it.

        With `for_all`, every user may enter a new directory, for any umask.
        """
        with contextlib.suppress(FileNotFoundError), self.opened():
            return
        self._root.mkdir(mode=mode, parents=True, exist_ok=True)
        place = os.open(self._root, _FOLDER)
        try:
            for name in self._below:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, mode, dir_fd=place)
                place = self._enter(place, name)
            if for_all:
                os.fchmod(place, 0o755)
        finally:
            os.close(place)

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """Open the directory for the time of the context: a descriptor for `dir_fd`."""
        place = os.open(self._root, _FOLDER)
        try:
            for name in self._below:
                place = self._enter(place, name)
            yield place
        finally:
            os.close(place)

    def _enter(self, place: int, name: str) -> int:
        """Open the directory `name` in `place` and close `place`; if it fails, `place` is open."""
        try:
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=place)
        except NotADirectoryError:
            text = f"{self.path}: {name} is a link or another file, not a directory"
            raise NotADirectoryError(errno.ENOTDIR, text) from None
        os.close(place)
        return inner

    # ------------------------------------------------------------ reading

    def names(self, pattern: re.Pattern[str]) -> list[str]:
        """Return the names that match `pattern` as a whole, sorted; none without the directory."""
        with contextlib.suppress(FileNotFoundError), self.opened() as place:
            return listing.names(place, pattern.fullmatch, of=self.path)
        return []

    def read(self, name: str, *, limit: int) -> bytes:
        """Return the content of the regular file `name`, as `untrusted_files.read_bytes`."""
        with self.opened() as place:
            return untrusted_files.read_bytes(name, limit=limit, dir_fd=place)

    def has(self, name: str, content: bytes) -> bool:
        """Whether `name` is a regular file with this content."""
        try:
            return self.read(name, limit=len(content)) == content
        except OSError:
            return False

    def is_locked(self, name: str) -> bool | None:
        """Whether a running process holds a lock on the file; None if it is not a regular file."""
        try:
            with self.opened() as place:
                return untrusted_files.is_locked(name, dir_fd=place)
        except OSError:
            return None

    # ------------------------------------------------------------ writing

    def replace(self, name: str, data: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
        """Write `data` to `name` in one step: readers see the old or the new content.

        After the return, a `durable` file survives a power failure; any file survives the end of
        this process. If the process dies before, `remove_leftovers` removes the temporary file.
        """
        temporary = f"{name}.{os.urandom(8).hex()}.tmp"
        create = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with self.opened() as place:
            file = os.open(temporary, create, 0o600, dir_fd=place)
            try:
                # The lock shows that the writer is alive: then `remove_leftovers` of another
                # process does not remove the file.
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with open(file, "wb", closefd=False) as stream:
                    stream.write(data)
                # Here, not in os.open: the umask would remove bits, and no one shall read half a
                # file.
                os.fchmod(file, mode)
                if durable:
                    os.fsync(file)
                self._rename(place, temporary, name)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=place)
                raise
            finally:
                os.close(file)
            # The content is on disk already. The new name is on disk only after this.
            if durable:
                untrusted_files.sync(place)

    def _rename(self, place: int, first: str, name: str) -> None:
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(IsADirectoryError):
                return os.rename(first, name, src_dir_fd=place, dst_dir_fd=place)
            self._move_foreign(place, name)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))

    def open_lock(self, name: str) -> int:
        """Open the file `name` for a lock; create it, also in the place of a link, pipe, device."""
        create = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with self.opened() as place:
            for _ in range(_ATTEMPTS):
                with contextlib.suppress(FileExistsError):
                    return os.open(name, create, 0o600, dir_fd=place)
                try:
                    return untrusted_files.open_regular(name, dir_fd=place, flags=os.O_RDWR)
                except FileNotFoundError:
                    continue  # removed meanwhile
                except OSError as error:
                    if error.errno != errno.EINVAL:
                        raise
                self._move_foreign(place, name)
        raise FileExistsError(errno.EEXIST, "another process changes it all the time")

    # ------------------------------------------------------------ removing

    def remove(self, name: str) -> bool:
        """Remove the file `name`, or rename a directory; return whether there was one."""
        try:
            with self.opened() as place:
                try:
                    os.unlink(name, dir_fd=place)
                except IsADirectoryError:
                    self._move_foreign(place, name)
        except FileNotFoundError:
            return False
        return True

    def remove_leftovers(self, names: re.Pattern[str]) -> tuple[Path, ...]:
        """Remove unfinished files of dead writers; `names` matches the names of their files."""
        removed = []
        for name in self.names(_TEMPORARY):
            is_ours = names.fullmatch(_TEMPORARY.fullmatch(name)[1])  # type: ignore[index]
            if is_ours and self.is_locked(name) is False:
                with contextlib.suppress(OSError), self.opened() as place:
                    os.unlink(name, dir_fd=place)
                    removed.append(self.path / name)
        return tuple(removed)

    def set_aside(self, name: str, *, is_copied: bool = False, reason: str = "corrupt") -> str:
        """Rename a damaged or foreign file to `NAME.REASON-TIME`; return the new name.

        With `is_copied` the file has both names afterwards, if it is not a directory.
        """
        with self.opened() as place:
            new = free_name(name, place, reason=reason)
            if is_copied:
                with contextlib.suppress(OSError):
                    os.link(name, new, src_dir_fd=place, dst_dir_fd=place, follow_symlinks=False)
                    return new
            os.rename(name, new, src_dir_fd=place, dst_dir_fd=place)
            return new

    def _move_foreign(self, place: int, name: str) -> None:
        new = free_name(name, place)
        with contextlib.suppress(FileNotFoundError):
            os.rename(name, new, src_dir_fd=place, dst_dir_fd=place)
            _log.warning("%s is not a file of ours: it is kept as %s", self.path / name, new)


def free_name(
    name: str,
    place: int | None = None,
    endings: tuple[str, ...] = ("",),
    *,
    reason: str = "corrupt",
) -> str:
    """Return `NAME.REASON-TIME`, with a number if the name with one of `endings` exists.

    `place` is the open directory of a relative name.
    """
    first = new = f"{name}.{reason}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    number = 0
    while any(_exists(f"{new}{ending}", place) for ending in endings):
        number += 1
        new = f"{first}-{number}"
    return new


def _exists(name: str, place: int | None) -> bool:
    try:
        os.stat(name, dir_fd=place, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
