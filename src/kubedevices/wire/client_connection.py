"""The client's half of a gRPC connection, without I/O; `GrpcChannel` connects it to a socket."""

from collections import OrderedDict
from collections.abc import Callable

from kubedevices.errors import ProtocolError, RpcError, StatusCode
from kubedevices.wire import grpc_headers
from kubedevices.wire.grpc_connection import GrpcConnection
from kubedevices.wire.grpc_events import Call, CallRefused, MessageReceived, PeerGoesAway
from kubedevices.wire.grpc_framing import frame
from kubedevices.wire.header_block import HeaderBlock
from kubedevices.wire.http2_frames import ErrorCode
from kubedevices.wire.http2_limits import FloodGuard, Limits

MAX_WAITING_CALLS = 10_000

MAX_REFUSALS = 10
"""A call fails after so many REFUSED_STREAM.

`grpc_channel` waits 2 to 50 ms between two tries, about 0.3 s in all.
"""


class ClientConnection(GrpcConnection):
    """Opens calls. Calls above the server's MAX_CONCURRENT_STREAMS wait for a stream."""

    is_client = True

    def __init__(self, *, clock: Callable[[], float], limits: Limits | None = None) -> None:
        super().__init__(clock=clock, limits=limits)
        self._waiting: OrderedDict[Call, None] = OrderedDict()
        # Calls whose stream the server refused, until the owner calls `retry`.
        self._refused: set[Call] = set()
        self.peer_sent_goaway = False

    def start_call(self, method: str, payload: bytes, *, deadline: float | None = None) -> Call:
        """Open a call, at once or when the server allows another stream.

        `deadline` is a time of `clock`. Raises `RpcError` when the connection takes no more calls
        (UNAVAILABLE) or too many calls are waiting (RESOURCE_EXHAUSTED).
        """
        if self._over_reason is not None:
            raise RpcError(StatusCode.UNAVAILABLE, self._over_reason)
        if len(self._waiting) >= MAX_WAITING_CALLS:
            raise RpcError(StatusCode.RESOURCE_EXHAUSTED, f"{MAX_WAITING_CALLS} calls are waiting")
        call = Call(method, self.limits.max_receive)
        call.deadline = deadline
        call.request = memoryview(frame(payload))
        self._waiting[call] = None
        self._start_waiting()
        return call

    def retry(self, call: Call) -> None:
        """Open a refused call again, before the calls that wait for a stream."""
        if call in self._refused:
            self._refused.discard(call)
            self._waiting[call] = None
            self._waiting.move_to_end(call, last=False)
            self._start_waiting()

    def cancel(self, call: Call) -> None:
        """End the call with RST_STREAM; no further event of the call is reported."""
        if not call.ended:
            self.reset(call, ErrorCode.CANCEL)
            self._forget(call)
        self._release(call, call.buffered)
        call.messages.clear()

    def end_calls(self, reason: str, code: StatusCode = StatusCode.UNAVAILABLE) -> None:
        """End every call, also the calls that wait for a stream."""
        super().end_calls(reason, code)
        for call in [*self._waiting, *self._refused]:
            self._end(call, RpcError(code, reason))

    def _start_waiting(self) -> None:
        if not self._has_settings or self._over_reason is not None:
            return
        while self._waiting and len(self.streams) < self.peer_max_streams:
            call, _ = self._waiting.popitem(last=False)
            timeout = None
            if call.deadline is not None:
                # grpc-timeout is the time that is left now, after the wait for a stream. 0 would
                # not be a valid timeout.
                timeout = max(call.deadline - self._clock(), 1e-6)
            if self.open_stream(call, grpc_headers.request_headers(call.method, timeout)):
                self._queue(call, call.request)
            else:
                text = "the connection has no stream numbers left"
                self._end(call, RpcError(StatusCode.UNAVAILABLE, text))

    def _forget_stream(self, call: Call) -> None:
        super()._forget_stream(call)
        # `retry` may give the call another stream.
        call.stream_id = 0

    def _forget(self, call: Call) -> None:
        self._waiting.pop(call, None)
        self._refused.discard(call)
        super()._forget(call)
        self._start_waiting()

    # ------------------------------------------------------------ what the peer does

    def on_settings(self) -> None:
        """Open waiting calls: the server may have raised MAX_CONCURRENT_STREAMS."""
        super().on_settings()
        self._start_waiting()

    def _on_drained(self, call: Call) -> None:
        """Send nothing more: the last DATA frame of the request carried END_STREAM."""

    def _on_message(self, call: Call, message: bytes) -> None:
        self.guard.refund(FloodGuard.message_refund)
        call.messages.append(message)
        self._events.append(MessageReceived(call))

    def _refuse(self, call: Call, error: RpcError) -> None:
        self.reset(call, ErrorCode.CANCEL)
        self._end(call, error)

    def new_stream(self) -> Call:
        """Raise `ProtocolError`: a gRPC server never opens a stream."""
        raise ProtocolError("the server opens a stream, which gRPC never does")

    def on_headers(self, call: Call, block: HeaderBlock, *, is_end: bool) -> None:
        """End a call whose response is a status alone (Trailers-Only) or is not gRPC."""
        if is_end:
            self._finish(call, grpc_headers.parse_trailers_only(block.named))
        elif (problem := grpc_headers.response_problem(block.named)) is not None:
            self._refuse(call, problem)

    def on_end(self, call: Call, trailers: HeaderBlock | None) -> None:
        """End a call with the status in the trailers."""
        if call.ended:
            return
        if trailers is None:
            text = "the peer ended the stream without a status"
            self._finish(call, RpcError(StatusCode.INTERNAL, text))
        else:
            self._finish(call, grpc_headers.parse_status(trailers.named))

    def _finish(self, call: Call, error: RpcError | None) -> None:
        self.guard.refund(FloodGuard.call_refund)
        if error is None and call.reader.buffered:
            error = RpcError(StatusCode.INTERNAL, "the last message is cut off")
        if not call.is_local_closed:  # the server answered before it had the whole request
            self.reset(call, ErrorCode.CANCEL)
        self._end(call, error)

    def on_reset(self, call: Call, code: int, error: str) -> None:
        """End a call; after REFUSED_STREAM report `CallRefused`, so that the owner tries again."""
        if error:
            self._end(call, RpcError(StatusCode.UNKNOWN, error))
        elif code == ErrorCode.REFUSED_STREAM and self._over_reason is not None:
            self._end_unprocessed(call, self._over_reason)
        elif code == ErrorCode.REFUSED_STREAM and call.refusals < MAX_REFUSALS:
            # grpcio's server refuses a stream while its threads still clean up an ended call.
            call.refusals += 1
            self._forget_stream(call)
            self._refused.add(call)
            self._events.append(CallRefused(call))
        else:
            self._end(call, grpc_headers.status_of_reset(code))

    def on_go_away(self, last_stream_id: int, reason: str) -> None:
        """End the calls that the server will not process; the other calls go on."""
        if self._over_reason is None:
            self._over_reason = reason
        self.peer_sent_goaway = True
        self._events.append(PeerGoesAway(reason))
        # The server did not process streams above `last_stream_id`: another connection may repeat
        # these calls without a risk (RFC 9113, section 6.8).
        above = [each for each in self.streams.values() if each.stream_id > last_stream_id]
        for call in [*self._waiting, *self._refused, *above]:
            self._end_unprocessed(call, reason)

    def _end_unprocessed(self, call: Call, reason: str) -> None:
        call.is_unprocessed = True
        self._end(call, RpcError(StatusCode.UNAVAILABLE, reason))
