"""Which process is at the other end of a Unix socket, and how many places each peer may have.

A process in another PID namespace, for example the kubelet seen from a plugin's container, has no
number that we could read. Since Linux 6.9 the inode number of its pidfd tells it from others.
"""

import contextlib
import math
import os
import socket
import struct
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

_PEER_PIDFD = 77  # SO_PEERPIDFD of Linux 6.5, for which Python has no name
_CREDENTIALS = struct.Struct("iII")
_PROC = Path("/proc")

PeerKey = tuple[int, int | str]


class Peer(NamedTuple):
    """The process that connected to us, or that listens if we connected."""

    uid: int = -1
    process: int = 0
    """Identifies the process as long as it lives; 0 if the kernel does not tell processes apart."""
    group: str = ""
    """The control group of a process in another container or service; empty if we cannot see it."""

    @property
    def key(self) -> PeerKey:
        """Limits hold per key, so that a container that forks gets no more than its share."""
        return self.uid, self.group or self.process

    @property
    def is_known(self) -> bool:
        """Whether the key is of this peer alone. Otherwise the kubelet may have the same key."""
        return bool(self.group or self.process)


NOBODY = Peer()


def peer_of(endpoint: socket.socket | None, proc: Path = _PROC) -> Peer:
    """Return the process at the other end of a connected socket; `NOBODY` if it is unknown."""
    if endpoint is None:
        return NOBODY
    try:
        found = endpoint.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return NOBODY
    pid, uid, _ = _CREDENTIALS.unpack(found)
    return Peer(uid, _inode_of_process(endpoint) or pid, _foreign_group(pid, proc) if pid else "")


def _inode_of_process(endpoint: socket.socket) -> int:
    if not _pidfds_have_inodes():
        return 0
    with contextlib.suppress(OSError):
        held = endpoint.getsockopt(socket.SOL_SOCKET, _PEER_PIDFD)
        try:
            return os.fstat(held).st_ino
        finally:
            os.close(held)
    return 0


@cache
def _pidfds_have_inodes() -> bool:
    """Whether each process has an inode of its own. Before Linux 6.9 all share one inode."""
    files: list[int] = []
    try:
        # Files without an inode of their own are on one device.
        files += [os.eventfd(0), os.pidfd_open(os.getpid())]
        devices = {os.fstat(each).st_dev for each in files}
    except OSError:
        return False
    else:
        return len(devices) > 1
    finally:
        for each in files:
            os.close(each)


def _foreign_group(pid: int, proc: Path) -> str:
    """Return the control group of `pid`; empty if it is ours, which may be that of a whole host."""
    with contextlib.suppress(OSError):
        group = (proc / str(pid) / "cgroup").read_text()
        if group != (proc / "self" / "cgroup").read_text():
            return group
    return ""


T = TypeVar("T")

YOUNG = math.inf
"""The rank of an item that does not go for another item of the same peer."""


class Places(Generic[T]):
    """A limited number of places, of which no peer can take all; the newest item gets in. Pure.

    `total` is the number of places, `share` the number that one known peer may have. If there is no
    place, an item of the peer that has most places goes: the item with the lowest `rank(item)`, of
    equal ranks the oldest.
    """

    def __init__(self, total: int, share: int, rank: Callable[[T], float]) -> None:
        self.total, self.share, self._rank = total, share, rank
        self._items: dict[T, Peer] = {}
        self._of_key: dict[PeerKey, dict[T, None]] = {}  # the oldest item of each peer first
        self.favoured: PeerKey | None = None
        """The key of a peer whose items do not go for items of others: the kubelet's."""

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter([*self._items])

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def count(self, peer: Peer) -> int:
        """Return how many places the peer has."""
        return len(self._of_key.get(peer.key, ()))

    def enter(self, item: T, peer: Peer) -> T | None:
        """Give `item` a place. Return the item that has to go, maybe `item` itself."""
        self._items[item] = peer
        own = self._of_key.setdefault(peer.key, {})
        own[item] = None
        leaves: T | None = None
        if peer.is_known and len(own) > self.share:
            leaves = self._first(own, besides=item) or item
        elif len(self._items) > self.total:
            most = self._largest()
            # If others have more, or if we cannot know, somebody has to make room for this peer.
            is_own = peer.is_known and item in most and len(own) > 1
            leaves = self._first(most, besides=item, with_young=not is_own) or item
        if leaves is not None:
            self.leave(leaves)
        return leaves

    def crowded_out(self) -> T | None:
        """Free a place and return the item that has to go; None if there is no item."""
        leaves = self._first(self._largest(), with_young=True) if self._items else None
        if leaves is not None:
            self.leave(leaves)
        return leaves

    def leave(self, item: T) -> None:
        """Free the place of `item`, if it has one."""
        peer = self._items.pop(item, None)
        if peer is not None:
            own = self._of_key[peer.key]
            del own[item]
            if not own:
                del self._of_key[peer.key]

    def _largest(self) -> dict[T, None]:
        """Return the items of the peer that has most places, or of all such peers."""
        keys = [key for key in self._of_key if key != self.favoured] or [*self._of_key]
        size = max(len(self._of_key[key]) for key in keys)
        return {item: None for key in keys if len(own := self._of_key[key]) == size for item in own}

    def _first(
        self, items: dict[T, None], *, besides: T | None = None, with_young: bool = False
    ) -> T | None:
        ranks = {item: self._rank(item) for item in items if item is not besides}
        if not with_young:
            ranks = {item: rank for item, rank in ranks.items() if rank < YOUNG}
        return min(ranks, key=ranks.__getitem__) if ranks else None
