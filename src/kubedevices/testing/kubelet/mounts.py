"""A private view of the file system, in which a plugin finds our directories at fixed paths.

A process enters the view before it starts plugins. Only this process and its children see the view.
When the last of them ends, the kernel removes the view, so no mount stays. `python -m` this module
enters a view and then runs a command; see `launcher`.
"""

import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kubedevices.host.programs import start_failure
from kubedevices.host.terminal import print_to_stderr
from kubedevices.testing.kubelet import linux

HIDDEN = ""
"""As the host path of a bind: the plugin does not see the path inside, also if it exists."""


class Bind(NamedTuple):
    """The file or directory `host` is visible at the path `inside`; see `HIDDEN`."""

    host: str
    inside: str


def enter_private_view(binds: Iterable[Bind]) -> None:
    """Enter a new mount namespace and mount each bind, in this order; raises OSError.

    A process that is not root enters a user namespace as root first.
    """
    if os.geteuid():
        linux.become_root_here()
    linux.leave_shared_mounts()
    root = Path("/").stat().st_dev
    for bind in binds:
        target = os.path.realpath(bind.inside)
        if bind.host == HIDDEN:
            if Path(target).exists():
                _cover(Path(target).parent, without=Path(target).name)
            continue
        if not Path(target).exists():
            _create_mount_point(Path(target), root, is_directory=Path(bind.host).is_dir())
        linux.mount(bind.host, target, flags=linux.MS_BIND | linux.MS_REC)


def _create_mount_point(target: Path, root: int, *, is_directory: bool) -> None:
    """Create `target` in the private view only; the host must not see it.

    A tmpfs with the same entries covers the nearest directory that exists; the missing directories
    are created in this tmpfs. `root` is the device number of the host's root file system.
    """
    ancestor = next(parent for parent in target.parents if parent.is_dir())
    if ancestor != Path("/"):
        _cover(ancestor)
    elif ancestor.stat().st_dev == root:
        _change_root(target)
    if is_directory:
        target.mkdir(parents=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()


def _cover(directory: Path, without: str = "") -> None:
    """Cover a directory by a tmpfs with the same entries, except the entry `without`."""
    mode = stat.S_IMODE(directory.stat().st_mode)
    below = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        # The tmpfs hides the directory, but the descriptor still reaches it.
        entries = sorted(Path(f"/proc/self/fd/{below}").iterdir())
        linux.mount("tmpfs", str(directory), "tmpfs", data=f"mode={mode:o}")
        for entry in entries:
            if entry.name != without:
                _bind_entry(entry, directory / entry.name)
    finally:
        os.close(below)


def _change_root(target: Path) -> None:
    """Change to a new root (a tmpfs) with the same entries: no mount can cover the present root.

    The tmpfs is mounted on one of the root's directories, one without mounts. A bind mount shows
    the hidden content of this directory in the new root.
    """
    here, entries = Path.cwd(), sorted(Path("/").iterdir())
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    mounted = [Path(line.split()[4]) for line in lines]
    place = directory_without_mounts(entries, mounted)
    if place is None:
        why = f"this host has no directory for a new root: create /{target.parts[1]} first"
        raise OSError(2, why, str(target))
    hidden = os.open(place, os.O_PATH | os.O_DIRECTORY)
    try:
        linux.mount("tmpfs", str(place), "tmpfs", data="mode=755")
        for entry in entries:
            if entry != place:
                _bind_entry(entry, place / entry.name)
        (place / place.name).mkdir()
        linux.mount(f"/proc/self/fd/{hidden}/.", f"{place}/{place.name}", flags=linux.MS_BIND)
    finally:
        os.close(hidden)
    os.chroot(place)
    os.chdir(here)


def directory_without_mounts(entries: Iterable[Path], mounted: Iterable[Path]) -> Path | None:
    """Return the first of `entries` that is a directory without a mount on it or below it."""
    busy = {each for at in mounted for each in (at, *at.parents)}
    free = (each for each in entries if each not in busy)
    return next((each for each in free if each.is_dir() and not each.is_symlink()), None)


def _bind_entry(source: Path, target: Path) -> None:
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
    """Return the words to write before a command that must run in a private view with these binds.

    If the view is not possible, the exit code is 125 and stderr has the reason. Without a command,
    the exit code is 0.
    """
    return [sys.executable, "-m", __name__, *(part for bind in binds for part in bind), "--"]


def _become(words: list[str]) -> None:
    cut = words.index("--")
    binds = [Bind(*words[index : index + 2]) for index in range(0, cut, 2)]
    try:
        enter_private_view(binds)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print_to_stderr(f"{where}{error.strerror}")
        raise SystemExit(125) from None
    if command := words[cut + 1 :]:
        try:
            os.execvp(command[0], command)
        except OSError as error:
            reason, found = start_failure(command[0], error)
            print_to_stderr(f"{command[0]}: {reason}")
            raise SystemExit(126 if found else 127) from None


if __name__ == "__main__":
    _become(sys.argv[1:])
