"""Looks at the plugin directory: whether it can be used, and who is behind each socket in it.

A listener is found by connecting and leaving at once; no call is made. So a plugin that counts its
streams is not disturbed.
"""

import errno
import os
import socket
import stat
import struct
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from kubedevices.explain.facts import (
    MISSING,
    NO_PERMISSION,
    NO_SOCKET,
    NOBODY,
    DeletedSocket,
    Directory,
    Process,
    Socket,
)
from kubedevices.explain.look_processes import (
    PROC_ROOT,
    all_listening,
    owner_of,
    process,
    unix_sockets,
)
from kubedevices.socket_paths import KUBELET_SOCKET_NAME

_CREDENTIALS = struct.Struct("3i")
_REFUSALS = {
    errno.ENOENT: MISSING,
    errno.ECONNREFUSED: NOBODY,
    errno.EACCES: NO_PERMISSION,
    errno.EPERM: NO_PERMISSION,
}


def look_at_directory(
    path: Path, *, proc_root: Path = PROC_ROOT, elsewhere: Iterable[Path] = ()
) -> Directory:
    """Return what is there; `elsewhere` are other directories where a kubelet may listen."""
    real = _real(path)
    link_to = real if real != path.absolute() else None
    others = tuple(each for each in elsewhere if _serves_another(each, path))
    try:
        status = path.stat()
        names = sorted(each.name for each in path.iterdir())
    except OSError as error:
        refusal = {
            errno.ENOENT: MISSING,
            errno.ENOTDIR: "it is no directory",
            errno.EACCES: NO_PERMISSION,
        }.get(error.errno or 0, error.strerror or str(error))
        return Directory(path, refusal, link_to=link_to, elsewhere=others)
    kubelet = look_at_socket(path / KUBELET_SOCKET_NAME, proc_root)
    sockets = [
        look_at_socket(path / name, proc_root)
        for name in names
        if name != KUBELET_SOCKET_NAME and _is_socket(path / name)
    ]
    return Directory(
        path,
        mode=stat.S_IMODE(status.st_mode),
        uid=status.st_uid,
        link_to=link_to,
        kubelet=kubelet,
        plugins=tuple(sockets),
        deleted=_deleted(path, {*names}, [kubelet, *sockets], proc_root),
        elsewhere=others,
    )


def _serves_another(directory: Path, ours: Path) -> bool:
    if _real(directory) == _real(ours):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return _connect(probe, directory / KUBELET_SOCKET_NAME) == ""


def _real(path: Path) -> Path:
    """Return where links lead; those that lead in a circle stay as they are."""
    return Path(os.path.realpath(path))  # Path.resolve would raise


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return False


def look_at_socket(path: Path, proc_root: Path = PROC_ROOT) -> Socket:
    """Return who accepts at `path` and how many others are connected."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        refusal = _connect(probe, path)
        if refusal == NOBODY and not _is_socket(path):
            refusal = NO_SOCKET
        if refusal:
            return Socket(path, refusal)
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        listener = process(_CREDENTIALS.unpack(credentials)[0], proc_root)
        connections = _connections(path, listener, proc_root) if listener else None
        return Socket(path, "", listener, connections, _bound_at(path))


def _bound_at(path: Path) -> float:
    """Return when the socket was made: nothing is ever written to it, and a rename keeps it."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0


def _connect(probe: socket.socket, path: Path) -> str:
    """Connect; return why that was not possible, nothing when somebody listens."""
    probe.setblocking(False)
    try:
        refusal = probe.connect_ex(str(path))
    except OSError as error:  # too long a path
        return str(error)
    if refusal in (0, errno.EAGAIN):  # EAGAIN: its queue is full, so it listens
        return ""
    return _REFUSALS.get(refusal, os.strerror(refusal).lower())


def _connections(path: Path, listener: Process, proc_root: Path) -> int | None:
    """Count accepted connections, without the one that we have open ourselves.

    In a container the directory may have another path, so the name decides where the path does not.
    """
    sockets = unix_sockets(listener.pid, proc_root)
    if sockets is None:
        return None
    by_path = [each for each in sockets if each.path == str(path)]
    by_name = [each for each in sockets if Path(each.path).name == path.name]
    for mine in (by_path, by_name):
        if any(each.listens for each in mine):
            return max(0, sum(not each.listens for each in mine) - 1)
    return None


def _deleted(
    directory: Path, names: set[str], sockets: Iterable[Socket], proc_root: Path
) -> tuple[DeletedSocket, ...]:
    """Return the sockets that somebody listens on in this directory although their files are gone.

    By path alone: a process in a container that sees the directory elsewhere is not found. A socket
    that was renamed keeps its old path here; its owner listens on one that has none. Without root
    owners are unknown, on either side.
    """
    listening = all_listening(proc_root)
    paths = {*listening.values()}
    renamed = Counter(
        each.listener
        for each in sockets
        if each.refusal in ("", NO_PERMISSION) and str(each.path) not in paths
    )
    found = [
        DeletedSocket(path, owner_of(inode, proc_root))
        for inode, path in ((inode, Path(text)) for inode, text in listening.items())
        if path.parent == directory and path.name not in names
    ]
    deleted = []
    # Hidden files come first, as a name to rename from mostly is one.
    for each in sorted(found, key=lambda each: each.path):
        owner = each.listener or next((who for who, left in renamed.items() if left), None)
        if renamed[owner]:
            renamed[owner] -= 1
        else:
            deleted.append(each)
    return tuple(deleted)
