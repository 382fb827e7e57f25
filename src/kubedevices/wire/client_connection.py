"""The calling end of a gRPC connection, without I/O; `unix_grpc.GrpcChannel` gives it a socket."""

from collections import OrderedDict
from collections.abc import Callable

import h2.events
from h2.errors import ErrorCodes

from kubedevices.errors import ProtocolError, RpcError, StatusCode
from kubedevices.wire import grpc_headers
from kubedevices.wire.grpc_connection import GrpcConnection
from kubedevices.wire.grpc_events import Call, CallRefused, Limits, MessageReceived, PeerGoesAway
from kubedevices.wire.grpc_framing import frame
from kubedevices.wire.http2_limits import FloodGuard, GoAway

MAX_QUEUED_CALLS = 10_000
MAX_REFUSALS = 10


class ClientConnection(GrpcConnection):
    """Opens calls; those above the peer's limit of streams wait their turn."""

    is_client = True

    def __init__(self, *, clock: Callable[[], float], limits: Limits | None = None) -> None:
        super().__init__(clock=clock, limits=limits)
        self._queue: OrderedDict[Call, None] = OrderedDict()
        self._refused: set[Call] = set()
        self.peer_said_goodbye = False
        self._handlers[h2.events.RequestReceived] = self._on_request
        self._handlers[h2.events.ResponseReceived] = self._on_response
        self._handlers[h2.events.TrailersReceived] = self._on_trailers

    def start_call(self, method: str, payload: bytes, *, deadline: float | None = None) -> Call:
        """Open a call, now or when the peer's limit of streams allows; `deadline` is clock time."""
        if self._over is not None:
            raise RpcError(StatusCode.UNAVAILABLE, self._over)
        if len(self._queue) >= MAX_QUEUED_CALLS:
            raise RpcError(StatusCode.RESOURCE_EXHAUSTED, f"{MAX_QUEUED_CALLS} calls are waiting")
        call = Call(method, self.limits.max_receive)
        call.deadline = deadline
        call.request = memoryview(frame(payload))
        self._queue[call] = None
        self._start_queued()
        return call

    def retry(self, call: Call) -> None:
        """Open a call again that was refused, before those that wait."""
        if call in self._refused:
            self._refused.discard(call)
            self._queue[call] = None
            self._queue.move_to_end(call, last=False)
            self._start_queued()

    def cancel(self, call: Call) -> None:
        """Give up: the peer is told, nothing more is reported."""
        if not call.ended:
            self._reset(call, ErrorCodes.CANCEL)
            self._forget(call)
        self._release(call, call.buffered)
        call.messages.clear()

    def lose(self, reason: str, code: StatusCode = StatusCode.UNAVAILABLE) -> None:
        """End every call, those that wait for a stream as well."""
        super().lose(reason, code)
        for call in [*self._queue, *self._refused]:
            self._end(call, RpcError(code, reason))

    def _start_queued(self) -> None:
        if not self._is_ready or self._over is not None:
            return
        while self._queue and len(self._calls) < self._http2.peer_max_streams:
            call, _ = self._queue.popitem(last=False)
            timeout = None
            if call.deadline is not None:
                timeout = max(call.deadline - self._clock(), 1e-6)
            headers = grpc_headers.request_headers(call.method, timeout)
            call.stream_id = self._http2.open_stream(headers)
            if call.stream_id:
                self._calls[call.stream_id] = call
                call.pending = call.request
                self._ready[call] = None
            else:
                self._end(call, RpcError(StatusCode.UNAVAILABLE, "the connection is used up"))

    def _forget_stream(self, call: Call) -> None:
        super()._forget_stream(call)
        call.stream_id = 0

    def _forget(self, call: Call) -> None:
        self._queue.pop(call, None)
        self._refused.discard(call)
        super()._forget(call)
        self._start_queued()

    # ------------------------------------------------------------ what the peer does

    def _on_settings(self, event: h2.events.RemoteSettingsChanged) -> None:
        super()._on_settings(event)
        self._start_queued()

    def _on_drained(self, call: Call) -> None:
        call.local_closed = True

    def _on_message(self, call: Call, message: bytes) -> None:
        call.messages.append(message)
        self._events.append(MessageReceived(call))

    def _refuse(self, call: Call, error: RpcError) -> None:
        self._reset(call, ErrorCodes.CANCEL)
        self._end(call, error)

    def _on_request(self, _event: h2.events.RequestReceived) -> None:
        raise ProtocolError("the server opens streams, which gRPC never does")

    def _on_response(self, event: h2.events.ResponseReceived) -> None:
        call = self._calls.get(event.stream_id or 0)
        if call is None:
            return
        headers = event.headers or []
        if event.stream_ended is not None:
            self._finish(call, grpc_headers.parse_trailers_only(headers))
        elif (problem := grpc_headers.response_problem(headers)) is not None:
            self._refuse(call, problem)

    def _on_trailers(self, event: h2.events.TrailersReceived) -> None:
        call = self._calls.get(event.stream_id or 0)
        if call is not None:
            self._finish(call, grpc_headers.parse_status(event.headers or []))

    def _on_stream_ended(self, event: h2.events.StreamEnded) -> None:
        call = self._calls.get(event.stream_id or 0)
        if call is not None:
            text = "the peer ended the stream without a status"
            self._finish(call, RpcError(StatusCode.INTERNAL, text))

    def _finish(self, call: Call, error: RpcError | None) -> None:
        self._http2.guard.earn(FloodGuard.call_earns)
        if error is None and call.reader.buffered:
            error = RpcError(StatusCode.INTERNAL, "the last message is cut off")
        if not call.local_closed:
            self._reset(call, ErrorCodes.CANCEL)
        self._end(call, error)

    def _on_reset(self, event: h2.events.StreamReset) -> None:
        call = self._calls.get(event.stream_id or 0)
        if call is None:
            return
        code = event.error_code or 0
        if code == ErrorCodes.REFUSED_STREAM and self._over is not None:
            self._end_unseen(call, self._over)
        elif code == ErrorCodes.REFUSED_STREAM and call.refusals < MAX_REFUSALS:
            # grpcio refuses while a call that just ended is not cleared away in its threads.
            call.refusals += 1
            self._forget_stream(call)
            self._refused.add(call)
            self._events.append(CallRefused(call))
        else:
            self._end(call, grpc_headers.status_of_reset(code))

    def _on_go_away(self, event: GoAway) -> None:
        reason = event.reason
        if self._over is None:
            self._over = reason
        self.peer_said_goodbye = True
        self._events.append(PeerGoesAway(reason))
        above = [each for each in self._calls.values() if each.stream_id > event.last_stream_id]
        for call in [*self._queue, *self._refused, *above]:
            self._end_unseen(call, reason)

    def _end_unseen(self, call: Call, reason: str) -> None:
        call.is_unseen = True
        self._end(call, RpcError(StatusCode.UNAVAILABLE, reason))
