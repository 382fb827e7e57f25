"""HTTP/2 frames by hand, for peers that do what no library would, and two ends joined in memory."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hpack import Encoder

from kubedevices.errors import ProtocolError
from kubedevices.wire.client_connection import ClientConnection
from kubedevices.wire.grpc_connection import GrpcConnection
from kubedevices.wire.http2_frames import PREFACE
from kubedevices.wire.http2_limits import Limits
from kubedevices.wire.server_connection import ServerConnection

if TYPE_CHECKING:
    from kubedevices.wire.grpc_events import Event

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = range(5)
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(5, 10)
END_STREAM, END_HEADERS, ACK = 1, 4, 1

METHOD = "/test.Service/Echo"
REQUEST = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", METHOD.encode()),
    (b":authority", b"localhost"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
]
RESPONSE = [(b":status", b"200"), (b"content-type", b"application/grpc")]
OK = [(b"grpc-status", b"0")]


def asking(path: str) -> list[tuple[bytes, bytes]]:
    """Return the header fields of a request for the method at `path`."""
    return [(name, path.encode() if name == b":path" else value) for name, value in REQUEST]


def raw(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """Return one frame."""
    size = len(payload).to_bytes(3, "big")
    return size + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def block(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a header block that needs nothing of what came before."""
    return Encoder().encode([(name, value, True) for name, value in headers], huffman=False)


def headers(
    stream: int, fields: Iterable[tuple[bytes, bytes]] = REQUEST, flags: int = END_HEADERS
) -> bytes:
    """Return a HEADERS frame."""
    return raw(HEADERS, flags, stream, block(fields))


def message(payload: bytes, flag: int = 0) -> bytes:
    """Return a gRPC message."""
    return bytes((flag,)) + len(payload).to_bytes(4, "big") + payload


def data(stream: int, payload: bytes, *, end: bool = False) -> bytes:
    """Return a DATA frame."""
    return raw(DATA, END_STREAM if end else 0, stream, payload)


def settings(*pairs: tuple[int, int]) -> bytes:
    """Return a SETTINGS frame."""
    body = b"".join(key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in pairs)
    return raw(SETTINGS, 0, 0, body)


CLIENT_HELLO = PREFACE + settings()
SERVER_HELLO = settings()


class Received(NamedTuple):
    """One frame that somebody sent."""

    kind: int
    flags: int
    stream: int
    payload: bytes


def parse(output: bytes) -> Iterator[Received]:
    """Cut `output` into frames."""
    output = output.removeprefix(PREFACE)
    while output:
        size = int.from_bytes(output[:3], "big")
        stream = int.from_bytes(output[5:9], "big")
        yield Received(output[3], output[4], stream, output[9 : 9 + size])
        output = output[9 + size :]


def everything(connection: GrpcConnection) -> bytes:
    """Return all the output there is."""
    parts = []
    while part := connection.take_output():
        parts.append(part)
    return b"".join(parts)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def new_server(limits: Limits | None = None, clock: Clock | None = None) -> ServerConnection:
    """Return a server that has a client's preface and SETTINGS."""
    server = ServerConnection(clock=clock or Clock(), limits=limits)
    server.receive(CLIENT_HELLO)
    server.take_events()
    server.take_output()
    return server


def new_client(limits: Limits | None = None, clock: Clock | None = None) -> ClientConnection:
    """Return a client that has a server's SETTINGS."""
    client = ClientConnection(clock=clock or Clock(), limits=limits)
    client.receive(SERVER_HELLO)
    client.take_events()
    client.take_output()
    return client


class Joined:
    """A client and a server, connected."""

    def __init__(
        self, client_limits: Limits | None = None, server_limits: Limits | None = None
    ) -> None:
        self.clock = Clock()
        self.client = ClientConnection(clock=self.clock, limits=client_limits)
        self.server = ServerConnection(clock=self.clock, limits=server_limits)
        self.at_client: list[Event] = []
        self.at_server: list[Event] = []
        self.exchange()

    def exchange(self) -> None:
        """Carry bytes until both are silent; collect events."""
        while True:
            to_server, to_client = self.client.take_output(), self.server.take_output()
            if to_server:
                self.server.receive(to_server)
            if to_client:
                self.client.receive(to_client)
            self.at_client += self.client.take_events()
            self.at_server += self.server.take_events()
            if not to_server and not to_client:
                return


def refused(connection: GrpcConnection, data: bytes) -> str:
    """Return what the connection says about bytes that end it."""
    with pytest.raises(ProtocolError) as caught:
        connection.receive(data)
    with pytest.raises(ProtocolError):
        connection.receive(b"")
    last = list(parse(everything(connection)))[-1]
    assert last.kind == GOAWAY
    assert everything(connection) == b""
    return str(caught.value)
