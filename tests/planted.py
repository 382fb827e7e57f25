"""Files that an attacker may create at a path that we use, and files that must not change."""

import contextlib
import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from tests.host_needs import require

SECRET = "precious"


class Outside:
    """A directory of the host that no plugin may change."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file, self.folder, self.missing = (
            directory / name for name in ("file", "folder", "missing")
        )
        self.folder.mkdir(parents=True)
        self.file.write_text(SECRET)
        self.file.chmod(0o604)
        (self.folder / "inner").write_text(SECRET)
        self.folder.chmod(0o705)
        self.remember()

    def remember(self) -> None:
        """Take the present state for the state that must stay."""
        self._before = self._state()

    def _state(self) -> dict[str, tuple[object, ...]]:
        return {
            str(path): (found.st_ino, found.st_mode, found.st_nlink, found.st_size, found.st_mtime)
            for path in (self.file, *self.directory.rglob("*"))
            for found in [path.lstat()]
        }

    def assert_untouched(self) -> None:
        """Nothing was written, created, removed or linked, and no mode was changed."""
        assert self._state() == self._before
        assert self.file.read_text() == SECRET


def _dead_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as endpoint:
        endpoint.bind(str(path))


def _device(path: Path) -> None:
    require("mknod")
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))


PLANTS: dict[str, Callable[[Path, Outside], object]] = {
    "link to a file": lambda path, outside: path.symlink_to(outside.file),
    "link to a directory": lambda path, outside: path.symlink_to(outside.folder),
    "dangling link": lambda path, outside: path.symlink_to(outside.missing),
    "named pipe": lambda path, _: os.mkfifo(path),
    "directory": lambda path, _: (path / "x").mkdir(parents=True),
    "file": lambda path, _: path.write_text("{}"),
    "dead socket": lambda path, _: _dead_socket(path),
    "device": lambda path, _: _device(path),
}


def plant(kind: str, path: Path, outside: Outside) -> None:
    """Create a file of this kind at `path`; an existing file is replaced."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    PLANTS[kind](path, outside)


def clear(path: Path) -> None:
    """Remove the file or directory at `path`, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
