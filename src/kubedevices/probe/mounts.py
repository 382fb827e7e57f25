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
    """Leave the host's mounts and put each bind in place, in order; raises OSError.

    Who is not root becomes root of a user namespace for it.
    """
    if os.geteuid():
        linux.become_root_here()
    linux.leave_shared_mounts()
    root = Path("/").stat().st_dev
    for bind in binds:
        target = os.path.realpath(bind.inside)
        if not Path(target).exists():
            _make_room(Path(target), root, is_directory=Path(bind.host).is_dir())
        linux.mount(bind.host, target, flags=linux.MS_BIND | linux.MS_REC)


def _make_room(target: Path, root: int, *, is_directory: bool) -> None:
    """Create `target` for us alone: on the host nothing of it must appear.

    The nearest directory that exists is covered by a tmpfs showing the same entries; in there the
    missing rest can be made. `root` is the device of the host's root.
    """
    ancestor = next(parent for parent in target.parents if parent.is_dir())
    if ancestor != Path("/"):
        _cover(ancestor)
    elif ancestor.stat().st_dev == root:
        _take_another_root(target)
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


def _take_another_root(target: Path) -> None:
    """Go to a root of our own with the same entries: nothing can cover the one that we have.

    It is mounted on one of these entries. A bind shows what it hides; no mount is below that.
    """
    here, entries = Path.cwd(), sorted(Path("/").iterdir())
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    mounted = [Path(line.split()[4]) for line in lines]
    place = directory_without_mounts(entries, mounted)
    if place is None:
        why = f"there is no place for another root on this host: create /{target.parts[1]} first"
        raise OSError(2, why, str(target))
    hidden = os.open(place, os.O_PATH | os.O_DIRECTORY)
    try:
        linux.mount("tmpfs", str(place), "tmpfs", data="mode=755")
        for entry in entries:
            if entry != place:
                _show_again(entry, place / entry.name)
        (place / place.name).mkdir()
        linux.mount(f"/proc/self/fd/{hidden}/.", f"{place}/{place.name}", flags=linux.MS_BIND)
    finally:
        os.close(hidden)
    os.chroot(place)
    os.chdir(here)


def directory_without_mounts(entries: Iterable[Path], mounted: Iterable[Path]) -> Path | None:
    """Return the first of `entries` that is a directory, with no mount on it or below."""
    busy = {each for at in mounted for each in (at, *at.parents)}
    free = (each for each in entries if each not in busy)
    return next((each for each in free if each.is_dir() and not each.is_symlink()), None)


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
