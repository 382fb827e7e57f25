"""The server's half of a gRPC connection, without I/O; `GrpcServer` connects it to a socket."""

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
from kubedevices.wire.grpc_framing import frame, prefix
from kubedevices.wire.header_block import Fields, HeaderBlock
from kubedevices.wire.http2_frames import ErrorCode
from kubedevices.wire.http2_limits import FloodGuard, Limits

LONG_MESSAGE = 2**16
"""Bytes. Longer messages are sent without a copy, in two DATA frames or more."""


class ServerConnection(GrpcConnection):
    """Answers calls. A call has one request message, any number of responses and a status."""

    is_client = False

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        limits: Limits | None = None,
        message_limit: Callable[[], int] | None = None,
    ) -> None:
        """`message_limit` returns the largest request in bytes, at most `limits.max_receive`."""
        super().__init__(clock=clock, limits=limits)
        self._message_limit = message_limit or (lambda: self.limits.max_receive)
        self._refuses_calls = False

    def refuse_calls(self) -> None:
        """Refuse new calls with UNAVAILABLE; open calls go on.

        This sends no GOAWAY, because grpclib's client drops its open calls after GOAWAY.
        """
        self._refuses_calls = True

    def send(self, call: Call, payload: bytes) -> None:
        """Send one message; while `call.pending` is not empty, the caller waits for `Drained`."""
        if call.ended:
            return
        if not call.headers_sent:
            self.send_headers(call, grpc_headers.RESPONSE_HEADERS)
            call.headers_sent = True
        # Views, so that each DATA frame takes its part without a copy of the rest. A device list is
        # not copied, so that all streams that wait for their readers share its bytes.
        if len(payload) < LONG_MESSAGE:
            self._queue(call, memoryview(frame(payload)))
        else:
            self._queue(call, memoryview(prefix(payload)), memoryview(payload))

    def finish(self, call: Call, code: StatusCode = StatusCode.OK, message: str = "") -> None:
        """End a call with a status. OK is sent after the pending message, an error at once."""
        if call.ended:
            return
        if call.pending and code is StatusCode.OK:
            # `_on_drained` sends the trailers after the last part of the message.
            call.trailers = grpc_headers.trailers(code, message)
            return
        if code is StatusCode.OK:
            self.guard.refund(FloodGuard.call_refund)
        if call.is_partly_sent:
            # A status after half a message would be a malformed response.
            self.reset(call, ErrorCode.CANCEL)
        elif call.headers_sent:
            self._send_last(call, grpc_headers.trailers(code, message))
        else:
            self._send_last(call, grpc_headers.trailers_only(code, message))
        self._forget(call)

    def _send_last(self, call: Call, fields: Fields) -> None:
        self.send_headers(call, fields, is_end=True)
        if not call.is_remote_closed:
            # The response is complete: the client need not send the rest of its request (RFC 9113,
            # section 8.1).
            self.reset(call, ErrorCode.NO_ERROR)

    def _forget(self, call: Call) -> None:
        call.messages.clear()
        super()._forget(call)

    # ------------------------------------------------------------ what the peer does

    def new_stream(self) -> Call:
        """Return a new call; `on_headers` sets its method."""
        return Call("", self._message_limit())

    def on_headers(self, call: Call, block: HeaderBlock, *, is_end: bool) -> None:
        """Report a new call with `CallOpened`, or refuse it."""
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
        # A unary or server-streaming call has exactly one request message. Client streaming is not
        # supported.
        if call.messages:
            raise RpcError(StatusCode.UNIMPLEMENTED, "every method here takes one message")
        call.messages.append(message)

    def on_end(self, call: Call, trailers: HeaderBlock | None) -> None:
        """Report the complete request; trailers of a client have no meaning in gRPC."""
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
            self.guard.refund(FloodGuard.call_refund)
            self._end(call, None)

    def on_reset(self, call: Call, code: int, error: str) -> None:
        """End the call if it was reported."""
        if not error:
            self.guard.spend(FloodGuard.reset_cost)
        if call.has_headers:
            reason = error or "the client cancelled the call"
            self._end(call, RpcError(StatusCode.CANCELLED, reason))

    def on_go_away(self, last_stream_id: int, reason: str) -> None:
        """Report that the client opens no more calls: the connection ends with the last call."""
        self._events.append(PeerGoesAway(reason))
