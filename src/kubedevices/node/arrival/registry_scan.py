"""Finds the sockets of plugins in the plugin registry, however many other files are there."""

import stat
from pathlib import Path
from typing import TYPE_CHECKING

from kubedevices.host import listing
from kubedevices.wire.unix_grpc import FileIdentity

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

DEPTH = 3
"""Levels that are looked at: the sockets in `REGISTRY`, `REGISTRY/a` and `REGISTRY/a/b`."""

AT_ONCE = 10_000
"""Most files of one look; the next look goes on behind them."""

SOCKET_LIMIT = 4096
"""Most sockets that are remembered."""


class RegistryScan:
    """Looks at `directory` and its subdirectories, some files at a time.

    Names that begin with a dot are skipped, because their owners have not finished them.
    """

    def __init__(self, directory: Path, at_once: int = AT_ONCE) -> None:
        self._directory, self._at_once = directory, at_once
        self._round: Iterator[os.DirEntry[str]] | None = None
        self._before: dict[Path, FileIdentity] = {}
        self._found: dict[Path, FileIdentity] = {}

    def look(self) -> dict[Path, FileIdentity]:
        """Return every socket that was found and still exists; blocks for the disk.

        With more than `at_once` files, a new socket is found after a few looks. A missing directory
        is empty. Raises `OSError` if the directory cannot be read.
        """
        if self._round is None:
            self._before, self._found = self._found, {}
            self._round = listing.below(self._directory, DEPTH, enters=_is_visible)
        try:
            is_done = self._take()
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            is_done = True
        except OSError:
            self._round, self._found = None, self._before
            raise
        if is_done:
            self._round = None
            return dict(self._found)
        earlier = [path for path in self._before if path not in self._found]
        still_there = {path: found for path in earlier if (found := _socket_at(path)) is not None}
        return {**still_there, **self._found}

    def _take(self) -> bool:
        """Look at the next files; return whether the round is complete."""
        assert self._round is not None
        for _ in range(self._at_once):
            entry = next(self._round, None)
            if entry is None:
                return True
            if len(self._found) < SOCKET_LIMIT and _may_be_socket(entry):
                path = Path(entry.path)
                if (identity := _socket_at(path)) is not None:
                    self._found[path] = identity
        return False


def find_sockets(directory: Path) -> dict[Path, FileIdentity]:
    """Return the sockets that one look at up to `listing.SCAN_LIMIT` files finds."""
    return RegistryScan(directory, listing.SCAN_LIMIT).look()


def _is_visible(name: str) -> bool:
    return not name.startswith(".")


def _may_be_socket(entry: "os.DirEntry[str]") -> bool:
    """Whether it is visible, and the directory does not say that it is another kind of file."""
    try:
        return not (
            not _is_visible(entry.name)
            or entry.is_symlink()
            or entry.is_file(follow_symlinks=False)
            or entry.is_dir(follow_symlinks=False)
        )
    except OSError:
        return False


def _socket_at(path: Path) -> FileIdentity | None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return None
    except OSError:
        return None
    return FileIdentity.of(path)
