"""Limits on the memory that a peer can make us use, and on useless work that it can cause.

For `http2_session` and the modules that build on it. `GrpcServer` and `GrpcChannel.dial` replace
some of the defaults of `Limits`.
"""

from collections.abc import Callable
from typing import NamedTuple

from kubedevices.errors import ProtocolError
from kubedevices.wire.http2_frames import ErrorCode

MAX_FRAME_SIZE = 65536
"""Bytes of a frame's payload: our SETTINGS_MAX_FRAME_SIZE."""


class Limits(NamedTuple):
    """How much a peer may send before we process or refuse it. Our SETTINGS announce the windows.

    The defaults are the server's. `GrpcChannel.dial` uses larger windows, because a device list is
    the largest message and travels to the client.
    """

    max_receive: int = 4 * 2**20
    """Bytes of one received message."""
    max_streams: int = 1000
    """Streams that the peer may have open: our SETTINGS_MAX_CONCURRENT_STREAMS."""
    stream_window: int = 2**18
    """Receive window of a stream in bytes: our SETTINGS_INITIAL_WINDOW_SIZE."""
    connection_window: int = 2**22
    """Receive window of the connection in bytes; WINDOW_UPDATE announces it."""
    max_buffered: int = 2**24
    """Bytes of incomplete and not yet taken messages, of all calls of a connection together."""
    max_header_block: int = 2**14
    """Bytes of a header block, and of its decoded fields: our SETTINGS_MAX_HEADER_LIST_SIZE.

    A request of gRPC has a few hundred bytes. A response may have a long error text.
    """


class FloodGuard:
    """Limits the work that a peer may cause with frames that do nothing for a call.

    Each frame uses some of a budget, and its bytes use more. Time, payload, messages and calls that
    succeed refill the budget; a call that we refuse refills nothing. So a busy peer never reaches
    the limit. A peer that keeps sending PING, RST_STREAM, SETTINGS or long headers does.

    All connections of one process may share a guard, so that a new connection is no new budget.
    """

    # The unit is one control frame. An honest client sends far less than 10,000 of them at once or
    # 1,000 per second. A reset costs ten, because we set up and removed a stream for it (the "rapid
    # reset" attack, CVE-2023-44487).
    budget = 10_000.0
    per_second = 1_000.0
    reset_cost = 10.0
    message_refund = 4.0
    call_refund = 20.0
    bytes_per_unit = 8
    """Bytes of settings, or of a header block to decode, that cost as much as PING."""
    payload_per_unit = 64
    """Bytes of payload in a frame that pay for the frame."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left = self.budget
        self._at = clock()

    def spend(self, cost: float = 1.0) -> None:
        """Use `cost` of the budget; raises `ProtocolError` (ENHANCE_YOUR_CALM) when it is empty."""
        if self._left < cost:
            now = self._clock()
            self.refund((now - self._at) * self.per_second)
            self._at = now
            if self._left < cost:
                text = "the peer floods the connection with control frames or resets"
                raise ProtocolError(text, ErrorCode.ENHANCE_YOUR_CALM)
        self._left -= cost

    def spend_bytes(self, count: int) -> None:
        """Use the budget for `count` bytes that must be decoded; raises `ProtocolError`."""
        self.spend(count / self.bytes_per_unit)

    def refund(self, amount: float) -> None:
        """Refill the budget by `amount`, at most to its full size."""
        left = self._left + amount
        self._left = min(self.budget, left)
