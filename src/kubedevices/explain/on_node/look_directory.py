"""Looks at the plugin directory: whether it can be used, and which process listens on each socket.

To find a listener, this connects and closes the connection at once. No call is made, so a plugin
that counts its streams is not disturbed.
"""

import errno
import os
import socket
import stat
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from kubedevices.explain.on_node.facts import (
    MISSING,
    NO_PERMISSION,
    NO_SOCKET,
    NOBODY,
    Directory,
    LostSocket,
    ProcessFacts,
    RegistrySocket,
    Socket,
)
from kubedevices.explain.on_node.look_processes import PROC_ROOT, described, process
from kubedevices.explain.on_node.look_socket_owners import OpenSockets, UnixSocket, open_sockets
from kubedevices.host import listing
from kubedevices.values.socket_paths import DEVICE_PLUGIN_DIR, KUBELET_SOCKET_NAME

_NO_NAMES: Mapping[str, str] = MappingProxyType({})
_CREDENTIALS = struct.Struct("3i")
_REFUSALS = {
    errno.ENOENT: MISSING,
    errno.ECONNREFUSED: NOBODY,
    errno.EACCES: NO_PERMISSION,
    errno.EPERM: NO_PERMISSION,
}


def look_at_directory(
    path: Path,
    *,
    proc_root: Path = PROC_ROOT,
    elsewhere: Iterable[Path] = (),
    pods: Mapping[str, str] = _NO_NAMES,
    opened: OpenSockets | None = None,
) -> Directory:
    """Return the state of the directory at `path` and of its sockets.

    `elsewhere` are other directories where a kubelet may listen, `pods` the names of pods by their
    uid. `opened` are the open sockets of this moment if they are known.
    """
    if opened is None:  # before we connect, so that our connections are not in it
        opened = open_sockets(proc_root)
    real = _real(path)
    link_to = real if real != path.absolute() else None
    others = tuple(each for each in elsewhere if _serves_another(each, path))
    try:
        status = path.stat()
        names = listing.names(path)
    except OSError as error:
        refusal = {
            errno.ENOENT: MISSING,
            errno.ENOTDIR: "it is not a directory",
            errno.EACCES: NO_PERMISSION,
        }.get(error.errno or 0, error.strerror or str(error))
        return Directory(path, refusal, link_to=link_to, elsewhere=others)
    # A container has the directory under its usual path, also if `path` is below /host.
    usual = {DEVICE_PLUGIN_DIR} if path.name == DEVICE_PLUGIN_DIR.name else set()
    look = _SocketLookup(path, opened, pods, {path, real, *usual})
    kubelet = look.at(path / KUBELET_SOCKET_NAME)
    sees_clients = opened.sees(kubelet.listener)
    found = [path / name for name in names if name != KUBELET_SOCKET_NAME]
    sockets = [look.at(each) for each in found if _is_socket(each)]
    lost = look.lost({*names}, [kubelet, *sockets])
    if not sees_clients:  # connections that the kubelet made are in its table, which is unreadable
        sockets = [replace(each, connections=None) for each in sockets]
        lost = [replace(each, connections=None) for each in lost]
    return Directory(
        path,
        mode=stat.S_IMODE(status.st_mode),
        uid=status.st_uid,
        link_to=link_to,
        kubelet=kubelet,
        plugins=tuple(sockets),
        lost=tuple(lost),
        elsewhere=others,
    )


def look_at_registry(
    found: Iterable[RegistrySocket],
    opened: OpenSockets,
    pods: Mapping[str, str],
    on_host: Callable[[Path], Path],
) -> tuple[RegistrySocket, ...]:
    """Return the sockets that still exist, with their processes.

    `on_host` returns the path at which this process sees a file of the host.
    """

    def look(path: Path) -> Socket:
        return _SocketLookup(path.parent, opened, pods, {path.parent}).at(path)

    looked = [(each, look(each.path)) for each in found]
    return tuple(
        replace(
            each,
            socket=its,
            # A kubelet calls a driver without an endpoint at the same socket.
            service=look(on_host(Path(each.info.endpoint or each.path)))
            if each.info and each.is_driver
            else None,
        )
        for each, its in looked
        if its.refusal != MISSING
    )


def _serves_another(directory: Path, ours: Path) -> bool:
    if _real(directory) == _real(ours):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return _connect(probe, directory / KUBELET_SOCKET_NAME) == ""


def _real(path: Path) -> Path:
    """Return `path` with links resolved; links in a circle are not resolved."""
    return Path(os.path.realpath(path))  # Path.resolve would raise


def _is_socket(path: Path) -> bool:
    # lstat, not stat: a link to a socket is left out, so no `judge_…` sees it.
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return False


def _bound_at(path: Path) -> float:
    """Return when the socket was created, in seconds since 1970; 0 if that is not known."""
    # Nobody writes to the file of a socket, and a rename does not change its time.
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0


