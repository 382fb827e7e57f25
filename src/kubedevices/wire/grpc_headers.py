"""Methods, timeouts and statuses of gRPC as HTTP/2 header fields, written and read.

Pure functions for `client_connection` and `server_connection`. The rules are from gRPC's
PROTOCOL-HTTP2.
"""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from kubedevices.errors import RpcError, StatusCode
from kubedevices.wire.header_block import Fields

CONTENT_TYPE = b"application/grpc"
USER_AGENT = b"kubedevices"
AUTHORITY = b"localhost"
"""The `:authority` that grpc-go and grpcio send over a Unix socket. A path would be invalid."""

MAX_MESSAGE = 4096
"""Bytes of an encoded grpc-message; grpcio drops a call whose trailers exceed 8 KiB."""

RESPONSE_HEADERS: Fields = ((b":status", b"200"), (b"content-type", CONTENT_TYPE))

_STATUS_OF_HTTP = {
    400: StatusCode.INTERNAL,
    401: StatusCode.UNAUTHENTICATED,
    403: StatusCode.PERMISSION_DENIED,
    404: StatusCode.UNIMPLEMENTED,
    429: StatusCode.UNAVAILABLE,
    502: StatusCode.UNAVAILABLE,
    503: StatusCode.UNAVAILABLE,
    504: StatusCode.UNAVAILABLE,
}
_STATUS_OF_RESET = {
    7: StatusCode.UNAVAILABLE,  # REFUSED_STREAM: not processed
    8: StatusCode.CANCELLED,
    11: StatusCode.RESOURCE_EXHAUSTED,  # ENHANCE_YOUR_CALM
    12: StatusCode.PERMISSION_DENIED,  # INADEQUATE_SECURITY
}
_SECONDS_OF_UNIT = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


# ---------------------------------------------------------------- requests


def request_headers(method: str, timeout: float | None) -> Fields:
    """Return the header fields of a call; `timeout` is in seconds."""
    fields: Fields = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", method.encode()),
        (b":authority", AUTHORITY),
        (b"te", b"trailers"),
        (b"content-type", CONTENT_TYPE),
        (b"user-agent", USER_AGENT),
    )
    return fields if timeout is None else (*fields, (b"grpc-timeout", format_timeout(timeout)))


class RequestHead(NamedTuple):
    """Method and timeout of a call; `refusal` is the response if the request is not valid gRPC."""

    method: str
    timeout: float | None
    refusal: Fields | None = None


def parse_request(fields: Mapping[bytes, bytes]) -> RequestHead:
    """Return the method and timeout of a request, or the response that refuses it."""
    path = fields.get(b":path", b"").decode("ascii", "replace")
    if fields.get(b":method") != b"POST":
        return RequestHead(path, None, ((b":status", b"405"), (b"allow", b"POST")))
    if not is_grpc(fields.get(b"content-type")):
        return RequestHead(path, None, ((b":status", b"415"),))
    timeout = None
    if b"grpc-timeout" in fields:
        timeout = parse_timeout(fields[b"grpc-timeout"])
        if timeout is None:
            text = "malformed grpc-timeout"
            return RequestHead(path, None, trailers_only(StatusCode.INTERNAL, text))
    return RequestHead(path, timeout)


def is_grpc(content_type: bytes | None) -> bool:
    """Whether the content type is `application/grpc`, alone or with a suffix."""
    return content_type is not None and (
        content_type == CONTENT_TYPE
        or content_type.startswith((CONTENT_TYPE + b"+", CONTENT_TYPE + b";"))
    )


def format_timeout(seconds: float) -> bytes:
    """Return seconds as a grpc-timeout: at most eight digits and a unit.

    Milliseconds are exact enough from 0.1 s on. Equal fields are encoded once (`hpack.encode`), and
    calls with the same timeout then mostly have equal fields.
    """
    if seconds < 0.1:
        return b"%du" % max(0, round(seconds * 1e6))
    for unit, digits in ((b"m", 1e3), (b"S", 1.0)):
        amount = round(seconds * digits)
        if amount < 10**8:
            return b"%d%b" % (amount, unit)
    return b"%dH" % min(10**8 - 1, round(seconds / 3600))


