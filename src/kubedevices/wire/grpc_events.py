"""A call, and everything a `GrpcConnection` can report about it.

Values between the sans-I/O layer (`grpc_connection`) and the one with sockets (`unix_grpc`).
"""

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from kubedevices.errors import RpcError
from kubedevices.wire.grpc_framing import MessageReader
from kubedevices.wire.http2_output import Http2Stream

if TYPE_CHECKING:
    from kubedevices.wire.header_block import Fields


NOTHING = memoryview(b"")


class Call(Http2Stream):
    """One RPC on one connection. Its owner keeps its own state in `owner`."""

    __slots__ = (
        "buffered",
        "deadline",
        "ended",
        "headers_sent",
        "is_cut",
        "is_unseen",
        "messages",
        "method",
        "owner",
        "pending",
        "reader",
        "refusals",
        "request",
        "timeout",
        "trailers",
        "unacknowledged",
    )

    def __init__(self, method: str, max_receive: int) -> None:
        super().__init__()
        self.method = method
        self.owner: Any = None
        self.timeout: float | None = None  # what the client sent, seconds
        self.deadline: float | None = None  # what we will send, clock time
        self.reader = MessageReader(max_receive)
        self.messages: deque[bytes] = deque()
        self.buffered = 0  # bytes in `reader` and `messages`
        self.unacknowledged = 0  # of those, what the peer may not replace yet
        self.request = NOTHING  # a client's whole message, should it have to go twice
        self.refusals = 0  # how often a server had no stream for it after all
        self.is_unseen = False  # it ended before its server looked at it: it may go elsewhere
        self.pending = NOTHING  # what is left of the message being sent
        self.is_cut = False  # a part of it has left
        self.trailers: Fields | None = None  # sent after it
        self.headers_sent = self.ended = False

    def __repr__(self) -> str:
        state = "ended" if self.ended else "open"
        return f"<Call {self.method} stream={self.stream_id} {state}>"


class PeerReady(NamedTuple):
    """The peer's SETTINGS arrived: it speaks HTTP/2."""


class CallOpened(NamedTuple):
    """A client opened a call; its request is still to come."""

    call: Call


class RequestReceived(NamedTuple):
    """A client's request is complete: exactly one message."""

    call: Call
    payload: bytes


class MessageReceived(NamedTuple):
    """A message of a server waits in the call: `take_message`."""

    call: Call


class CallEnded(NamedTuple):
    """Nothing more happens on the call; None means OK, and a server sees why a client left."""

    call: Call
    error: RpcError | None


class CallRefused(NamedTuple):
    """A server had no stream for a call after all and has not looked at it: `retry` it soon."""

    call: Call


class Drained(NamedTuple):
    """Everything given to `send` has left; the next message may follow."""

    call: Call


class PongReceived(NamedTuple):
    """The peer answered a ping."""


class PeerGoesAway(NamedTuple):
    """The peer takes no more calls; those it has may still finish."""

    reason: str


Event = (
    PeerReady
    | CallOpened
    | RequestReceived
    | MessageReceived
    | CallEnded
    | CallRefused
    | Drained
    | PongReceived
    | PeerGoesAway
)
