"""gRPC messages in a byte stream: one flag byte, four bytes of length, the message.

For `grpc_connection`, which feeds the payload of DATA frames in. A length above the limit is
refused as soon as the five bytes of the prefix arrived, before the message takes memory.
"""

from collections.abc import Iterable, Iterator

from kubedevices.errors import RpcError, StatusCode

PREFIX = 5
"""Bytes before each message: flag and length."""


def prefix(payload: bytes) -> bytes:
    """Return the bytes before an uncompressed message."""
    return b"\0" + len(payload).to_bytes(4, "big")


def frame(payload: bytes) -> bytes:
    """Return an uncompressed message with its prefix."""
    return prefix(payload) + payload


class MessageReader:
    """Splits the bytes of one direction of one call into messages."""

    def __init__(self, max_receive: int) -> None:
        self._max_receive = max_receive
        self._buffer = bytearray()

    @property
    def buffered(self) -> int:
        """Bytes of the message that is not complete yet."""
        return len(self._buffer)

    def clear(self) -> None:
        """Drop the incomplete message."""
        self._buffer.clear()

    def feed(self, data: bytes) -> Iterable[bytes]:
        """Return the messages that `data` completes; raises `RpcError` for a refused message."""
        # Fast path: most DATA frames carry exactly one whole message.
        if not self._buffer and len(data) >= PREFIX and self._size(data, 0) == len(data) - PREFIX:
            return (data[PREFIX:],)
        return self._split(data)

    def _split(self, data: bytes) -> Iterator[bytes]:
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= PREFIX:
                end = start + PREFIX + self._size(self._buffer, start)
                if len(self._buffer) < end:
                    return
                message = bytes(memoryview(self._buffer)[start + PREFIX : end])
                start = end
                yield message
        finally:
            del self._buffer[:start]

    def _size(self, data: bytes | bytearray, start: int) -> int:
        flag = data[start]
        size = int.from_bytes(data[start + 1 : start + PREFIX], "big")
        if flag == 1:
            raise RpcError(StatusCode.UNIMPLEMENTED, "compressed messages are not supported")
        if flag:
            raise RpcError(StatusCode.INTERNAL, f"message with unknown flag {flag}")
        if size > self._max_receive:
            raise RpcError(
                StatusCode.RESOURCE_EXHAUSTED,
                f"received message larger than max ({size} vs. {self._max_receive})",
            )
        return size
