"""The calling end of a gRPC connection, without I/O; `unix_grpc.GrpcChannel` gives it a socket."""

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

MAX_QUEUED_CALLS = 10_000
# With pauses from 2 to 50 ms (`grpc_channel`): about 0.3 s in all.
MAX_REFUSALS = 10


class ClientConnection(GrpcConnection):
    """Opens calls; those above the peer's limit of streams wait their turn."""

    is_client = True

    def __init__(self, *, clock: Callable[[], float], limits: Limits | None = None) -> None:
        super().__init__(clock=clock, limits=limits)
        self._queue: OrderedDict[Call, None] = OrderedDict()
        # Refused by the server and waiting for their `retry`.
        self._refused: set[Call] = set()
        self.peer_said_goodbye = False

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
            self.reset(call, ErrorCode.CANCEL)
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
        while self._queue and len(self.streams) < self.peer_max_streams:
            call, _ = self._queue.popitem(last=False)
            timeout = None
            if call.deadline is not None:
                # The header says what is left now, not what was left when the call was queued. 0
                # would be no valid timeout.
                timeout = max(call.deadline - self._clock(), 1e-6)
            if self.open_stream(call, grpc_headers.request_headers(call.method, timeout)):
                call.pending = call.request
                self._ready[call] = None
            else:
                self._end(call, RpcError(StatusCode.UNAVAILABLE, "the connection is used up"))

    def _forget_stream(self, call: Call) -> None:
        super()._forget_stream(call)
        # The call may get another stream, by `retry`.
        call.stream_id = 0

    def _forget(self, call: Call) -> None:
        self._queue.pop(call, None)
        self._refused.discard(call)
        super()._forget(call)
        self._start_queued()

    # ------------------------------------------------------------ what the peer does

    def on_settings(self) -> None:
        """Open calls that wait, as many as the server now allows."""
        super().on_settings()
        self._start_queued()

    def _on_drained(self, call: Call) -> None:
        """Nothing follows a request: its last frame has said so."""

    def _on_message(self, call: Call, message: bytes) -> None:
        call.messages.append(message)
        self._events.append(MessageReceived(call))

    def _refuse(self, call: Call, error: RpcError) -> None:
        self.reset(call, ErrorCode.CANCEL)
        self._end(call, error)

    def new_stream(self) -> Call:
        """Servers open no streams."""
        raise ProtocolError("the server opens a stream, which gRPC never does")

    def on_headers(self, call: Call, block: HeaderBlock, *, is_end: bool) -> None:
        """End a call that is answered with a status alone, or not in gRPC's words."""
        if is_end:
            self._finish(call, grpc_headers.parse_trailers_only(block.named))
        elif (problem := grpc_headers.response_problem(block.named)) is not None:
            self._refuse(call, problem)

    def on_end(self, call: Call, trailers: HeaderBlock | None) -> None:
        """End a call with the status in its trailers."""
        if call.ended:
            return
        if trailers is None:
            text = "the peer ended the stream without a status"
            self._finish(call, RpcError(StatusCode.INTERNAL, text))
        else:
            self._finish(call, grpc_headers.parse_status(trailers.named))

    def _finish(self, call: Call, error: RpcError | None) -> None:
        self.guard.refund(FloodGuard.call_earns)
        if error is None and call.reader.buffered:
            error = RpcError(StatusCode.INTERNAL, "the last message is cut off")
        if not call.is_closed:  # the server has not waited for all of the request
            self.reset(call, ErrorCode.CANCEL)
        self._end(call, error)

    def on_reset(self, call: Call, code: int, fault: str) -> None:
        """End a call, or let it be tried again when the server had no stream for it."""
        if fault:
            self._end(call, RpcError(StatusCode.UNKNOWN, fault))
        elif code == ErrorCode.REFUSED_STREAM and self._over is not None:
            self._end_unseen(call, self._over)
        elif code == ErrorCode.REFUSED_STREAM and call.refusals < MAX_REFUSALS:
            # grpcio refuses while a call that just ended is not cleared away in its threads.
            call.refusals += 1
            self._forget_stream(call)
            self._refused.add(call)
            self._events.append(CallRefused(call))
        else:
            self._end(call, grpc_headers.status_of_reset(code))

    def on_go_away(self, last_stream_id: int, reason: str) -> None:
        """Let the calls finish that the server looks at, and end the others."""
        if self._over is None:
            self._over = reason
        self.peer_said_goodbye = True
        self._events.append(PeerGoesAway(reason))
        # The server says that it has not looked at these, so they can be made again elsewhere (RFC
        # 9113, section 6.8).
        above = [each for each in self.streams.values() if each.stream_id > last_stream_id]
        for call in [*self._queue, *self._refused, *above]:
            self._end_unseen(call, reason)

    def _end_unseen(self, call: Call, reason: str) -> None:
        call.is_unseen = True
        self._end(call, RpcError(StatusCode.UNAVAILABLE, reason))
