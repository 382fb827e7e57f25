"""No bytes of a peer raise anything but `ProtocolError`, hang, or are kept beyond the limits."""

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubedevices.errors import ProtocolError, RpcError, StatusCode
from kubedevices.wire.client_connection import ClientConnection
from kubedevices.wire.grpc_connection import GrpcConnection
from kubedevices.wire.grpc_events import (
    CallEnded,
    CallRefused,
    MessageReceived,
    RequestReceived,
)
from kubedevices.wire.http2_frames import PREFACE
from kubedevices.wire.http2_limits import MAX_FRAME_SIZE, Limits
from kubedevices.wire.server_connection import ServerConnection
from tests.fuzz.inputs import changed, changes
from tests.wire import frames
from tests.wire.frames import METHOD, OK, REQUEST, RESPONSE, Clock

LIMITS = Limits(
    max_receive=2000,
    max_streams=4,
    stream_window=65535,
    connection_window=2**17,
    max_buffered=20_000,
)
KEPT = LIMITS.max_buffered + LIMITS.max_receive + MAX_FRAME_SIZE + Limits().max_header_block

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "100"))
"""Raise it to search on purpose; 20,000 take some minutes."""

often = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
more_often = settings(often, max_examples=2 * EXAMPLES)


class Driven:
    """A connection with an owner that handles its events."""

    def __init__(self, connection: GrpcConnection) -> None:
        self.connection = connection
        self.output = b""

    def feed(self, data: bytes) -> bool:
        """Receive, act on every event, send; False once the connection is over."""
        try:
            self.connection.receive(data)
        except ProtocolError:
            return False
        finally:
            self.act()
            assert self.connection.buffered <= KEPT
        return True

    def act(self) -> None:
        for event in self.connection.take_events():
            self.on_event(event)
        for _ in range(1000):
            output = self.connection.take_output()
            if not output:
                return
            self.output += output
        raise AssertionError("no end of output")

    def on_event(self, event: object) -> None:
        raise NotImplementedError


class DrivenServer(Driven):
    """Answers every second call with two messages, the others with an error."""

    def __init__(self) -> None:
        self.server = ServerConnection(clock=Clock(), limits=LIMITS)
        super().__init__(self.server)
        self.count = 0

    def on_event(self, event: object) -> None:
        if isinstance(event, RequestReceived):
            self.count += 1
            if self.count % 2:
                self.server.send(event.call, event.payload)
                self.act()
                self.server.send(event.call, event.payload)
                self.server.finish(event.call)
            else:
                self.server.finish(event.call, StatusCode.ABORTED, "nö")


class DrivenClient(Driven):
    """Has three calls open, takes most messages, and starts again what was refused."""

    def __init__(self) -> None:
        self.client = ClientConnection(clock=Clock(), limits=LIMITS)
        super().__init__(self.client)
        self.calls = [self.client.start_call(METHOD, b"x" * size) for size in (0, 10, 3000)]
        self.act()

    def on_event(self, event: object) -> None:
        if isinstance(event, MessageReceived):
            if event.call.messages and event.call is not self.calls[1]:
                self.client.take_message(event.call)
        elif isinstance(event, CallRefused):
            self.client.retry(event.call)
        elif isinstance(event, CallEnded):
            assert event.call.ended


ROLES: dict[str, Callable[[], Driven]] = {"server": DrivenServer, "client": DrivenClient}
HELLOS = {"server": frames.CLIENT_HELLO, "client": frames.SERVER_HELLO}
roles = pytest.mark.parametrize("role", ROLES)


def check_over(driven: Driven) -> None:
    """A connection that is over stays over, with no call left."""
    assert driven.connection.open_calls == 0
    with pytest.raises(ProtocolError):
        driven.connection.receive(b"more")
    if isinstance(driven, DrivenClient):
        with pytest.raises(RpcError):
            driven.client.start_call(METHOD, b"")


@roles
@given(chunks=st.lists(st.binary(max_size=200), max_size=10), greets=st.booleans())
@often
def test_any_bytes(role: str, chunks: list[bytes], greets: bool) -> None:
    """Arbitrary bytes, as the first words or after a proper hello."""
    driven = ROLES[role]()
    if greets:
        assert driven.feed(HELLOS[role])
    if not all(driven.feed(chunk) for chunk in chunks):
        check_over(driven)