def parse_timeout(text: bytes) -> float | None:
    """Return the seconds of a grpc-timeout, None if it is malformed."""
    digits, unit = text[:-1], text[-1:]
    if not digits.isdigit() or len(digits) > 8 or unit not in _SECONDS_OF_UNIT:
        return None
    return int(digits) * _SECONDS_OF_UNIT[unit]


# ---------------------------------------------------------------- statuses


def trailers(code: StatusCode, message: str) -> Fields:
    """Return the trailers of a response."""
    status = (b"grpc-status", b"%d" % code)
    return (status, (b"grpc-message", encode_message(message))) if message else (status,)


def trailers_only(code: StatusCode, message: str) -> Fields:
    """Return a Trailers-Only response: a status without any message."""
    return (*RESPONSE_HEADERS, *trailers(code, message))


def encode_message(message: str) -> bytes:
    """Percent-encode all but printable ASCII; cut after a whole character at `MAX_MESSAGE`."""
    encoded = _quote(message.encode("utf-8", "replace"))
    if len(encoded) <= MAX_MESSAGE:
        return encoded
    kept = unquote_to_bytes(encoded[: MAX_MESSAGE - 16]).decode("utf-8", "ignore")
    return _quote(kept.encode() + b"...")


_PRINTABLE = bytes(byte for byte in range(0x20, 0x7F) if byte != ord("%"))


def _quote(text: bytes) -> bytes:
    # Strict peers drop the connection if a field value begins or ends with a space (RFC 9113,
    # section 8.2.1).
    inner = text.strip(b" ")
    before = len(text) - len(text.lstrip(b" "))
    after = len(text) - before - len(inner)
    return b"%20" * before + quote_from_bytes(inner, safe=_PRINTABLE).encode() + b"%20" * after


def decode_message(text: bytes) -> str:
    """Return the text of a grpc-message; invalid UTF-8 becomes replacement characters."""
    return unquote_to_bytes(text).decode("utf-8", "replace")


def parse_status(fields: Mapping[bytes, bytes]) -> RpcError | None:
    """Return the error in trailers or in a Trailers-Only response; None means OK."""
    status = fields.get(b"grpc-status")
    if status is None:
        return RpcError(StatusCode.UNKNOWN, "the peer sent no grpc-status")
    try:
        code = StatusCode(int(status)) if status.isdigit() and len(status) < 4 else None
    except ValueError:
        code = None
    message = decode_message(fields.get(b"grpc-message", b""))
    if code is None:
        shown = status[:20].decode("ascii", "replace")
        return RpcError(StatusCode.UNKNOWN, f"grpc-status {shown!r}: {message}")
    return None if code is StatusCode.OK else RpcError(code, message)


def parse_trailers_only(fields: Mapping[bytes, bytes]) -> RpcError | None:
    """Return the error of a Trailers-Only response, None for OK; grpclib's has no content type."""
    return (b"grpc-status" not in fields and response_problem(fields)) or parse_status(fields)


def response_problem(fields: Mapping[bytes, bytes]) -> RpcError | None:
    """Return an error if the response headers are not valid gRPC, else None."""
    status = fields.get(b":status", b"")
    if status != b"200":
        known = int(status) if status.isdigit() and len(status) == 3 else 0
        code = _STATUS_OF_HTTP.get(known, StatusCode.UNKNOWN)
        return RpcError(code, f"HTTP status {status[:20].decode('ascii', 'replace') or 'missing'}")
    if not is_grpc(fields.get(b"content-type")):
        shown = fields.get(b"content-type", b"")[:80].decode("ascii", "replace")
        return RpcError(StatusCode.UNKNOWN, f"unexpected content-type {shown!r}")
    return None


def status_of_reset(error_code: int) -> RpcError:
    """Return the error that a caller gets for an RST_STREAM of the server."""
    code = _STATUS_OF_RESET.get(error_code, StatusCode.INTERNAL)
    return RpcError(code, f"the peer reset the stream (HTTP/2 error code {error_code})")
