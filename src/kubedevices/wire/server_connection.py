"""The answering end of a gRPC connection, without I/O; `unix_grpc.GrpcServer` gives it a socket."""

from collections.abc import Callable

import h2.events
from h2.errors import ErrorCodes

from kubedevices.errors import RpcError, StatusCode
from kubedevices.wire import grpc_headers
from kubedevices.wire.grpc_connection import GrpcConnection
from kubedevices.wire.grpc_events import (
    Call,
    CallEnded,
    CallOpened,
    Drained,
    Limits,
    PeerGoesAway,
    RequestReceived,
)
from kubedevices.wire.grpc_framing import frame
from kubedevices.wire.http2_limits import FloodGuard, GoAway


class ServerConnection(GrpcConnection):
    """Answers calls of one request message each with any number of messages and a status."""

    is_client = False

    def __init__(self, *, clock: Callable[[], float], limits: Limits | None = None) -> None:
        super().__init__(clock=clock, limits=limits)
        self._refuses_calls = False
        self._handlers[h2.events.RequestReceived] = self._on_request

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
            self._http2.send_headers(call.stream_id, grpc_headers.RESPONSE_HEADERS)
            call.headers_sent = True
        call.pending = memoryview(frame(payload))
        self._ready[call] = None

    def finish(self, call: Call, code: StatusCode = StatusCode.OK, message: str = "") -> None:
        """End a call with a status; OK waits for what `send` still holds, an error does not."""
        if call.ended:
            return
        if call.pending and code is StatusCode.OK:
            call.trailers = grpc_headers.trailers(code, message)
            return
        if call.is_cut:
            # A status after half a message would be a broken message for the client.
            self._reset(call, ErrorCodes.CANCEL)
        elif call.headers_sent:
            self._send_last(call, grpc_headers.trailers(code, message))
        else:
            self._send_last(call, grpc_headers.trailers_only(code, message))
        self._forget(call)

    def _send_last(self, call: Call, headers: grpc_headers.Headers) -> None:
        self._http2.send_headers(call.stream_id, headers, end=True)
        if not call.remote_closed:
            # The answer is complete; whatever the client still sends is of no interest.
            self._reset(call, ErrorCodes.NO_ERROR)
        self._http2.guard.earn(FloodGuard.call_earns)

    def _forget(self, call: Call) -> None:
        call.messages.clear()
        super()._forget(call)

    # ------------------------------------------------------------ what the peer does

    def _on_request(self, event: h2.events.RequestReceived) -> None:
        request = grpc_headers.parse_request(event.headers or [])
        call = Call(request.method, self.limits.max_receive)
        call.stream_id = event.stream_id or 0
        call.timeout = request.timeout
        call.remote_closed = event.stream_ended is not None
        if self._refuses_calls:
            text = "the server is stopping"
            self._send_last(call, grpc_headers.trailers_only(StatusCode.UNAVAILABLE, text))
        elif len(self._calls) >= self.limits.max_streams:
            self._http2.guard.spend(FloodGuard.reset_costs)
            self._reset(call, ErrorCodes.REFUSED_STREAM)
        elif request.refusal is not None:
            self._send_last(call, request.refusal)
        else:
            self._calls[call.stream_id] = call
            self._events.append(CallOpened(call))

    def _on_message(self, call: Call, message: bytes) -> None:
        if call.messages:
            raise RpcError(StatusCode.UNIMPLEMENTED, "every method here takes one message")
        call.messages.append(message)

    def _on_stream_ended(self, event: h2.events.StreamEnded) -> None:
        call = self._calls.get(event.stream_id or 0)
        if call is None:
            return
        call.remote_closed = True
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

    def _on_reset(self, event: h2.events.StreamReset) -> None:
        call = self._calls.get(event.stream_id or 0)
        if call is not None:
            self._http2.guard.spend(FloodGuard.reset_costs)
            self._end(call, RpcError(StatusCode.CANCELLED, "the client cancelled the call"))

    def _on_go_away(self, event: GoAway) -> None:
        self._events.append(PeerGoesAway(event.reason))
