"""Our server's start and stop, and its rest in between. With our own channel."""

import asyncio
import contextlib
import resource
import selectors
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubedevices.errors import RpcError, SocketInUse, StatusCode
from kubedevices.wire.grpc_server import STOP_TIME
from kubedevices.wire.unix_grpc import (
    FileIdentity,
    GrpcChannel,
    GrpcServer,
    StreamMethod,
    UnaryMethod,
)
from tests.waiting import until
from tests.wire.conftest import dialled
from tests.wire.echo_server import CALL, WATCH, echo, server_of, watch


async def test_start_and_stop_again(server: GrpcServer, short_dir: Path) -> None:
    """A stopped server starts again, on the same path or another, with a new identity."""
    first = FileIdentity.of(short_dir / "s.sock")
    with pytest.raises(RuntimeError, match="already started"):
        await server.start(short_dir / "other.sock")
    assert "s.sock" in repr(server)
    await server.stop()
    await server.stop()
    assert "stopped" in repr(server)
    assert server.identity is None
    for name in ("s.sock", "other.sock"):
        await server.start(short_dir / name)
        assert server.owns_socket()
        assert server.identity == FileIdentity.of(short_dir / name) != first
        async with await GrpcChannel.dial(short_dir / name) as channel:
            assert await channel.unary(CALL, b"x", timeout=5) == b"x"
        await server.stop()
        assert not (short_dir / name).exists()


async def test_a_stopped_server_holds_no_descriptor(server: GrpcServer, short_dir: Path) -> None:
    """A plugin stops a server with each kubelet, and garbage is collected much later."""
    async with dialled(short_dir) as channel:
        await channel.unary(CALL, b"x", timeout=5)
    await server.stop()
    assert not [place for place in open_files() if place.startswith(str(short_dir))]


def open_files() -> list[str]:
    return [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]


async def test_rename(short_dir: Path) -> None:
    """A server may appear under its name by a rename and is reached there."""
    server = server_of({CALL: UnaryMethod(echo)})
    await server.start(short_dir / "s.sock", by_rename=True)
    assert server.owns_socket()
    async with dialled(short_dir) as channel:
        assert await channel.unary(CALL, b"x", timeout=5) == b"x"
    await server.stop()
    assert list(short_dir.iterdir()) == []


async def test_stop_waits_for_connections(server: GrpcServer, short_dir: Path) -> None:
    """When stop() returns, connections have ended, also those without a call."""
    async with dialled(short_dir) as channel:
        await channel.ping(timeout=5)
        assert "connections=1" in repr(server)
        await server.stop()
        assert "connections=0" in repr(server)
        async with asyncio.timeout(5):
            await channel.closed.wait()


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
    """A file of another process in the place of ours stays, and `owns_socket` is False."""
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


async def test_stop_does_not_wait_for_handlers_that_ignore_cancellation(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`stop` logs a handler that ignores its cancellation, and returns."""
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
        assert loop.time() - begun < 10
        with pytest.raises(RpcError, match="t is stopping"):
            await anext(messages)
    assert "does not end although cancelled" in caplog.text
    stubborn.set()
    await until(lambda: not server.tasks, what="the handler has ended")


async def test_a_pause_of_the_machine_is_not_blamed_on_handlers(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If the machine pauses during `stop`, handlers still get a few steps to end."""

    async def end_in_steps(_payload: bytes) -> AsyncIterator[bytes]:
        try:
            yield b"first"
            await asyncio.Event().wait()
        finally:
            time.sleep(2 * STOP_TIME)  # noqa: ASYNC251  the machine
            for _ in range(6):
                await asyncio.sleep(0)

    server = server_of({WATCH: StreamMethod(end_in_steps)})
    await server.start(short_dir / "s.sock")
    async with dialled(short_dir) as channel:
        messages = channel.stream(WATCH)
        await anext(messages)
        await server.stop()
        with pytest.raises(RpcError):
            await anext(messages)
    assert not server.tasks
    assert caplog.text == ""


async def test_connections_in_the_queue_end_with_stop(short_dir: Path) -> None:
    """A client that was not accepted yet gets the end of its connection too."""
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
        assert runner.run(idle()) <= 1


@pytest.mark.parametrize("steps", range(8))
async def test_a_connection_that_comes_as_the_server_stops_is_ended(
    short_dir: Path, steps: int
) -> None:
    """At each step of the set-up: no client waits for an answer."""
    server = GrpcServer({}, name="t")
    await server.start(short_dir / "s.sock")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(short_dir / "s.sock"))
        client.setblocking(False)
        for _ in range(steps):
            await asyncio.sleep(0)
        await server.stop()
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionResetError):
            async with asyncio.timeout(5):
                while await loop.sock_recv(client, 1000):
                    pass  # what it had said before


async def test_a_server_without_free_descriptors_accepts_again_later(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Accepting again at once would use a whole CPU."""
    monkeypatch.setattr("kubedevices.wire.acceptor.PAUSE", 0.05)
    server = server_of({CALL: UnaryMethod(echo)})
    await server.start(short_dir / "s.sock")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    dialling = asyncio.create_task(GrpcChannel.dial(short_dir / "s.sock", timeout=10))
    await asyncio.sleep(0)  # it has its socket, and waits to be accepted
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        await until(lambda: "cannot accept" in caplog.text, what="a word about it")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    async with await dialling as channel:
        assert await channel.unary(CALL, b"x", timeout=5) == b"x"
    await server.stop()
