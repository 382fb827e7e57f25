"""Our server: handlers that fail, clients that misbehave, start and stop. With our own channel."""

import asyncio
import selectors
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubedevices.errors import (
    NodeError,
    PluginError,
    RpcError,
    SocketInUse,
    StatusCode,
)
from kubedevices.wire import grpc_server
from kubedevices.wire.unix_grpc import (
    FileIdentity,
    GrpcChannel,
    GrpcServer,
    Methods,
    StreamMethod,
    UnaryMethod,
)
from tests.waiting import until
from tests.wire import frames
from tests.wire.by_hand import raw_client
from tests.wire.conftest import dialled

CALL = "/t.T/Call"
WATCH = "/t.T/Watch"


async def echo(payload: bytes) -> bytes:
    return payload


async def watch(_payload: bytes) -> AsyncIterator[bytes]:
    yield b"first"
    await asyncio.Event().wait()


def server_of(methods: Methods, **options: int) -> GrpcServer:
    return GrpcServer(methods, name="t", **options)


@pytest.fixture
async def server(short_dir: Path) -> AsyncIterator[GrpcServer]:
    """Give a server with one method of each kind."""
    server = server_of({CALL: UnaryMethod(echo), WATCH: StreamMethod(watch)})
    await server.start(short_dir / "s.sock")
    yield server
    await server.stop()


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
    """An error on purpose is its text; any other is named, and logged with a traceback."""

    async def fail(_payload: bytes) -> bytes:
        raise error

    async def fail_late(_payload: bytes) -> AsyncIterator[bytes]:
        yield b"first"
        raise error

    server = server_of({CALL: UnaryMethod(fail), WATCH: StreamMethod(fail_late)})
    await server.start(short_dir / "s.sock")
    async with dialled(short_dir) as channel:
        with pytest.raises(RpcError) as caught:
            await channel.unary(CALL, b"", timeout=5)
        assert (caught.value.code, caught.value.message) == (code, text)
        messages = channel.stream(WATCH)
        assert await anext(messages) == b"first"
        with pytest.raises(RpcError) as caught:
            await anext(messages)
        assert (caught.value.code, caught.value.message) == (code, text)
    await server.stop()
    logged = [record for record in caplog.records if record.exc_info]
    assert len(logged) == (2 if isinstance(error, ZeroDivisionError) else 0)


async def test_handler_that_returns_no_bytes(short_dir: Path) -> None:
    """A handler's mistake costs its call and nothing else."""

    async def wrong(_payload: bytes) -> bytes:
        return "text"  # type: ignore[return-value]

    server = server_of({CALL: UnaryMethod(wrong)})
    await server.start(short_dir / "s.sock")
    async with dialled(short_dir) as channel:
        for _ in range(2):
            with pytest.raises(RpcError, match="internal error: TypeError"):
                await channel.unary(CALL, b"", timeout=5)
    await server.stop()


async def test_tasks_have_names(server: GrpcServer, short_dir: Path) -> None:
    """Every handler runs in a task named after its server and method."""
    async with dialled(short_dir) as channel:
        messages = channel.stream(WATCH)
        await anext(messages)
        assert [task.get_name() for task in server.tasks] == [f"t: {WATCH}"]
        assert (server.open_streams(WATCH), server.open_streams(CALL)) == (1, 0)
        await messages.aclose()
        await until(lambda: not server.tasks, what="the task has ended")
    assert server.open_streams(WATCH) == 0


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
    await server.start(short_dir / "s.sock")
    async with dialled(short_dir) as channel:
        messages = channel.stream(WATCH)
        await anext(messages)
        await messages.aclose()
        await until(lambda: closed, what="the generator is closed")
    await server.stop()


async def test_iterator_that_is_no_generator(short_dir: Path) -> None:
    """Any asynchronous iterator will do."""

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
    await server.start(short_dir / "s.sock")
    async with dialled(short_dir) as channel:
        assert [message async for message in channel.stream(WATCH)] == [b"1", b"2", b"3"]
    await server.stop()


# ---------------------------------------------------------------- clients by hand


