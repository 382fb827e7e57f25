"""Lists the Unix sockets of all network namespaces, and the processes that have them open.

The kernel lists a socket in the table of the network namespace that created it. A plugin in a pod
and the kubelet have different network namespaces: the listening socket is in the plugin's table,
an accepted connection in the table of the client. So both tables are needed.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kubedevices.explain.on_node.facts import ProcessFacts
from kubedevices.explain.on_node.look_processes import PROC_ROOT, in_root, processes, read_text

_LISTENS = 0x10000  # __SO_ACCEPTCON


class UnixSocket(NamedTuple):
    """A line of /proc/net/unix that has a path."""

    inode: int
    listens: bool
    path: str


def unix_sockets(pid: int, proc_root: Path = PROC_ROOT) -> list[UnixSocket] | None:
    """Return the Unix sockets in the network namespace of a process; None if unreadable."""
    text = read_text(proc_root / str(pid) / "net" / "unix")
    if text is None:
        return None
    found = []
    for line in text.splitlines()[1:]:
        # Seven fields, then the path, which may hold blanks.
        fields = line.split(maxsplit=7)
        # The name of a socket may have a line break: then the next line is what its owner wrote.
        with suppress(ValueError):
            if len(fields) == 8:
                listens = bool(int(fields[3], 16) & _LISTENS)
                found.append(UnixSocket(int(fields[6]), listens, fields[7]))
    return found


@dataclass(slots=True)
class OpenSockets:
    """All Unix sockets with a path at one time, and the inodes that each process has open.

    `tables` are the network namespaces whose sockets could be read. `open_by` has no process whose
    open files may not be read.
    """

    by_inode: dict[int, UnixSocket] = field(default_factory=dict)
    tables: set[str] = field(default_factory=set)
    open_by: dict[ProcessFacts, frozenset[int]] = field(default_factory=dict)
    proc_root: Path = PROC_ROOT

    def listening(self) -> Iterator[tuple[UnixSocket, ProcessFacts | None]]:
        """Yield every listening socket with a process that has it open; None if none is known."""
        owners: dict[int, ProcessFacts] = {}
        for each, inodes in self.open_by.items():
            for inode in inodes:
                # The process with the lowest ID: mostly the parent of processes that inherited the
                # socket.
                owners.setdefault(inode, each)
        for socket in self.by_inode.values():
            if socket.listens:
                yield socket, owners.get(socket.inode)

    def accepted(self, inode: int) -> int | None:
        """Return how many accepted connections of a listening socket are open.

        Accepted sockets have the path of the listening socket. A child of the listener may have
        accepted them. Return None if the listener's open files cannot be read.
        """
        listener = self.by_inode[inode]
        mine = [inodes for inodes in self.open_by.values() if inode in inodes]
        if not mine:
            return None
        found = (self.by_inode.get(each) for each in frozenset().union(*mine))
        return sum(
            each is not None and not each.listens and each.path == listener.path for each in found
        )

    def is_still_open(self, socket: UnixSocket, owner: ProcessFacts) -> bool:
        """Whether a process still has a socket open: the process may be about to end."""
        return socket.inode in (_inodes(owner, self.proc_root) or ())

    def sees(self, process: ProcessFacts | None) -> bool:
        """Whether the sockets of the network namespace of a process were read."""
        return process is not None and _namespace(process, self.proc_root) in self.tables

    def folder(self, socket: UnixSocket, owner: ProcessFacts) -> Path:
        """Return the directory in which `owner` created a socket, as a path of this process."""
        path = Path(socket.path)
        place = self.proc_root / str(owner.pid)
        if not path.is_absolute():
            return place / "cwd" / path.parent
        return in_root(place / "root", path.parent)


def open_sockets(proc_root: Path = PROC_ROOT) -> OpenSockets:
    """Read every table and every list of open files once.

    Call this before connecting to a socket, so that no connection of this process is counted.
    """
    found = OpenSockets(proc_root=proc_root)
    for each in processes(proc_root):
        namespace = _namespace(each, proc_root)
        if namespace and namespace not in found.tables:
            sockets = unix_sockets(each.pid, proc_root)
            if sockets is not None:
                found.tables.add(namespace)
                found.by_inode.update((socket.inode, socket) for socket in sockets)
        inodes = _inodes(each, proc_root)
        if inodes is not None:
            found.open_by[each] = inodes
    found.by_inode.pop(0, None)  # connections that wait to be accepted have inode 0
    return found


def _namespace(process: ProcessFacts, proc_root: Path) -> str:
    try:
        return str((proc_root / str(process.pid) / "ns" / "net").readlink())
    except OSError:
        return ""


def _inodes(process: ProcessFacts, proc_root: Path) -> frozenset[int] | None:
    """Return the inodes of the sockets that a process has open.

    Files that the process closes meanwhile are left out. Return None if the list is not readable.
    """
    found = []
    try:
        for file in (proc_root / str(process.pid) / "fd").iterdir():
            try:
                name = str(file.readlink())
            except FileNotFoundError:
                continue
            if name.startswith("socket:["):
                found.append(int(name[8:-1]))
    except OSError:
        return None
    return frozenset(found)
