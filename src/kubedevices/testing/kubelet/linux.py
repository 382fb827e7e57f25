"""System calls that the standard library lacks: mount, umount, unshare, prctl. Linux only.

Every function raises OSError; its file name is the mount target or the name of the system call.
"""

import ctypes
import os
from pathlib import Path

MS_RDONLY = 1
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18

_MNT_DETACH = 2
_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    arguments = (os.fsencode(source), os.fsencode(target), kind.encode() or None)
    _check(_libc.mount(*arguments, ctypes.c_ulong(flags), data.encode() or None), target)


def make_read_only(directory: str) -> None:
    """Let nobody in this mount namespace write below `directory`; `unmount` ends that."""
    mount(directory, directory, flags=MS_BIND | MS_REC)
    # A user namespace may not clear flags of the mount that it got.
    kept = os.statvfs(directory).f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)
    mount("none", directory, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | kept)


def unmount(directory: str) -> None:
    """Remove the topmost mount at `directory`, also while files below it are open."""
    _check(_libc.umount2(os.fsencode(directory), _MNT_DETACH), directory)


def leave_shared_mounts() -> None:
    """Enter a new mount namespace; other processes do not see its mounts."""
    _check(_libc.unshare(_CLONE_NEWNS), "unshare")
    mount("none", "/", flags=MS_REC | MS_PRIVATE)


def become_root_here() -> None:
    """Enter a user namespace in which this process is root; new files belong to our own user.

    This works only in a process with one thread; some hosts allow it only to root.
    """
    users, groups = f"0 {os.geteuid()} 1", f"0 {os.getegid()} 1"
    _check(_libc.unshare(_CLONE_NEWUSER), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", users), ("gid_map", groups)):
        Path("/proc/self", name).write_text(text)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose parent has ended."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def die_with_parent(number: int) -> None:
    """Let the kernel send this signal to us when the parent process ends for any reason."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0), "prctl")
