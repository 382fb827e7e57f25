"""gRPC over one HTTP/2 connection without any I/O: bytes in → events, calls → bytes out.

This is the part that both roles share: `client_connection` opens calls, `server_connection` answers
them. The owner of the socket (`grpc_link`) passes received bytes to `receive`, handles
`take_events()`, and writes what `take_output()` returns. The clock is an argument; no code here
waits. `receive` raises only `ProtocolError`, for any bytes from the peer; after it the connection
is over. Buffered data never exceeds the limits.
"""

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable

from kubedevices.errors import RpcError, StatusCode
from kubedevices.wire.grpc_events import NOTHING, Call, CallEnded, Event, PeerReady, PongReceived
from kubedevices.wire.grpc_framing import PREFIX
from kubedevices.wire.http2_limits import Limits
from kubedevices.wire.http2_session import Http2Session

MAX_OUTPUT = 262144
"""Bytes of DATA that one `take_output` returns, about."""


class GrpcConnection(Http2Session[Call]):
    """One end of a gRPC connection, for both roles."""

    def __init__(self, *, clock: Callable[[], float], limits: Limits | None = None) -> None:
        super().__init__(clock=clock, limits=limits or Limits())
        self._clock = clock
        self._events: list[Event] = []
        # Calls that may send now, in the order of sending. After a partly sent message the call
        # goes to the end, so that a long device list does not delay a short answer.
        self._send_queue: OrderedDict[Call, None] = OrderedDict()
        self._buffered = 0
        self._unsent = 0  # bytes of messages in `pending` and `rest` of all calls
        # Whether the peer's SETTINGS came. A client opens no call before, because it does not know
        # MAX_CONCURRENT_STREAMS.
        self._has_settings = False
        # Why no new call can be opened, None while one can.
        self._over_reason: str | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} calls={len(self.streams)}>"

    @property
    def open_calls(self) -> int:
        """Number of calls that have a stream now."""
        return len(self.streams)

    @property
    def is_over(self) -> bool:
        """Whether no new call can be opened; open calls may go on."""
        return self._over_reason is not None

    @property
    def buffered(self) -> int:
        """Received bytes in memory: incomplete frames and messages, and messages not taken yet."""
        return self._buffered + super().buffered

    @property
    def unsent(self) -> int:
        """Bytes of messages that wait for the peer to read."""
        return self._unsent

    @property
    def held(self) -> int:
        """Bytes that the peer makes us keep: `buffered` and `unsent`."""
        return self._buffered + len(self._rest) + len(self._block) + self._unsent

    # ------------------------------------------------------------ bytes and events

    def take_events(self) -> list[Event]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def take_output(self, *, with_data: bool = True) -> bytes:
        """Return bytes for the peer; the caller repeats the call until the result is empty.

        `with_data=False` is for a peer that reads slowly: the result has control frames and
        headers, and no DATA.
        """
        if with_data and self._send_queue:
            self._send_messages()
        return super().take_output()

    def end_calls(self, reason: str, code: StatusCode = StatusCode.UNAVAILABLE) -> None:
        """End every call with `code`: the connection is lost or will close."""
        if self._over_reason is None:
            self._over_reason = reason
        for call in list(self.streams.values()):
            self._end(call, RpcError(code, reason))

    def on_connection_error(self, reason: str) -> None:
        """End every call."""
        self.end_calls(reason)

    def take_message(self, call: Call) -> bytes:
        """Return the oldest message of `call`; after the last one open the stream's window."""
        message = call.messages.popleft()
        self._release(call, PREFIX + len(message))
        if not call.messages:
            self._acknowledge(call)
        return message

    # ------------------------------------------------------------ sending

    def _send_messages(self) -> None:
        # Limited: between two `take_output` the link checks whether the peer still reads.
        budget = MAX_OUTPUT
        while self._send_queue and budget > 0 and self.send_window > 0:
            call, _ = self._send_queue.popitem(last=False)
            size = self.sendable(call)
            if size <= 0:
                continue  # `on_send_window` puts the call back into the queue
            chunk, call.pending = call.pending[:size], call.pending[size:]
            size = len(chunk)
            self._unsent -= size
            if not call.pending:
                call.pending, call.rest = call.rest, NOTHING
            call.is_partly_sent = is_partly_sent = len(call.pending) > 0
            self.send_data(call, chunk, is_end=self.is_client and not is_partly_sent)
            budget -= size
            if is_partly_sent:
                self._send_queue[call] = None
            else:
                self._on_drained(call)

    def _queue(self, call: Call, message: memoryview, rest: memoryview = NOTHING) -> None:
        """Send `message` and `rest`, the parts of one gRPC message, as the peer's windows allow."""
        call.pending, call.rest = message, rest
        self._unsent += len(message) + len(rest)
        self._send_queue[call] = None

    def on_send_window(self, call: Call) -> None:
        """Continue a message that waits for the stream's send window."""
        if call.pending:
            self._send_queue[call] = None

    # ------------------------------------------------------------ receiving

    def on_data(self, call: Call, data: bytes, size: int) -> None:
        """Split payload into messages; refuse a call that exceeds a limit."""
        call.unacknowledged += size
        call.buffered += len(data)
        self._buffered += len(data)
        try:
            for message in call.reader.feed(data):
                self._on_message(call, message)
            # Many calls with half a message each would bypass the limit per message.
            if self._buffered > self.limits.max_buffered:
                raise RpcError(
                    StatusCode.RESOURCE_EXHAUSTED,
                    f"more than {self.limits.max_buffered} bytes wait on this connection",
                )
        except RpcError as error:
            self._refuse(call, error)
            return
        if not call.messages:
            self._acknowledge(call)

    def _acknowledge(self, call: Call) -> None:
        # Called only while no complete message waits. So a message larger than the window arrives,
        # and a slow reader still stops its sender. A quarter of the window at a time: fewer frames.
        if call.unacknowledged >= self.limits.stream_window // 4:
            self.acknowledge(call, call.unacknowledged)
            call.unacknowledged = 0

    def _release(self, call: Call, size: int) -> None:
        call.buffered -= size
        self._buffered -= size

    def on_settings(self) -> None:
        """Continue waiting messages, and report the first SETTINGS with `PeerReady`."""
        # INITIAL_WINDOW_SIZE may have enlarged the send windows of calls that wait.
        for call in self.streams.values():
            self.on_send_window(call)
        if not self._has_settings:
            self._has_settings = True
            self._events.append(PeerReady())

    def on_pong(self) -> None:
        """Report the answer to a PING."""
        self._events.append(PongReceived())

    # ------------------------------------------------------------ ends

    def _end(self, call: Call, error: RpcError | None) -> None:
        if not call.ended:
            self._forget(call)
            self._events.append(CallEnded(call, error))

    def _forget(self, call: Call) -> None:
        """Free the stream and the buffers; complete messages can still be taken."""
        call.ended = True
        self._forget_stream(call)
        # The caller may hold the call for a long time: free the memory of its request.
        call.request = NOTHING
        if call.buffered:
            call.reader.clear()
            self._release(call, call.buffered - sum(PREFIX + len(each) for each in call.messages))

    def _forget_stream(self, call: Call) -> None:
        if call.stream_id in self.streams:
            self.abandon(call)
        self._send_queue.pop(call, None)
        self._unsent -= len(call.pending) + len(call.rest)
        call.pending = call.rest = NOTHING
        call.is_partly_sent = False

    # ------------------------------------------------------------ implemented by the roles

    @abstractmethod
    def _on_message(self, call: Call, message: bytes) -> None: ...

    @abstractmethod
    def _on_drained(self, call: Call) -> None: ...

    @abstractmethod
    def _refuse(self, call: Call, error: RpcError) -> None: ...
