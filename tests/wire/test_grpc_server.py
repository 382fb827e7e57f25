"""Our server: handlers that fail, clients that misbehave, start and stop. With our own channel."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubedevices.errors import (
    NodeError,
    PluginError,
    RpcError,
    StatusCode,
)
from kubedevices.wire import grpc_server, server_link
from kubedevices.wire.unix_grpc import (
    GrpcServer,
    StreamMethod,
    UnaryMethod,
)
from tests.waiting import until
from tests.wire import frames
from tests.wire.by_hand import raw_client
from tests.wire.conftest import dialled, running
from tests.wire.echo_server import CALL, WATCH, echo, server_of, watch


def open_calls(server: GrpcServer, method: str) -> int:
    return sum(call.method == method for link in server._links for call in link.calls)


# ---------------------------------------------------------------- handlers


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (RpcError(StatusCode.NOT_FOUND, "no"), StatusCode.NOT_FOUND, "no"),
        (RpcError(StatusCode.OK, "odd"), StatusCode.UNKNOWN, "odd"),
        (NodeError("kubelet says"), StatusCode.UNKNOWN, "kubelet says"),
        (PluginError("plugin says"), StatusCode.UNKNOWN, "plugin says"),
        (ZeroDivisionError("by 0"), StatusCode.UNKNOWN, "internal error: ZeroDivisionError: by 0"),
        (asyncio.CancelledError(), StatusCode.CANCELLED, "the call was cancelled by the server"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_handler_that_raises(
    short_dir: Path,
    caplog: pytest.LogCaptureFixture,
    error: BaseException,
    code: StatusCode,
    text: str,
) -> None:
    """Our own errors give their text; other exceptions give their type and are logged."""

    async def fail(_payload: bytes) -> bytes:
        raise error

    async def fail_late(_payload: bytes) -> AsyncIterator[bytes]:
        yield b"first"
        raise error

    server = server_of({CALL: UnaryMethod(fail), WATCH: StreamMethod(fail_late)})
    async with running(server, short_dir), dialled(short_dir) as channel:
        with pytest.raises(RpcError) as caught:
            await channel.unary(CALL, b"", timeout=5)
        assert (caught.value.code, caught.value.message) == (code, text)
        messages = channel.stream(WATCH)
        assert await anext(messages) == b"first"
        with pytest.raises(RpcError) as caught:
            await anext(messages)
        assert (caught.value.code, caught.value.message) == (code, text)
    logged = [record for record in caplog.records if record.exc_info]
    assert len(logged) == (2 if isinstance(error, ZeroDivisionError) else 0)


async def test_handler_that_answers_at_once(short_dir: Path) -> None:
    """It needs no task, and the answers to all calls that came together are one write."""
    tasks = set[object]()

    def answer(payload: bytes) -> bytes:
        tasks.update(server.tasks)
        if payload == b"no":
            raise RpcError(StatusCode.NOT_FOUND, "no")
        return payload

    server = server_of({CALL: UnaryMethod(answer)})
    calls = b"".join(
        frames.headers(stream, frames.asking(CALL))
        + frames.data(stream, frames.message(payload), end=True)
        for stream, payload in ((1, b"first"), (3, b"no"), (5, b"third"))
    )
    async with running(server, short_dir), raw_client(short_dir / "s.sock") as (reader, writer):
        writer.write(frames.CLIENT_HELLO)
        greeting = b""
        while not greeting.endswith(frames.raw(frames.SETTINGS, frames.ACK)):
            greeting += await reader.read(65536)
        writer.write(calls)
        sent = [*frames.parse(await reader.read(65536))]
    assert tasks == set()
    last = frames.END_HEADERS | frames.END_STREAM
    assert [each.stream for each in sent if each.kind == frames.HEADERS and each.flags == last] == [
        3, 1, 5
    ]  # fmt: skip
    messages = [each.payload[5:] for each in sent if each.kind == frames.DATA]
    assert messages == [b"first", b"third"]


async def test_a_handler_that_returns_a_wrong_type(short_dir: Path) -> None:
    """An error of a handler ends only its own call."""

    async def wrong(_payload: bytes) -> bytes:
        return "text"  # type: ignore[return-value]

    server = server_of({CALL: UnaryMethod(wrong)})
    async with running(server, short_dir), dialled(short_dir) as channel:
        for _ in range(2):
            with pytest.raises(RpcError, match="internal error: TypeError"):
                await channel.unary(CALL, b"", timeout=5)


async def test_tasks_have_names(server: GrpcServer, short_dir: Path) -> None:
    """Every handler runs in a task named after its server and method."""
    async with dialled(short_dir) as channel:
        messages = channel.stream(WATCH)
        await anext(messages)
        assert [task.get_name() for task in server.tasks] == [f"t: {WATCH}"]
        assert (open_calls(server, WATCH), open_calls(server, CALL)) == (1, 0)
        await messages.aclose()
        await until(lambda: not server.tasks, what="the task has ended")
    assert open_calls(server, WATCH) == 0


async def test_stream_is_closed_when_its_client_leaves(short_dir: Path) -> None:
    """A generator's `finally` runs in time, also where it waits for its client to read."""
    closed = []

    async def flood(_payload: bytes) -> AsyncIterator[bytes]:
        try:
            while True:
                yield bytes(100_000)
        finally:
            closed.append(True)

    server = server_of({WATCH: StreamMethod(flood)})
    async with running(server, short_dir), dialled(short_dir) as channel:
        messages = channel.stream(WATCH)
        await anext(messages)
        await messages.aclose()
        await until(lambda: closed, what="the generator is closed")


