"""gRPC over one HTTP/2 connection without any I/O: bytes in → events, calls → bytes out.

What both roles share; `client_connection` opens calls, `server_connection` answers them. Whoever
owns a socket (`unix_grpc`) hands in what it read (`receive`), works through `take_events()`, and
writes what `take_output()` returns. The clock is an argument; nothing here waits. Whatever the peer
sends, `receive` raises nothing but `ProtocolError`, after which the connection is over, and keeps
no more than the limits allow.
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
"""How much DATA one `take_output` gathers."""


class GrpcConnection(Http2Session[Call]):
    """One end of a connection, for both roles."""

    def __init__(self, *, clock: Callable[[], float], limits: Limits | None = None) -> None:
        super().__init__(clock=clock, limits=limits or Limits())
        self._clock = clock
        self._events: list[Event] = []
        # Calls that may send, the next one first; a call that is cut off goes to the end, so that a
        # long list does not hold up a short answer.
        self._ready: OrderedDict[Call, None] = OrderedDict()
        self._buffered = 0
        # Until the peer's SETTINGS came; a client opens no call before, because it does not know
        # the limit.
        self._is_ready = False
        # Why no call can be opened any more.
        self._over: str | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} calls={len(self.streams)}>"

    @property
    def open_calls(self) -> int:
        """Calls that have a stream now."""
        return len(self.streams)

    @property
    def is_over(self) -> bool:
        """Whether no call can be opened any more; those that are open may go on."""
        return self._over is not None

    @property
    def buffered(self) -> int:
        """Received bytes that are kept: incomplete frames and messages, and messages not taken."""
        return self._buffered + super().buffered

    # ------------------------------------------------------------ bytes and events

    def take_events(self) -> list[Event]:
        """Return what happened since the last time."""
        events, self._events = self._events, []
        return events

    def take_output(self, *, with_data: bool = True) -> bytes:
        """Return bytes for the peer, empty when there are none now.

        Call again until empty. `with_data=False`, while the peer reads slowly, leaves messages
        where they are and returns only what must not wait.
        """
        if with_data and self._ready:
            self._pump()
        return super().take_output()

    def lose(self, reason: str, code: StatusCode = StatusCode.UNAVAILABLE) -> None:
        """End every call: the connection is gone, or about to be."""
        if self._over is None:
            self._over = reason
        for call in list(self.streams.values()):
            self._end(call, RpcError(code, reason))

    def on_failure(self, reason: str) -> None:
        """End every call."""
        self.lose(reason)

    def take_message(self, call: Call) -> bytes:
        """Return the oldest message of `call`; the peer may send on when it was the last."""
        message = call.messages.popleft()
        self._release(call, PREFIX + len(message))
        if not call.messages:
            self._acknowledge(call)
        return message

    # ------------------------------------------------------------ sending

    def _pump(self) -> None:
        # A bound per turn: the transport is asked between two turns whether the peer still reads.
        budget = MAX_OUTPUT
        while self._ready and budget > 0 and self.room > 0:
            call, _ = self._ready.popitem(last=False)
            size = self.sendable(call)
            if size <= 0:
                continue  # a WINDOW_UPDATE brings it back
            chunk, call.pending = call.pending[:size], call.pending[size:]
            call.is_cut = is_cut = len(call.pending) > 0
            self.send_data(call, chunk, is_end=self.is_client and not is_cut)
            budget -= size
            if is_cut:
                self._ready[call] = None
            else:
                self._on_drained(call)

    def on_room(self, call: Call) -> None:
        """Go on with a message that waits for the window of its stream."""
        if call.pending:
            self._ready[call] = None

    # ------------------------------------------------------------ receiving

    def on_data(self, call: Call, data: bytes, size: int) -> None:
        """Cut payload into messages, and refuse what is too much."""
        call.unacknowledged += size
        call.buffered += len(data)
        self._buffered += len(data)
        try:
            for message in call.reader.feed(data):
                self._on_message(call, message)
            # Many calls with half a message each would get around the limit per message.
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
        # Only when everything complete has been taken: so a message larger than the window gets
        # through, and a reader that is slow still stops its sender.
        if call.unacknowledged >= self.limits.stream_window // 4:
            self.acknowledge(call, call.unacknowledged)
            call.unacknowledged = 0

    def _release(self, call: Call, size: int) -> None:
        call.buffered -= size
        self._buffered -= size

    def on_settings(self) -> None:
        """Say once that the peer is there."""
        # INITIAL_WINDOW_SIZE may have given room to calls that waited.
        for call in self.streams.values():
            self.on_room(call)
        if not self._is_ready:
            self._is_ready = True
            self._events.append(PeerReady())

    def on_pong(self) -> None:
        """Say so."""
        self._events.append(PongReceived())

    # ------------------------------------------------------------ ends

    def _end(self, call: Call, error: RpcError | None) -> None:
        if not call.ended:
            self._forget(call)
            self._events.append(CallEnded(call, error))

    def _forget(self, call: Call) -> None:
        """Let go of everything but complete messages, which may still be taken."""
        call.ended = True
        self._forget_stream(call)
        # The reader of the call may keep it for long after this.
        call.request = NOTHING
        if call.buffered:
            call.reader.clear()
            self._release(call, call.buffered - sum(PREFIX + len(each) for each in call.messages))

    def _forget_stream(self, call: Call) -> None:
        if call.stream_id in self.streams:
            self.leave(call)
        self._ready.pop(call, None)
        call.pending = NOTHING
        call.is_cut = False

    # ------------------------------------------------------------ what a role adds

    @abstractmethod
    def _on_message(self, call: Call, message: bytes) -> None: ...

    @abstractmethod
    def _on_drained(self, call: Call) -> None: ...

    @abstractmethod
    def _refuse(self, call: Call, error: RpcError) -> None: ...
