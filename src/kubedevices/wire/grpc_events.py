"""The state of a call, and the events that a `GrpcConnection` reports.

They travel from the layer without I/O (`grpc_connection`) to the layer with sockets (`grpc_link`).
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
    """One RPC on one connection. `owner` holds the state of `grpc_server` or `grpc_channel`."""

    __slots__ = (
        "buffered",
        "deadline",
        "ended",
        "headers_sent",
        "is_partly_sent",
        "is_unprocessed",
        "messages",
        "method",
        "owner",
        "pending",
        "reader",
        "refusals",
        "request",
        "rest",
        "timeout",
        "trailers",
        "unacknowledged",
    )

    def __init__(self, method: str, max_receive: int) -> None:
        super().__init__()
        self.method = method
        self.owner: Any = None
        self.timeout: float | None = None  # on a server: the client's grpc-timeout in seconds
        self.deadline: float | None = None  # on a client: clock time, becomes the grpc-timeout
        self.reader = MessageReader(max_receive)
        self.messages: deque[bytes] = deque()  # complete, not taken yet
        self.buffered = 0  # bytes in `reader` and `messages`
        self.unacknowledged = 0  # received bytes that no WINDOW_UPDATE has returned yet
        self.request = NOTHING  # on a client: the whole message, for another try after a refusal
        self.refusals = 0  # number of REFUSED_STREAM
        self.is_unprocessed = False  # ended before the server processed it: repeating is safe
        self.pending = NOTHING  # the part of the current message that is not sent yet
        self.rest = NOTHING  # what comes after `pending`: a long message is not copied
        self.is_partly_sent = False  # the first part of the current message is sent
        self.trailers: Fields | None = None  # to send after the current message
        self.headers_sent = self.ended = False

    def __repr__(self) -> str:
        state = "ended" if self.ended else "open"
        return f"<Call {self.method} stream={self.stream_id} {state}>"


class PeerReady(NamedTuple):
    """The peer's first SETTINGS arrived: the peer speaks HTTP/2."""


class CallOpened(NamedTuple):
    """On a server: a client opened a call; the request message comes later."""

    call: Call


class RequestReceived(NamedTuple):
    """On a server: the request is complete. It is exactly one message."""

    call: Call
    payload: bytes


class MessageReceived(NamedTuple):
    """On a client: a message of the server waits in the call; `take_message` returns it."""

    call: Call


class CallEnded(NamedTuple):
    """The call ended; `error` is None for OK. On a server it says why the client ended the call."""

    call: Call
    error: RpcError | None


class CallRefused(NamedTuple):
    """On a client: the server refused the stream and did not process the call: `retry` it soon."""

    call: Call


class Drained(NamedTuple):
    """On a server: the message given to `send` is sent completely; the next one may follow."""

    call: Call


class PongReceived(NamedTuple):
    """The peer answered a PING."""


class PeerGoesAway(NamedTuple):
    """The peer sent GOAWAY: no new calls on this connection; open calls may still finish."""

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
