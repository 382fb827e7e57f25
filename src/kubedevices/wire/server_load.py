"""What the peers of one server may use of it: connections, streams, calls, bytes, useless work.

The kubelet calls our sockets, and so may every other process that can open them. All limits of a
server are here. They hold per peer (`peers.Peer`), so that no peer takes the places of others, and
for all peers together, so that many peers do not use all memory. A limit is no lasting refusal: the
newest caller gets in, and the peer that has most makes room.
"""

import asyncio
import logging
import resource
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Protocol
from weakref import WeakKeyDictionary, WeakSet

from kubedevices.wire.byte_budget import ByteBudget, HoldingLink
from kubedevices.wire.grpc_events import Call
from kubedevices.wire.http2_limits import FloodGuard
from kubedevices.wire.peers import YOUNG, Peer, PeerKey, Places

logger = logging.getLogger(__name__)

MAX_CONNECTIONS, CONNECTIONS_OF_PEER = 256, 64
"""Of one server. A kubelet has one to three."""

MAX_STREAMS, STREAMS_OF_PEER = 256, 32
"""Open server streams of one server. A kubelet has one; each gets every device list."""

CALLS_OF_PEER, MAX_CALLS, CALLS_OF_ANYBODY = 1000, 4000, 16
"""Unanswered calls: of one peer; of all; and of each peer when all together have `MAX_CALLS`."""

BUDGET = 8 * 2**20
"""Bytes that all peers of a server together may make us keep, beside four of its messages."""

HANGS_AFTER = 5.0
"""Seconds. A call that is not answered by then makes room for newer calls of the same peer."""

SHARE_OF_DESCRIPTORS = 2
"""One in so many descriptors of the process may be a connection that a server accepted."""

_GUARDS = 256
_WARN_INTERVAL = 60.0  # seconds between two warnings about too many connections


class Link(HoldingLink, Protocol):
    """A connection that a server accepted."""

    loop: asyncio.AbstractEventLoop
    idle_since: float
    busy_since: float

    @property
    def is_idle(self) -> bool:
        """Whether no call is being answered."""

    @property
    def is_streaming(self) -> bool:
        """Whether each call that is being answered is a stream."""


_of_loop: "WeakKeyDictionary[asyncio.AbstractEventLoop, WeakSet[ServerLoad]]" = WeakKeyDictionary()
"""The servers of each loop: together they use descriptors of one process."""


class ServerLoad:
    """Counts what each peer uses of the server `name`, and chooses who makes room."""

    def __init__(
        self,
        name: str,
        *,
        max_connections: int = MAX_CONNECTIONS,
        budget: Callable[[], int] = lambda: BUDGET,
    ) -> None:
        self._name, self.bytes = name, ByteBudget(name, budget)
        share = max(max_connections // (MAX_CONNECTIONS // CONNECTIONS_OF_PEER), 16)
        self.connections = Places[Link](max_connections, share, _rank)
        self.streams = Places[Call](MAX_STREAMS, STREAMS_OF_PEER, lambda _: 0)
        self.calls: Counter[PeerKey] = Counter()
        self._calls = 0
        self._guards: OrderedDict[PeerKey, FloodGuard] = OrderedDict()
        self._warned_at = -_WARN_INTERVAL

    def favour(self, peer: Peer | None) -> None:
        """Never close connections of `peer`, the kubelet, for another peer."""
        key = peer.key if peer is not None and peer.is_known else None
        self.connections.favoured = self.streams.favoured = key

    # ------------------------------------------------------------ connections

    def admit(self, link: Link) -> bool:
        """Give a new connection a place; return False if it is refused."""
        leaves = self.connections.enter(link, link.peer)
        if leaves is not None:
            self._warn(link.loop.time(), is_refused=leaves is link)
            if leaves is link:
                return False
            leaves.end("a newer connection took the place of this connection")
        servers = _of_loop.setdefault(link.loop, WeakSet())
        servers.add(self)
        if sum(len(each.connections) for each in servers) > most_connections():
            make_room(link.loop)
        return link in self.connections

    def _warn(self, now: float, *, is_refused: bool) -> None:
        if now - self._warned_at < _WARN_INTERVAL:
            return
        self._warned_at = now
        action = "refusing a new one" if is_refused else "closing the oldest of the busiest peer"
        count = len(self.connections)
        logger.warning("%s: %d connections, %s", self._name, count, action)

    def forget(self, link: Link) -> None:
        """Free the place of a connection that ended."""
        self.connections.leave(link)
        self.bytes.forget(link)

    def guard_of(self, peer: Peer) -> FloodGuard | None:
        """Return the guard of all connections of a known peer; None: each has its own."""
        if not peer.is_known:
            return None
        guard = self._guards.get(peer.key)
        if guard is None:
            guard = FloodGuard(asyncio.get_running_loop().time)
            self._guards[peer.key] = guard
            if len(self._guards) > _GUARDS:
                self._guards.popitem(last=False)
        return guard

    # ------------------------------------------------------------ calls

    def begin_call(self, key: PeerKey) -> bool:
        """Count a new call; return False if it is refused."""
        count = self.calls.get(key, 0)
        if count >= CALLS_OF_PEER or (self._calls >= MAX_CALLS and count >= CALLS_OF_ANYBODY):
            return False
        self.calls[key] = count + 1
        self._calls += 1
        return True

    def end_call(self, key: PeerKey) -> None:
        """Count the end of a call for which `begin_call` returned True."""
        self._calls -= 1
        count = self.calls[key] = self.calls[key] - 1
        if not count:
            del self.calls[key]

    # ------------------------------------------------------------ bytes

    def count_bytes(self, link: Link) -> None:
        """Count what `link` holds now. Above the budget, the peer with most loses a connection."""
        if link in self.connections:  # else it ended
            self.bytes.count(link)


def _rank(link: Link) -> float:
    """Idle connections go first, then streams and hanging calls, the oldest of each first."""
    if link.is_idle:
        return link.idle_since - 1e12  # before all that are not idle
    if link.is_streaming or link.loop.time() - link.busy_since >= HANGS_AFTER:
        return link.busy_since
    return YOUNG


def most_connections() -> int:
    """Return how many connections all servers of this process together may accept."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(soft // SHARE_OF_DESCRIPTORS, 8) if soft > 0 else 2**20


def make_room(loop: asyncio.AbstractEventLoop) -> None:
    """Close one connection of the server of this loop that has most: descriptors are short."""
    servers = [*_of_loop.get(loop, ())]
    if servers:
        fullest = max(servers, key=lambda each: len(each.connections))
        link = fullest.connections.crowded_out()
        if link is not None:
            link.end("the process is short of file descriptors")
