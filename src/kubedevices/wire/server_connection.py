"""The answering end of a gRPC connection, without I/O; `unix_grpc.GrpcServer` gives it a socket."""

from collections.abc import Callable

from kubedevices.errors import RpcError, StatusCode
from kubedevices.wire import grpc_headers
from kubedevices.wire.grpc_connection import GrpcConnection
from kubedevices.wire.grpc_events import (
    Call,
    CallEnded,
    CallOpened,
    Drained,
    PeerGoesAway,
    RequestReceived,
)
from kubedevices.wire.grpc_framing import frame
from kubedevices.wire.header_block import Fields, HeaderBlock
from kubedevices.wire.http2_frames import ErrorCode
from kubedevices.wire.http2_limits import FloodGuard, Limits


class ServerConnection(GrpcConnection):
    """Answers calls of one request message each with any number of messages and a status."""

    is_client = False

    def __init__(self, *, clock: Callable[[], float], limits: Limits | None = None) -> None:
        super().__init__(clock=clock, limits=limits)
        self._refuses_calls = False

    def refuse_calls(self) -> None:
        """Take no more calls; those that are open go on.

        Without GOAWAY, after which grpclib's client drops its open calls.
        """
        self._refuses_calls = True

    def send(self, call: Call, payload: bytes) -> None:
        """Give one message to a client; wait for `Drained` while `call.pending` is not empty."""
        if call.ended:
            return
        if not call.headers_sent:
            self.send_headers(call, grpc_headers.RESPONSE_HEADERS)
            call.headers_sent = True
        # A view: what was sent is cut off without a copy of the rest.
        call.pending = memoryview(frame(payload))
        self._ready[call] = None

    def finish(self, call: Call, code: StatusCode = StatusCode.OK, message: str = "") -> None:
        """End a call with a status; OK waits for what `send` still holds, an error does not."""
        if call.ended:
            return
        if call.pending and code is StatusCode.OK:
            # `_on_drained` sends them behind the last piece of the message.
            call.trailers = grpc_headers.trailers(code, message)
            return
        if call.is_cut:
            # A status after half a message would be a broken message for the client.
            self.reset(call, ErrorCode.CANCEL)
        elif call.headers_sent:
            self._send_last(call, grpc_headers.trailers(code, message))
        else:
            self._send_last(call, grpc_headers.trailers_only(code, message))
        self._forget(call)

    def _send_last(self, call: Call, fields: Fields) -> None:
        self.send_headers(call, fields, is_end=True)
        if not call.is_ended:
            # The answer is complete; whatever the client still sends is of no interest.
            self.reset(call, ErrorCode.NO_ERROR)
        self.guard.refund(FloodGuard.call_earns)

    def _forget(self, call: Call) -> None:
        call.messages.clear()
        super()._forget(call)

    # ------------------------------------------------------------ what the peer does

    def new_stream(self) -> Call:
        """Return a call that has no headers yet."""
        return Call("", self.limits.max_receive)

    def on_headers(self, call: Call, block: HeaderBlock, *, is_end: bool) -> None:
        """Report a call, or refuse it."""
        request = grpc_headers.parse_request(block.named)
        if self._refuses_calls:
            text = "the server is stopping"
            self._send_last(call, grpc_headers.trailers_only(StatusCode.UNAVAILABLE, text))
        elif request.refusal is not None:
            self._send_last(call, request.refusal)
        else:
            call.method, call.timeout = request.method, request.timeout
            self._events.append(CallOpened(call))
            if is_end:
                self.on_end(call, None)

    def _on_message(self, call: Call, message: bytes) -> None:
        # The one message of a unary or server-streaming call is complete; client streams are not
        # offered.
        if call.messages:
            raise RpcError(StatusCode.UNIMPLEMENTED, "every method here takes one message")
        call.messages.append(message)

    def on_end(self, call: Call, trailers: HeaderBlock | None) -> None:
        """Report the request; a client's trailers mean nothing."""
        if call.ended:
            return
        if call.reader.buffered:
            self._refuse(call, RpcError(StatusCode.INTERNAL, "the message is cut off"))
        elif not call.messages:
            self._refuse(call, RpcError(StatusCode.UNIMPLEMENTED, "the call has no message"))
        else:
            self._events.append(RequestReceived(call, self.take_message(call)))

    def _refuse(self, call: Call, error: RpcError) -> None:
        self.finish(call, error.code, error.message)
        self._events.append(CallEnded(call, error))

    def _on_drained(self, call: Call) -> None:
        if call.trailers is None:
            self._events.append(Drained(call))
        else:
            self._send_last(call, call.trailers)
            self._end(call, None)

    def on_reset(self, call: Call, code: int, fault: str) -> None:
        """End a call that was reported."""
        if not fault:
            self.guard.spend(FloodGuard.reset_costs)
        if call.has_headers:
            reason = fault or "the client cancelled the call"
            self._end(call, RpcError(StatusCode.CANCELLED, reason))

    def on_go_away(self, last_stream_id: int, reason: str) -> None:
        """Report that the connection ends with the last open call."""
        self._events.append(PeerGoesAway(reason))