async def test_silent_client_is_dropped(
    server: GrpcServer, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who connects and never speaks HTTP/2 loses the connection; who does, keeps it."""
    monkeypatch.setattr(grpc_server, "HANDSHAKE_TIMEOUT", 0.05)
    async with raw_client(short_dir / "s.sock") as (reader, _), dialled(short_dir) as channel:
        async with asyncio.timeout(5):
            await reader.read()
        assert await channel.unary(CALL, b"x", timeout=5) == b"x"


async def test_request_that_never_comes(
    server: GrpcServer, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call whose message does not come ends with a deadline of ours."""
    monkeypatch.setattr(grpc_server, "REQUEST_TIMEOUT", 0.05)
    request = [
        (name, CALL.encode() if name == b":path" else value) for name, value in frames.REQUEST
    ]
    async with raw_client(short_dir / "s.sock") as (reader, writer):
        writer.write(frames.CLIENT_HELLO + frames.headers(1, request))
        await until(lambda: server.open_streams(CALL) == 1, what="the call is open")
        await until(lambda: server.open_streams(CALL) == 0, what="the call has ended")
        async with asyncio.timeout(5):
            await reader.readuntil(b"grpc-status\x014")


async def test_garbage_ends_only_its_own_connection(server: GrpcServer, short_dir: Path) -> None:
    """A client that talks nonsense is told so and dropped; others do not notice."""
    async with dialled(short_dir) as channel, raw_client(short_dir / "s.sock") as streams:
        reader, writer = streams
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(5):
            answer = await reader.read()
        assert b"does not speak HTTP/2" in answer
        assert await channel.unary(CALL, b"x", timeout=5) == b"x"


async def test_client_that_reads_nothing(short_dir: Path) -> None:
    """A client that asks on and on without reading the answers is dropped, not buffered."""
    server = server_of({})
    await server.start(short_dir / "s.sock")
    long_name = [(n, b"/" + b"x" * 3000 if n == b":path" else v) for n, v in frames.REQUEST]
    request = frames.block(long_name)
    async with raw_client(short_dir / "s.sock") as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(frames.CLIENT_HELLO)
        await until(lambda: "connections=1" in repr(server), what="the client is connected")
        stream = 1
        while "connections=1" in repr(server):
            writer.write(frames.raw(frames.HEADERS, frames.END_HEADERS, stream, request))
            stream += 2
            assert stream < 20_000
            await asyncio.sleep(0)
    await server.stop()


async def test_too_many_connections(short_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Above the limit a connection is closed at once, and the others go on."""
    server = server_of({CALL: UnaryMethod(echo)}, max_connections=2)
    await server.start(short_dir / "s.sock")
    async with dialled(short_dir) as first, dialled(short_dir):
        async with raw_client(short_dir / "s.sock") as (reader, _), asyncio.timeout(5):
            assert await _rest(reader) == b""
        assert await first.unary(CALL, b"x", timeout=5) == b"x"
    assert "more than 2 connections" in caplog.text
    await server.stop()


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


async def test_handlers_that_do_not_end_do_not_pile_up(short_dir: Path) -> None:
    """Cancelled handlers that go on count: clients cannot start ever more of them."""
    stubborn = asyncio.Event()
    running = 0

    async def ignore_cancellation(_payload: bytes) -> bytes:
        nonlocal running
        running += 1
        while not stubborn.is_set():
            try:
                await stubborn.wait()
            except asyncio.CancelledError:
                continue
        return b""

    server = server_of({CALL: UnaryMethod(ignore_cancellation)}, max_streams=3)
    await server.start(short_dir / "s.sock")
    async with dialled(short_dir) as channel:
        codes = set()
        for _ in range(12):
            with pytest.raises(RpcError) as caught:
                await channel.unary(CALL, b"", timeout=0.01)
            codes.add(caught.value.code)
        assert running <= 6
        assert codes == {StatusCode.DEADLINE_EXCEEDED, StatusCode.RESOURCE_EXHAUSTED}
        stubborn.set()
        await until(lambda: not server.tasks, what="they have ended")
    await server.stop()


# ---------------------------------------------------------------- start and stop


async def test_start_and_stop_again(server: GrpcServer, short_dir: Path) -> None:
    """A stopped server starts again, on the same path or another, with a new identity."""
    first = server.identity
    with pytest.raises(RuntimeError, match="already started"):
        await server.start(short_dir / "other.sock")
    await server.stop()
    await server.stop()
    for name in ("s.sock", "other.sock"):
        await server.start(short_dir / name)
        assert server.owns_socket()
        assert server.identity == FileIdentity.of(short_dir / name) != first
        async with await GrpcChannel.dial(short_dir / name) as channel:
            assert await channel.unary(CALL, b"x", timeout=5) == b"x"
        await server.stop()
        assert not (short_dir / name).exists()


async def test_rename(short_dir: Path) -> None:
    """A server may appear under its name by a rename and is reached there."""
    server = server_of({CALL: UnaryMethod(echo)})
    await server.start(short_dir / "s.sock", rename_from=short_dir / ".new")
    assert server.owns_socket()
    async with dialled(short_dir) as channel:
        assert await channel.unary(CALL, b"x", timeout=5) == b"x"
    await server.stop()
    assert list(short_dir.iterdir()) == []


async def test_second_server_on_the_path(server: GrpcServer, short_dir: Path) -> None:
    """A second server is refused and does not hurt the first."""
    second = server_of({})
    with pytest.raises(SocketInUse):
        await second.start(short_dir / "s.sock")
    await second.stop()
    assert server.owns_socket()
    async with dialled(short_dir) as channel:
        assert await channel.unary(CALL, b"x", timeout=5) == b"x"


async def test_stop_leaves_a_foreign_socket(server: GrpcServer, short_dir: Path) -> None:
    """A file that somebody put in the place of ours stays, and we know it is not ours."""
    path = short_dir / "s.sock"
    path.unlink()
    assert not server.owns_socket()
    successor = server_of({CALL: UnaryMethod(echo)})
    await successor.start(path)
    assert not server.owns_socket()
    await server.stop()
    assert successor.owns_socket()
    async with dialled(short_dir) as channel:
        assert await channel.unary(CALL, b"x", timeout=5) == b"x"
    await successor.stop()


async def test_handler_may_stop_the_server(short_dir: Path) -> None:
    """A call to stop the server is answered within its grace; stop() waits for others only."""
    server = server_of({})
    stopped = asyncio.Event()

    async def stop(_payload: bytes) -> bytes:
        asyncio.get_running_loop().call_soon(stopped.set)
        await server.stop(0)
        return b""

    server.methods = {CALL: UnaryMethod(stop)}
    await server.start(short_dir / "s.sock")
    async with dialled(short_dir) as channel:
        with pytest.raises(RpcError) as caught:
            await channel.unary(CALL, b"", timeout=5)
        assert caught.value.code is StatusCode.UNAVAILABLE
    await stopped.wait()
    await until(lambda: not server.tasks, what="the handler has ended")


async def test_stop_does_not_wait_for_stubborn_handlers(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler that ignores its cancellation is reported and left behind."""
    stubborn = asyncio.Event()

    async def ignore_cancellation(_payload: bytes) -> AsyncIterator[bytes]:
        yield b"first"
        while not stubborn.is_set():
            try:
                await stubborn.wait()
            except asyncio.CancelledError:
                continue

    server = server_of({WATCH: StreamMethod(ignore_cancellation)})
    await server.start(short_dir / "s.sock")
    loop = asyncio.get_running_loop()
    async with dialled(short_dir) as channel:
        messages = channel.stream(WATCH)
        await anext(messages)
        begun = loop.time()
        await server.stop()
        assert loop.time() - begun < 0.2
        with pytest.raises(RpcError, match="t is stopping"):
            await anext(messages)
    assert "does not end although cancelled" in caplog.text
    stubborn.set()
    await until(lambda: not server.tasks, what="the handler has ended")


async def test_connections_in_the_queue_end_with_stop(short_dir: Path) -> None:
    """Who has connected but was not accepted yet is not left hanging either."""
    server = server_of({CALL: UnaryMethod(echo)})
    await server.start(short_dir / "s.sock")
    with socket.socket(socket.AF_UNIX) as waiting:
        waiting.connect(str(short_dir / "s.sock"))  # the loop has no chance to accept it
        await server.stop()
        waiting.settimeout(5)
        try:
            while await asyncio.to_thread(waiting.recv, 1000):
                pass
        except ConnectionError:
            return


class CountingSelector(selectors.DefaultSelector):
    """Counts how often the loop went to sleep."""

    rounds = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.rounds += 1
        return super().select(timeout)


def test_idle_connection_sleeps(short_dir: Path) -> None:
    """With a client connected and a stream open, neither side wakes up without a reason."""
    selector = CountingSelector()

    async def idle() -> int:
        loop = asyncio.get_running_loop()
        server = server_of({CALL: UnaryMethod(echo), WATCH: StreamMethod(watch)})
        await server.start(short_dir / "s.sock")
        async with dialled(short_dir) as channel:
            await channel.unary(CALL, b"", timeout=0.2)
            messages = channel.stream(WATCH)
            await anext(messages)
            over = asyncio.Event()
            seen: list[int] = []
            for moment in (0.1, 0.5):
                loop.call_later(moment, lambda: seen.append(selector.rounds))
            loop.call_later(0.5, over.set)
            await over.wait()
            assert await channel.unary(CALL, b"still", timeout=5) == b"still"
            await messages.aclose()
        await server.stop()
        return seen[1] - seen[0]

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        assert runner.run(idle()) == 1
