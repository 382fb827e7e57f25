"""The answering role without I/O: requests in every state of brokenness, answers, refusals."""

import pytest
from hpack import Decoder

from kubedevices.errors import StatusCode
from kubedevices.wire.grpc_events import Call, CallEnded, CallOpened, Drained, RequestReceived
from kubedevices.wire.http2_limits import Limits
from kubedevices.wire.server_connection import ServerConnection
from tests.wire.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    METHOD,
    REQUEST,
    RST_STREAM,
    WINDOW_UPDATE,
    Received,
    data,
    everything,
    headers,
    message,
    new_server,
    parse,
    raw,
    settings,
)

NO_ERROR, REFUSED_STREAM, CANCEL = 0, 7, 8


class Client:
    """A hand-made client that understands what comes back."""

    def __init__(self, server: ServerConnection) -> None:
        self.server = server
        self.decoder = Decoder()
        self.frames: list[Received] = []

    def send(self, *frames: bytes) -> None:
        self.server.receive(b"".join(frames))
        self.frames += parse(everything(self.server))

    def call(self, *frames: bytes) -> Call:
        """Send a whole request after `frames`; return its call."""
        self.send(*frames, headers(1), data(1, message(b"x"), end=True))
        return self.server.take_events()[0].call  # type: ignore[union-attr]

    def fields(self, stream: int) -> dict[str, str]:
        """Return all header fields that came on a stream, trailers included."""
        found: dict[str, str] = {}
        for frame in self.frames:
            if frame.kind == HEADERS:
                decoded = self.decoder.decode(frame.payload)
                if frame.stream == stream:
                    found.update({str(name): str(value) for name, value in decoded})
        return found

    def resets(self) -> list[tuple[int, int]]:
        """Return stream and code of every RST_STREAM."""
        return [
            (frame.stream, int.from_bytes(frame.payload, "big"))
            for frame in self.frames
            if frame.kind == RST_STREAM
        ]


@pytest.fixture
def client() -> Client:
    return Client(new_server())


def test_request() -> None:
    """A call is reported when it opens, and again with its one message when that is complete."""
    server = new_server()
    server.receive(headers(1, [*REQUEST, (b"grpc-timeout", b"1500m")]))
    (opened,) = server.take_events()
    assert isinstance(opened, CallOpened)
    assert (opened.call.method, opened.call.timeout) == (METHOD, 1.5)
    half = message(b"hello")
    server.receive(data(1, half[:7]))
    server.receive(data(1, half[7:]))
    assert server.take_events() == []
    server.receive(data(1, b"", end=True))
    assert server.take_events() == [RequestReceived(opened.call, b"hello")]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param(message(b"x" * 101), StatusCode.RESOURCE_EXHAUSTED, id="too large"),
        pytest.param(b"\0\xff\xff\xff\xff", StatusCode.RESOURCE_EXHAUSTED, id="prefix alone"),
        pytest.param(message(b"x", flag=1), StatusCode.UNIMPLEMENTED, id="compressed"),
        pytest.param(message(b"x", flag=2), StatusCode.INTERNAL, id="unknown flag"),
        pytest.param(message(b"x") * 2, StatusCode.UNIMPLEMENTED, id="two messages"),
    ],
)
def test_refused_at_once(body: bytes, code: StatusCode) -> None:
    """A request is refused before its end, and nothing of it is stored."""
    server = new_server(Limits(max_receive=100))
    client = Client(server)
    client.send(headers(1), data(1, body))
    assert client.fields(1)["grpc-status"] == str(int(code))
    assert client.resets() == [(1, NO_ERROR)]
    assert server.buffered == 0
    assert server.open_calls == 0
    opened, ended = server.take_events()
    assert isinstance(opened, CallOpened)
    assert isinstance(ended, CallEnded)
    client.send(data(1, b"late", end=True), headers(3), data(3, message(b"x"), end=True))
    assert isinstance(server.take_events()[-1], RequestReceived)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param(b"", StatusCode.UNIMPLEMENTED, id="no message"),
        pytest.param(message(b"hello")[:-1], StatusCode.INTERNAL, id="half a message"),
        pytest.param(message(b"hello") + b"\0", StatusCode.INTERNAL, id="a message and a bit"),
    ],
)
def test_request_that_ends_badly(client: Client, body: bytes, code: StatusCode) -> None:
    """A request must end after exactly one whole message."""
    server = client.server
    client.send(headers(1), data(1, body, end=True))
    assert client.fields(1)["grpc-status"] == str(int(code))
    assert client.resets() == []
    assert server.open_calls == server.buffered == 0


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (b":method", b"GET", {":status": "405", "allow": "POST"}),
        (b"content-type", b"application/json", {":status": "415"}),
        (b"content-type", b"application/grpcx", {":status": "415"}),
        (b"grpc-timeout", b"soon", {":status": "200", "grpc-status": "13"}),
    ],
)
def test_a_request_that_is_not_grpc_is_refused(
    client: Client, name: bytes, value: bytes, expected: dict[str, str]
) -> None:
    """A request that is not gRPC gets an HTTP status and is never reported."""
    server = client.server
    fields = [*(pair for pair in REQUEST if pair[0] != name), (name, value)]
    client.send(headers(1, sorted(fields, key=lambda pair: not pair[0].startswith(b":"))))
    assert expected.items() <= client.fields(1).items()
    assert server.take_events() == []
    assert server.open_calls == 0


