"""One budget of bytes for all connections of a server, or of the node to its plugins.

A limit per message or per connection is no limit: a peer opens more connections.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from kubedevices.wire.peers import Peer, PeerKey

logger = logging.getLogger(__name__)


class HoldingLink(Protocol):
    """A connection whose peer makes us keep bytes."""

    peer: Peer

    @property
    def held(self) -> int:
        """Bytes of messages that are incomplete, not taken or not sent yet."""

    def end(self, reason: str) -> None:
        """End the calls with RESOURCE_EXHAUSTED, and close."""


class ByteBudget:
    """Counts what each connection holds. Above `limit()` bytes, one connection ends.

    It is the connection that holds most, of the peer that holds most.
    """

    def __init__(
        self, name: str, limit: Callable[[], int], what: str = "unfinished messages"
    ) -> None:
        self._name, self._limit, self._what = name, limit, what
        self.held = 0
        self._links: dict[HoldingLink, int] = {}

    def count(self, link: HoldingLink) -> None:
        """Count again what `link` holds."""
        held = link.held
        self.held += held - self._links.get(link, 0)
        if held:
            self._links[link] = held
        else:
            self._links.pop(link, None)
        while self.held > self._limit():
            self._end_largest()

    def forget(self, link: HoldingLink) -> None:
        """Count nothing of a connection that ended."""
        self.held -= self._links.pop(link, 0)

    def _end_largest(self) -> None:
        of_peer: Counter[PeerKey] = Counter()
        for each, held in self._links.items():
            of_peer[each.peer.key] += held
        link = max(self._links, key=lambda each: (of_peer[each.peer.key], self._links[each]))
        logger.warning(
            "%s: %d bytes of %s, closing a connection with %d",
            self._name, self.held, self._what, self._links[link],
        )  # fmt: skip
        self.forget(link)
        link.end("too many bytes wait on all connections together")
