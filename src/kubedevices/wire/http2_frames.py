"""HTTP/2 frames as bytes (RFC 9113, sections 4, 6 and 7): constants, functions to write and read.

For `http2_output` and `http2_session`, and for `probe.raw_http2`, which also writes malformed
frames. The functions that read raise `ProtocolError` with the error code that the RFC demands.
"""

from enum import IntEnum
from struct import Struct

from kubedevices.errors import ProtocolError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

# Frame types, named `kind` in this package. Then flags.
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = range(5)
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(5, 10)
END_STREAM = ACK = 1
END_HEADERS, PADDED, WITH_PRIORITY = 4, 8, 32

ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, FRAME_SIZE, HEADER_LIST_SIZE = range(2, 7)
"""Identifiers of settings (section 6.5.2)."""

DEFAULT_WINDOW = 65535
DEFAULT_FRAME_SIZE = 16384
MAX_31 = 2**31 - 1
"""The largest flow-control window and the largest stream identifier."""

HEAD = Struct(">BHBBL")
"""The frame header, nine bytes: payload size (8 + 16 bits), type, flags, stream identifier."""


class ErrorCode(IntEnum):
    """The error codes of RST_STREAM and GOAWAY that we use (RFC 9113, section 7)."""

    NO_ERROR = 0
    PROTOCOL = 1
    FLOW_CONTROL = 3
    STREAM_CLOSED = 5
    FRAME_SIZE = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION = 9
    ENHANCE_YOUR_CALM = 11


# ---------------------------------------------------------------- writing


def head(kind: int, flags: int, stream_id: int, size: int) -> bytes:
    """Return the header of a frame with `size` bytes of payload."""
    return HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream_id)


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Return a frame; its parts are not checked."""
    return head(kind, flags, stream_id, len(payload)) + payload


def settings(values: dict[int, int]) -> bytes:
    """Return a SETTINGS frame."""
    pairs = [key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in values.items()]
    return frame(SETTINGS, 0, 0, b"".join(pairs))


def number(kind: int, stream_id: int, value: int) -> bytes:
    """Return a frame whose payload is one number: WINDOW_UPDATE or RST_STREAM."""
    return frame(kind, 0, stream_id, value.to_bytes(4, "big"))


def goaway(last_stream_id: int, code: int, text: bytes = b"") -> bytes:
    """Return a GOAWAY frame."""
    numbers = last_stream_id.to_bytes(4, "big") + code.to_bytes(4, "big")
    return frame(GOAWAY, 0, 0, numbers + text)


# ---------------------------------------------------------------- reading


def without_padding(payload: bytes) -> bytes:
    """Return the payload of a PADDED frame without the padding."""
    if not payload or payload[0] >= len(payload):
        raise ProtocolError("padding longer than the frame")
    return payload[1 : len(payload) - payload[0]]


def check(kind: int, stream_id: int, payload: bytes, size: int, *, of_stream: bool) -> None:
    """Raise unless the payload has `size` bytes and the frame is on a stream (`of_stream`) or 0."""
    if bool(stream_id) is not of_stream:
        raise ProtocolError(f"frame of kind {kind} on stream {stream_id}")
    if len(payload) != size:
        text = f"frame of kind {kind} with {len(payload)} bytes instead of {size}"
        raise ProtocolError(text, ErrorCode.FRAME_SIZE)


def check_priority(stream_id: int, payload: bytes) -> None:
    """Raise for a malformed priority; valid priorities are ignored (RFC 9113, section 5.3.2)."""
    check(PRIORITY, stream_id, payload, 5, of_stream=True)
    if int.from_bytes(payload[:4], "big") & MAX_31 == stream_id:
        raise ProtocolError(f"stream {stream_id} depends on itself")


def read_settings(payload: bytes, *, from_server: bool) -> dict[int, int]:
    """Return all settings in a frame, also unknown ones; of a repeated setting the last value."""
    values = {}
    for at in range(0, len(payload), 6):
        key = int.from_bytes(payload[at : at + 2], "big")
        value = values[key] = int.from_bytes(payload[at + 2 : at + 6], "big")
        if key == ENABLE_PUSH and value > (not from_server):
            raise ProtocolError(f"ENABLE_PUSH of {value}")
        if key == INITIAL_WINDOW_SIZE and value > MAX_31:
            raise ProtocolError(f"INITIAL_WINDOW_SIZE of {value}", ErrorCode.FLOW_CONTROL)
        if key == FRAME_SIZE and not DEFAULT_FRAME_SIZE <= value < 2**24:
            raise ProtocolError(f"MAX_FRAME_SIZE of {value}")
    return values


def read_goaway(payload: bytes) -> tuple[int, str]:
    """Return the last stream that the peer processes after this GOAWAY, and the reason as text."""
    code, text = int.from_bytes(payload[4:8], "big"), payload[8:208].decode("utf-8", "replace")
    shown = f" (HTTP/2 error code {code})" if code else ""
    # The debug data may explain the code: grpc-go sends `too_many_pings`.
    reason = f"the peer is going away{shown}" + (f": {text}" if text else "")
    return int.from_bytes(payload[:4], "big") & MAX_31, reason
