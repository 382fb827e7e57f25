"""A private view of the file system, in which a plugin finds our directories at fixed paths.

For a process that is about to start plugins, or to become one: `python -m` this module does that.
Only it and its children see it, and the kernel forgets it with the last of them, so nothing can be
left mounted.
"""

import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kubedevices.probe import linux


class Bind(NamedTuple):
    """`host` is seen at `inside`."""

    host: str
    inside: str


def enter_private_view(binds: Iterable[Bind]) -> None:
    """Leave the host's mounts and put each bind in place, in order; raises OSError."""
    linux.leave_shared_mounts()
    for bind in binds:
        target = os.path.realpath(bind.inside)
        if not Path(target).exists():
            _make_room(Path(target), is_directory=Path(bind.host).is_dir())
        linux.mount(bind.host, target, flags=linux.MS_BIND | linux.MS_REC)


def _make_room(target: Path, *, is_directory: bool) -> None:
    """Create `target` for us alone: on the host nothing of it must appear.

    The nearest directory that exists is covered by a tmpfs showing the same entries; in there the
    missing rest can be made.
    """
    ancestor = next(parent for parent in target.parents if parent.is_dir())
    if ancestor == Path("/"):
        raise OSError(
            2,
            f"its first directory does not exist on this host: create /{target.parts[1]} first",
            str(target),
        )
    _cover(ancestor)
    if is_directory:
        target.mkdir(parents=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()


def _cover(directory: Path) -> None:
    mode = stat.S_IMODE(directory.stat().st_mode)
    below = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        # What the tmpfs hides stays reachable through the descriptor.
        entries = sorted(Path(f"/proc/self/fd/{below}").iterdir())
        linux.mount("tmpfs", str(directory), "tmpfs", data=f"mode={mode:o}")
        for entry in entries:
            _show_again(entry, directory / entry.name)
    finally:
        os.close(below)


def _show_again(source: Path, target: Path) -> None:
    kind = source.lstat().st_mode
    if stat.S_ISLNK(kind):
        target.symlink_to(source.readlink())
        return
    if stat.S_ISDIR(kind):
        target.mkdir()
    else:
        target.touch()
    linux.mount(str(source), str(target), flags=linux.MS_BIND | linux.MS_REC)


def launcher(binds: Iterable[Bind]) -> list[str]:
    """Return the words before a command that let it run in a private view with these binds.

    They end with exit code 125 and the reason if that cannot be, and with 0 without a command.
    """
    return [sys.executable, "-m", __name__, *(part for bind in binds for part in bind), "--"]


def _become(words: list[str]) -> None:
    cut = words.index("--")
    binds = [Bind(*words[index : index + 2]) for index in range(0, cut, 2)]
    try:
        enter_private_view(binds)
        if command := words[cut + 1 :]:
            os.execvp(command[0], command)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"{where}{error.strerror}\n")
        raise SystemExit(125) from None


if __name__ == "__main__":
    _become(sys.argv[1:])