@pytest.mark.parametrize("suffix", [b"", b"+proto", b"+json", b";charset=utf-8"])
def test_content_types(suffix: bytes) -> None:
    """application/grpc may have a suffix."""
    server = new_server()
    fields = [(name, value + suffix * (name == b"content-type")) for name, value in REQUEST]
    server.receive(headers(1, fields))
    assert isinstance(server.take_events()[0], CallOpened)


def test_one_stream_too_many() -> None:
    """A call above the limit gets REFUSED_STREAM; the connection goes on."""
    server = new_server(Limits(max_streams=2))
    client = Client(server)
    client.send(headers(1), headers(3), headers(5))
    assert client.resets() == [(5, REFUSED_STREAM)]
    client.send(raw(RST_STREAM, 0, 1, bytes(4)), headers(7))
    assert client.resets() == [(5, REFUSED_STREAM)]
    assert server.open_calls == 2


def test_streams_far_above_the_limit() -> None:
    """Many headers take no more memory than the limit of streams allows."""
    server = new_server(Limits(max_streams=10))
    client = Client(server)
    client.send(*(headers(stream) for stream in range(1, 400, 2)))
    assert server.open_calls == 10
    assert len(client.resets()) == 190


def test_client_cancels(client: Client) -> None:
    """A reset by the client ends the call; later messages of the handler are dropped."""
    server = client.server
    call = client.call()
    client.send(raw(RST_STREAM, 0, 1, CANCEL.to_bytes(4, "big")))
    (ended,) = server.take_events()
    assert isinstance(ended, CallEnded)
    assert ended.error is not None
    assert ended.error.code is StatusCode.CANCELLED
    server.send(call, b"late")
    server.finish(call)
    assert everything(server) == b""


def test_answer_waits_for_the_window(client: Client) -> None:
    """A message above the client's window leaves in parts, its status only after the last."""
    server = client.server
    call = client.call(settings((4, 10)))
    client.frames.clear()
    server.send(call, b"0123456789")
    server.finish(call)
    client.send()
    assert [frame.payload for frame in client.frames if frame.kind == DATA] == [
        message(b"0123456789")[:10]
    ]
    assert server.open_calls == 1
    client.send(raw(WINDOW_UPDATE, 0, 1, (100).to_bytes(4, "big")))
    assert client.fields(1)["grpc-status"] == "0"
    assert server.take_events() == [CallEnded(call, None)]


def test_drained(client: Client) -> None:
    """A stream learns when its message has left, and only then."""
    server = client.server
    call = client.call(settings((4, 0)))
    server.send(call, b"first")
    client.send()
    assert server.take_events() == []
    assert call.pending
    client.send(settings((4, 65535)))
    assert server.take_events() == [Drained(call)]
    assert not call.pending


def test_paused_output_holds_messages_back() -> None:
    """While the transport is full, messages stay and control frames go."""
    server = new_server()
    server.receive(headers(1) + data(1, message(b"x"), end=True))
    call = server.take_events()[0].call  # type: ignore[union-attr]
    server.send(call, b"answer")
    assert all(frame.kind != DATA for frame in parse(server.take_output(with_data=False)))
    assert any(frame.kind == DATA for frame in parse(server.take_output()))


@pytest.mark.parametrize(
    ("window", "resets", "status"),
    [
        pytest.param(8, [(1, CANCEL)], None, id="half a message left"),
        pytest.param(0, [], "4", id="nothing left"),
    ],
)
def test_error_while_a_message_waits(
    client: Client, window: int, resets: list[tuple[int, int]], status: str | None
) -> None:
    """The error replaces an unsent message; a status after half of one would make it broken."""
    call = client.call(settings((4, window)))
    client.server.send(call, b"0123456789")
    client.send()
    client.server.finish(call, StatusCode.DEADLINE_EXCEEDED, "late")
    client.send()
    assert client.resets() == resets
    assert client.fields(1).get("grpc-status") == status


def test_requests_too_large_together() -> None:
    """Many incomplete requests cannot exceed the connection's limit."""
    server = new_server(Limits(max_receive=10_000, max_buffered=50_000))
    client = Client(server)
    half = message(bytes(10_000))[:9_000]
    for stream in range(1, 15, 2):
        client.send(headers(stream), data(stream, half))
        assert server.buffered <= 50_000
    assert client.fields(11)["grpc-status"] == str(int(StatusCode.RESOURCE_EXHAUSTED))
    assert server.open_calls == 5


def test_refusing_calls(client: Client) -> None:
    """A server that is about to stop answers open calls and turns new ones away."""
    server = client.server
    call = client.call()
    server.refuse_calls()
    client.send(headers(3), data(3, message(b"x"), end=True))
    server.send(call, b"answer")
    server.finish(call)
    client.send()
    assert server.take_events() == [CallEnded(call, None)]
    assert client.fields(3)["grpc-status"] == str(int(StatusCode.UNAVAILABLE))


def test_trailers_of_a_client() -> None:
    """Trailers of a request are allowed and mean nothing."""
    server = new_server()
    server.receive(
        headers(1) + data(1, message(b"x")) + headers(1, [(b"a", b"b")], END_HEADERS | END_STREAM)
    )
    assert isinstance(server.take_events()[-1], RequestReceived)