def _connect(probe: socket.socket, path: Path) -> str:
    """Connect; return why that failed, or an empty string if a process listens."""
    probe.setblocking(False)
    try:
        refusal = probe.connect_ex(str(path))
    except OSError as error:  # the path is too long
        return str(error)
    if refusal in (0, errno.EAGAIN):  # EAGAIN: the listener's queue is full
        return ""
    return _REFUSALS.get(refusal, os.strerror(refusal).lower())


@dataclass(slots=True)
class _SocketLookup:
    """Finds the processes behind the sockets of `directory`.

    `opened` has all sockets of the host. `spellings` are the paths that other processes may use for
    `directory`.
    """

    directory: Path
    opened: OpenSockets
    pods: Mapping[str, str]
    spellings: set[Path]

    def at(self, path: Path) -> Socket:
        """Return the process that accepts at `path` and how many peers are connected."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            refusal = _connect(probe, path)
            if refusal == NOBODY and not _is_socket(path):
                refusal = NO_SOCKET
            if refusal:
                return Socket(path, refusal)
            # The process that called listen; 0 if it is outside of our process namespace.
            credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        listener = process(_CREDENTIALS.unpack(credentials)[0], self.opened.proc_root)
        connections = self._connections(path, listener) if listener else None
        return Socket(path, "", self._described(listener), connections, _bound_at(path))

    def _described(self, found: ProcessFacts | None) -> ProcessFacts | None:
        return found and described(found, self.opened.proc_root, self.pods)

    def _connections(self, path: Path, listener: ProcessFacts) -> int | None:
        """Count the accepted connections of the listening socket whose file is `path`.

        Return None if it is not clear which socket that is. In a container the directory may have
        another path, so only file names are compared. The kernel still names a renamed socket by
        its old name: it is recognized if the listener has no other socket without a file.
        """
        mine = self.opened.open_by.get(listener, frozenset())
        here = [
            each
            for each, owner in self.opened.listening()
            if each.inode in mine and owner and self._is_here(each, owner)
        ]
        named = [each for each in here if Path(each.path).name == path.name] or [
            each for each in here if not (self.directory / Path(each.path).name).exists()
        ]
        return self.opened.accepted(named[0].inode) if len(named) == 1 else None

    def _is_here(self, found: UnixSocket, owner: ProcessFacts) -> bool | None:
        """Whether a socket was created in this directory; None if that cannot be seen."""
        try:
            return self.opened.folder(found, owner).samefile(self.directory)
        except FileNotFoundError:
            return False
        except OSError:
            return None

    def lost(self, names: set[str], sockets: Iterable[Socket]) -> list[LostSocket]:
        """Return the listening sockets that seem to be in the directory, but are not.

        `names` are the files of the directory, `sockets` those that are sockets. A renamed socket
        seems to be lost too, as the kernel names it by its old path; so for every file that no
        listening socket of its listener names, one socket without a file is left out. Without root
        the owners of sockets are unknown, and sockets that cannot be compared are left out.
        """
        lost, here = [], []
        for each, owner in self.opened.listening():
            is_here = self._is_here(each, owner) if owner else None
            is_spelled_so = Path(each.path).parent in self.spellings
            if is_here or (owner is None and is_spelled_so):
                here.append((each, owner))
            elif is_here is False and is_spelled_so and owner and not self._is_nodes(each, owner):
                lost.append(self._lost(Path(each.path), each, owner, is_apart=True))
        made = {(owner and owner.pid, Path(each.path).name) for each, owner in here}
        renamed = Counter(
            each.listener and each.listener.pid
            for each in sockets
            if each.refusal in ("", NO_PERMISSION)
            and not made
            & {(each.listener and each.listener.pid, each.path.name), (None, each.path.name)}
        )
        # Hidden files come first: a socket that is renamed later mostly begins as a hidden file.
        for each, owner in sorted(here, key=lambda each: each[0].path):
            path = self.directory / Path(each.path).name
            pid = owner.pid if owner else next((pid for pid, left in renamed.items() if left), None)
            if path.name in names or (owner and not self.opened.is_still_open(each, owner)):
                continue
            if renamed[pid]:
                renamed[pid] -= 1
            else:
                lost.append(self._lost(path, each, owner))
        return lost

    def _is_nodes(self, found: UnixSocket, owner: ProcessFacts) -> bool:
        """Whether the socket is in the plugin directory of another node, one inside a container."""
        return (self.opened.folder(found, owner) / KUBELET_SOCKET_NAME).exists()

    def _lost(
        self, path: Path, found: UnixSocket, owner: ProcessFacts | None, *, is_apart: bool = False
    ) -> LostSocket:
        connections = self.opened.accepted(found.inode)
        return LostSocket(path, self._described(owner), connections, is_apart)
