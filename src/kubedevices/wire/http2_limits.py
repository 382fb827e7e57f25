"""Limits on the memory that a peer can make us use, and on work without any use for the peer.

For `http2_session` and what builds on it.
"""

from collections.abc import Callable
from typing import NamedTuple

from kubedevices.errors import ProtocolError
from kubedevices.wire.http2_frames import ErrorCode

MAX_FRAME_SIZE = 65536
MAX_HEADER_BLOCK = 65536
"""Bytes of a block, and of its fields once they are decoded."""


class Limits(NamedTuple):
    """What a peer may make us keep."""

    max_receive: int = 4 * 2**20
    max_streams: int = 1000
    stream_window: int = 2**18
    connection_window: int = 2**22
    max_buffered: int = 2**24
    """Of all calls together: incomplete messages and those nobody has taken yet."""


class FloodGuard:
    """Counts frames that cost us work and bring the peer nothing.

    Every such frame takes from a purse. Time and real work (payload moved, calls finished) fill it
    again, so a busy peer is never caught, and one that pings, resets or re-configures without end
    is.
    """

    # All in units of one control frame. No honest client is meant to get near 10,000 of them at
    # once or 1,000 a second. A reset costs ten, because a stream was set up and torn down for it
    # (the "rapid reset" attack, CVE-2023-44487).
    purse = 10_000.0
    per_second = 1_000.0
    reset_costs = 10.0
    payload_earns = 4.0
    call_earns = 20.0

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left = self.purse
        self._at = clock()

    def spend(self, cost: float = 1.0) -> None:
        """Take `cost`; raises `ProtocolError` when the peer has nothing left."""
        if self._left < cost:
            now = self._clock()
            self.refund((now - self._at) * self.per_second)
            self._at = now
            if self._left < cost:
                text = "the peer floods the connection with control frames or resets"
                raise ProtocolError(text, ErrorCode.ENHANCE_YOUR_CALM)
        self._left -= cost

    def refund(self, amount: float) -> None:
        """Give back for work done, up to a full purse."""
        left = self._left + amount
        self._left = min(self.purse, left)