async def test_an_iterator_that_is_not_a_generator(short_dir: Path) -> None:
    """Any asynchronous iterator is enough."""

    class Three:
        count = 0

        def __aiter__(self) -> "Three":
            return self

        async def __anext__(self) -> bytes:
            self.count += 1
            if self.count > 3:
                raise StopAsyncIteration
            return b"%d" % self.count

    server = server_of({WATCH: StreamMethod(lambda _payload: Three())})
    async with running(server, short_dir), dialled(short_dir) as channel:
        assert [message async for message in channel.stream(WATCH)] == [b"1", b"2", b"3"]


# ---------------------------------------------------------------- clients by hand


async def test_silent_client_is_dropped(
    server: GrpcServer, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that never sends SETTINGS loses its connection; other clients keep theirs."""
    async with dialled(short_dir) as channel:
        monkeypatch.setattr(server_link, "HANDSHAKE_TIMEOUT", 0.05)
        async with raw_client(short_dir / "s.sock") as (reader, _), asyncio.timeout(5):
            await reader.read()
        assert await channel.unary(CALL, b"x", timeout=5) == b"x"


async def test_connection_outlives_the_handshake_timeout(
    server: GrpcServer, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that has sent SETTINGS may be silent."""
    monkeypatch.setattr(server_link, "HANDSHAKE_TIMEOUT", 0.3)
    async with dialled(short_dir) as channel:
        with pytest.raises(RpcError, match="did not answer within"):
            await channel.unary(WATCH, b"", timeout=0.5)  # which takes its time
        assert await channel.unary(CALL, b"x", timeout=5) == b"x"


async def test_request_that_never_comes(
    server: GrpcServer, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call whose message does not come ends with a deadline of ours."""
    monkeypatch.setattr(server_link, "REQUEST_TIMEOUT", 0.05)
    async with raw_client(short_dir / "s.sock") as (reader, writer):
        writer.write(frames.CLIENT_HELLO + frames.headers(1, frames.asking(CALL)))
        async with asyncio.timeout(5):
            await reader.readuntil(b"grpc-status\x014")
        assert open_calls(server, CALL) == 0


async def test_the_server_enforces_the_deadline(server: GrpcServer, short_dir: Path) -> None:
    """A call ends at its timeout, even if the client sends nothing more."""
    timed = frames.headers(1, [*frames.asking(WATCH), (b"grpc-timeout", b"50m")])
    async with raw_client(short_dir / "s.sock") as (reader, writer):
        writer.write(frames.CLIENT_HELLO + timed + frames.data(1, frames.message(b""), end=True))
        async with asyncio.timeout(5):
            await reader.readuntil(b"grpc-status\x014")
        await until(lambda: not server.tasks, what="the handler has ended")


async def test_stream_outlives_the_request_timeout(
    server: GrpcServer, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its request has come, a call without a timeout has no limit."""
    monkeypatch.setattr(server_link, "REQUEST_TIMEOUT", 0.05)
    async with dialled(short_dir) as channel:
        messages = channel.stream(WATCH)
        await anext(messages)
        with pytest.raises(RpcError, match="did not answer within"):
            await channel.unary(WATCH, b"", timeout=0.2)  # which takes its time
        await until(lambda: len(server.tasks) == 1, what="only that one has ended")
        assert open_calls(server, WATCH) == 1
        assert channel._newest_link.connection.open_calls == 1
        await messages.aclose()


async def test_garbage_ends_only_its_own_connection(server: GrpcServer, short_dir: Path) -> None:
    """A client that breaks the protocol gets GOAWAY; other connections go on."""
    async with dialled(short_dir) as channel, raw_client(short_dir / "s.sock") as streams:
        reader, writer = streams
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(5):
            answer = await reader.read()
        assert b"does not speak HTTP/2" in answer
        assert await channel.unary(CALL, b"x", timeout=5) == b"x"


async def test_client_that_reads_nothing(short_dir: Path) -> None:
    """A client that sends requests and reads no answers loses its connection."""
    server = server_of({})
    request = frames.block(frames.asking("/" + "x" * 3000))
    async with running(server, short_dir), raw_client(short_dir / "s.sock") as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(frames.CLIENT_HELLO)
        await until(lambda: "connections=1" in repr(server), what="the client is connected")
        stream = 1
        while "connections=1" in repr(server):
            writer.write(frames.raw(frames.HEADERS, frames.END_HEADERS, stream, request))
            stream += 2
            assert stream < 20_000
            await asyncio.sleep(0)


async def test_too_many_connections(short_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Above the limit a connection is closed at once, if all others have calls, and these go on."""
    gate = asyncio.Event()

    async def wait(payload: bytes) -> bytes:
        await gate.wait()
        return payload

    server = server_of({CALL: UnaryMethod(wait)}, max_connections=2)
    await server.start(short_dir / "s.sock")
    async with dialled(short_dir) as first, dialled(short_dir) as second:
        calls = [
            asyncio.ensure_future(each.unary(CALL, b"x", timeout=30)) for each in (first, second)
        ]
        await until(lambda: len(server.tasks) == 2)
        for _ in range(3):
            async with raw_client(short_dir / "s.sock") as (reader, _), asyncio.timeout(5):
                assert await _rest(reader) == b""
        gate.set()
        assert await asyncio.gather(*calls) == [b"x", b"x"]
    assert caplog.messages == ["t: 2 connections, refusing a new one"]  # once a minute
    await server.stop()


@pytest.mark.parametrize("said", ["nothing", "settings", "half a request"])
async def test_the_longest_idle_connection_makes_room(
    short_dir: Path, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection that is idle longest is closed; open calls and later clients are served."""
    server = server_of({CALL: UnaryMethod(echo), WATCH: StreamMethod(watch)}, max_connections=8)
    await server.start(short_dir / "s.sock")
    words = {
        "nothing": b"",
        "settings": frames.CLIENT_HELLO,
        "half a request": frames.CLIENT_HELLO
        + frames.raw(frames.HEADERS, frames.END_HEADERS, 1, frames.block(frames.REQUEST)),
    }
    async with dialled(short_dir) as streaming, contextlib.AsyncExitStack() as strangers:
        stream = streaming.stream(WATCH)
        assert await anext(stream)
        for _ in range(20):
            _, writer = await strangers.enter_async_context(raw_client(short_dir / "s.sock"))
            writer.write(words[said])
        for _ in range(20):
            async with dialled(short_dir) as good:
                assert await good.unary(CALL, b"x", timeout=5) == b"x"
        assert open_calls(server, WATCH) == 1
        await stream.aclose()
    assert caplog.messages == ["t: 8 connections, closing the oldest of the busiest peer"]
    await server.stop()


async def test_a_connection_without_calls_ends_after_a_while(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection with an open stream stays."""
    monkeypatch.setattr(grpc_server, "IDLE_TIMEOUT", 0.1)
    server = server_of({CALL: UnaryMethod(echo), WATCH: StreamMethod(watch)})
    async with (
        running(server, short_dir),
        dialled(short_dir) as idle,
        dialled(short_dir) as streaming,
    ):
        stream = streaming.stream(WATCH)
        assert await anext(stream)
        assert await idle.unary(CALL, b"x", timeout=5) == b"x"
        async with asyncio.timeout(10):
            await idle.closed.wait()
        assert not streaming.closed.is_set()
        await stream.aclose()
        async with asyncio.timeout(10):
            await streaming.closed.wait()
    assert server._sweep is None


async def _rest(reader: asyncio.StreamReader) -> bytes:
    """Return what comes after the server's SETTINGS; a reset is an end too."""
    try:
        output = await reader.read()
    except ConnectionError:
        return b""
    return b"".join(
        frame.payload
        for frame in frames.parse(output)
        if frame.kind not in (frames.SETTINGS, frames.WINDOW_UPDATE)
    )


async def test_handlers_that_do_not_end_are_limited(short_dir: Path) -> None:
    """Cancelled handlers that go on count, so clients cannot start more and more of them."""
    stubborn = asyncio.Event()
    begun = 0

    async def ignore_cancellation(_payload: bytes) -> bytes:
        nonlocal begun
        begun += 1
        while not stubborn.is_set():
            try:
                await stubborn.wait()
            except asyncio.CancelledError:
                continue
        return b""

    server = server_of({CALL: UnaryMethod(ignore_cancellation)}, max_streams=3)
    async with running(server, short_dir), dialled(short_dir) as channel:
        async with asyncio.timeout(10):
            code = StatusCode.DEADLINE_EXCEEDED
            while code is StatusCode.DEADLINE_EXCEEDED:
                with pytest.raises(RpcError) as caught:
                    await channel.unary(CALL, b"", timeout=0.05)
                code = caught.value.code
        assert code is StatusCode.RESOURCE_EXHAUSTED
        assert begun == 6
        stubborn.set()
        await until(lambda: not server.tasks, what="they have ended")
