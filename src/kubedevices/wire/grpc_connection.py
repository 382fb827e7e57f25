"""gRPC over one HTTP/2 connection without any I/O: bytes in → events, calls → bytes out.

What both roles share; `client_connection` opens calls, `server_connection` answers them. Whoever
owns a socket (`unix_grpc`) hands in what it read (`receive`), works through `take_events()`, and
writes what `take_output()` returns. The clock is an argument; nothing here waits. Whatever the peer
sends, `receive` raises nothing but `ProtocolError`, after which the connection is over, and keeps
no more than the limits allow.
"""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import h2.events
from h2.errors import ErrorCodes

from kubedevices.errors import ProtocolError, RpcError, StatusCode
from kubedevices.wire.grpc_events import Call, CallEnded, Event, Limits, PeerReady, PongReceived
from kubedevices.wire.grpc_framing import PREFIX
from kubedevices.wire.http2_limits import GoAway
from kubedevices.wire.http2_session import Http2Session, Windows

MAX_OUTPUT = 262144
"""How much DATA one `take_output` gathers."""


class GrpcConnection(ABC):
    """One end of one connection."""

    is_client: bool

    def __init__(self, *, clock: Callable[[], float], limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._clock = clock
        windows = Windows(
            self.limits.stream_window, self.limits.connection_window, self.limits.max_streams
        )
        self._http2 = Http2Session(windows, is_client=self.is_client, clock=clock)
        self._events: list[Event] = []
        self._calls: dict[int, Call] = {}
        self._ready: OrderedDict[Call, None] = OrderedDict()
        self._buffered = 0
        self._is_ready = False
        self._over: str | None = None
        self._handlers: dict[type, Callable[[Any], None]] = {
            h2.events.DataReceived: self._on_data,
            h2.events.StreamEnded: self._on_stream_ended,
            h2.events.StreamReset: self._on_reset,
            h2.events.WindowUpdated: self._on_window,
            h2.events.RemoteSettingsChanged: self._on_settings,
            h2.events.PingAckReceived: self._on_pong,
            GoAway: self._on_go_away,
        }

    def __repr__(self) -> str:
        return f"<{type(self).__name__} calls={len(self._calls)}>"

    @property
    def open_calls(self) -> int:
        """Calls that have a stream now."""
        return len(self._calls)

    @property
    def is_over(self) -> bool:
        """Whether no call can be opened any more; those that are open may go on."""
        return self._over is not None

    @property
    def buffered(self) -> int:
        """Received bytes that are kept: incomplete frames and messages, and messages not taken."""
        return self._buffered + self._http2.buffered

    # ------------------------------------------------------------ bytes and events

    def receive(self, data: bytes) -> None:
        """Work through bytes of the peer; raises `ProtocolError` when it broke the rules."""
        try:
            for event in self._http2.receive(data):
                handler = self._handlers.get(type(event))
                if handler is not None:
                    handler(event)
        except ProtocolError as error:
            self._http2.fail(error)
            self.lose(f"the peer broke the protocol: {error}")
            raise

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
        return self._http2.take_output()

    def lose(self, reason: str, code: StatusCode = StatusCode.UNAVAILABLE) -> None:
        """End every call: the connection is gone, or about to be."""
        if self._over is None:
            self._over = reason
        for call in list(self._calls.values()):
            self._end(call, RpcError(code, reason))

    def ping(self) -> None:
        """Ask the peer for a sign of life: `PongReceived`."""
        self._http2.ping()

    def go_away(self) -> None:
        """Tell the peer that the connection ends."""
        self._http2.go_away()

    def take_message(self, call: Call) -> bytes:
        """Return the oldest message of `call`; the peer may send on when it was the last."""
        message = call.messages.popleft()
        self._release(call, PREFIX + len(message))
        if not call.messages:
            self._acknowledge(call)
        return message

    # ------------------------------------------------------------ sending

    def _pump(self) -> None:
        budget = MAX_OUTPUT
        while self._ready and budget > 0:
            call, _ = self._ready.popitem(last=False)
            size = min(self._http2.room(call.stream_id), len(call.pending))
            if size <= 0:
                continue  # a WINDOW_UPDATE brings it back
            chunk, call.pending = call.pending[:size], call.pending[size:]
            call.is_cut = bool(call.pending)
            is_last = self.is_client and not call.pending
            self._http2.send_data(call.stream_id, chunk, end=is_last)
            budget -= size
            if call.pending:
                self._ready[call] = None
            else:
                self._on_drained(call)

    def _on_window(self, event: h2.events.WindowUpdated) -> None:
        if not event.stream_id:
            self._wake_senders()
        elif (call := self._calls.get(event.stream_id)) is not None and call.pending:
            self._ready[call] = None

    def _wake_senders(self) -> None:
        for call in self._calls.values():
            if call.pending:
                self._ready[call] = None

    # ------------------------------------------------------------ receiving

    def _on_data(self, event: h2.events.DataReceived) -> None:
        size = event.flow_controlled_length or 0
        self._http2.acknowledge_connection(size)
        call = self._calls.get(event.stream_id or 0)
        if call is None:
            return
        data = event.data or b""
        call.unacknowledged += size
        call.buffered += len(data)
        self._buffered += len(data)
        try:
            for message in call.reader.feed(data):
                self._on_message(call, message)
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
        is_due = call.unacknowledged >= self.limits.stream_window // 4
        if is_due and not call.remote_closed and not call.ended:
            self._http2.acknowledge_stream(call.stream_id, call.unacknowledged)
            call.unacknowledged = 0

    def _release(self, call: Call, size: int) -> None:
        call.buffered -= size
        self._buffered -= size

    def _on_settings(self, _event: h2.events.RemoteSettingsChanged) -> None:
        self._wake_senders()
        if not self._is_ready:
            self._is_ready = True
            self._events.append(PeerReady())

    def _on_pong(self, _event: h2.events.PingAckReceived) -> None:
        self._events.append(PongReceived())

    # ------------------------------------------------------------ ends

    def _reset(self, call: Call, code: ErrorCodes) -> None:
        if call.stream_id:
            self._http2.reset(call.stream_id, code)

    def _end(self, call: Call, error: RpcError | None) -> None:
        if not call.ended:
            self._forget(call)
            self._events.append(CallEnded(call, error))

    def _forget(self, call: Call) -> None:
        """Let go of everything but complete messages, which may still be taken."""
        call.ended = True
        self._forget_stream(call)
        call.request = memoryview(b"")
        call.reader.clear()
        self._release(call, call.buffered - sum(PREFIX + len(each) for each in call.messages))

    def _forget_stream(self, call: Call) -> None:
        self._calls.pop(call.stream_id, None)
        self._ready.pop(call, None)
        call.pending = memoryview(b"")
        call.is_cut = False

    # ------------------------------------------------------------ what a role adds

    @abstractmethod
    def _on_message(self, call: Call, message: bytes) -> None: ...

    @abstractmethod
    def _on_drained(self, call: Call) -> None: ...

    @abstractmethod
    def _refuse(self, call: Call, error: RpcError) -> None: ...

    @abstractmethod
    def _on_stream_ended(self, event: h2.events.StreamEnded) -> None: ...

    @abstractmethod
    def _on_reset(self, event: h2.events.StreamReset) -> None: ...

    @abstractmethod
    def _on_go_away(self, event: GoAway) -> None: ...