header_lists = st.lists(
    st.one_of(
        st.sampled_from([*REQUEST, *RESPONSE, *OK, (b"grpc-timeout", b"1S")]),
        st.tuples(
            st.sampled_from(
                [b":path", b":status", b"grpc-status", b"grpc-message", b"content-length", b"te"]
            ),
            st.binary(max_size=12),
        ),
        st.tuples(st.binary(max_size=8), st.binary(max_size=8)),
    ),
    max_size=10,
)
header_blocks = st.one_of(
    st.sampled_from([frames.block(REQUEST), frames.block(RESPONSE), frames.block(OK)]),
    header_lists.map(frames.block),
    st.binary(max_size=40),
)
grpc_messages = st.builds(
    frames.message, st.binary(max_size=2100), st.sampled_from([0, 0, 0, 0, 1, 7])
)
bodies = st.one_of(
    grpc_messages,
    st.lists(grpc_messages, max_size=3).map(b"".join),
    st.binary(max_size=30),
    st.integers(0, 2**32 - 1).map(lambda number: number.to_bytes(4, "big")),
)
settings_bodies = st.lists(
    st.tuples(st.integers(0, 10), st.one_of(st.integers(0, 70_000), st.integers(0, 2**32 - 1))),
    max_size=4,
).map(lambda pairs: frames.settings(*pairs)[9:])
streams = st.one_of(st.integers(0, 9), st.integers(0, 2**31 - 1))
any_frame = st.one_of(
    st.builds(frames.raw, st.just(1), st.sampled_from([4, 5, 0, 0x2C]), streams, header_blocks),
    st.builds(frames.raw, st.just(9), st.sampled_from([4, 0]), streams, header_blocks),
    st.builds(frames.raw, st.just(0), st.sampled_from([0, 1, 8]), streams, bodies),
    st.builds(frames.raw, st.just(4), st.sampled_from([0, 1]), st.just(0), settings_bodies),
    st.builds(frames.raw, st.sampled_from([3, 8]), st.just(0), streams, bodies),
    st.builds(frames.raw, st.just(6), st.integers(0, 1), st.just(0), st.binary(max_size=9)),
    st.builds(frames.raw, st.just(7), st.just(0), st.just(0), st.binary(max_size=20)),
    st.builds(frames.raw, st.integers(0, 12), st.integers(0, 255), streams, bodies),
)


@roles
@given(sent=st.lists(any_frame, max_size=25))
@more_often
def test_any_frames(role: str, sent: list[bytes]) -> None:
    """Well-formed frames in any order, with contents from sensible to absurd."""
    driven = ROLES[role]()
    assert driven.feed(HELLOS[role])
    if not all(driven.feed(each) for each in sent):
        check_over(driven)


def conversation(role: str) -> bytes:
    """Return what the other side says in a lively and proper conversation."""
    if role == "server":
        client = DrivenClient()
        client.feed(frames.SERVER_HELLO + frames.settings((3, 3)))
        client.feed(frames.headers(1, RESPONSE) + frames.headers(1, OK, 5))
        client.client.ping()
        client.client.cancel(client.calls[1])
        client.client.start_call(METHOD, b"again" * 100)
        client.act()
        return client.output
    server = DrivenServer()
    server.feed(frames.CLIENT_HELLO)
    for stream in (1, 3, 5):
        body = frames.message(bytes(600))
        server.feed(frames.headers(stream) + frames.data(stream, body, end=True))
    server.server.ping()
    server.server.go_away()
    server.act()
    return server.output


CONVERSATIONS = {role: conversation(role) for role in ROLES}


@roles
@given(how=changes, cuts=st.lists(st.integers(1, 400), max_size=8))
@more_often
def test_damaged_conversations(
    role: str, how: list[tuple[str, int, int, bytes]], cuts: list[int]
) -> None:
    """A proper conversation with bytes changed, lost, doubled or added, cut anywhere."""
    data = changed(CONVERSATIONS[role], how, len(PREFACE) if role == "server" else 0)
    driven = ROLES[role]()
    for cut in [*cuts, len(data)]:
        chunk, data = data[:cut], data[cut:]
        if chunk and not driven.feed(chunk):
            check_over(driven)
            return


def test_undamaged_conversations_are_valid() -> None:
    """They are accepted; otherwise the test above would test nothing."""
    for role, data in CONVERSATIONS.items():
        assert ROLES[role]().feed(data), role
