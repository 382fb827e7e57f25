"""Nobody reads the output of a process ("unread"), or its reader has ended: the process goes on."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from kubedevices.errors import CannotAsk
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.services.control_client import ControlClient
from kubedevices.values.allocation import AllocateRequest, ContainerAllocateRequest
from tests.fake_kubelet import FakeKubelet
from tests.fake_plugin import RESOURCE, FakePlugin, healthy
from tests.node_process import COMMAND
from tests.plugin_process import ROOT
from tests.widgets import RESOURCE as WIDGET

DEADLINE = 100


class FullPipe:
    """A full pipe; `read_all` empties it and returns the bytes after the filling."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        os.set_blocking(self.writing, False)
        self._filled = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                self._filled += os.write(self.writing, b"." * 4096)
        os.set_blocking(self.writing, True)

    def read_all(self) -> bytes:
        os.close(self.writing)  # ours: the process's own keeps it open
        with os.fdopen(self._reading, "rb") as reading:
            return reading.read()[self._filled :]

    def leave(self) -> None:
        os.close(self._reading)


@pytest.fixture
def pipe() -> Iterator[FullPipe]:
    made = FullPipe()
    yield made
    for descriptor in (made._reading, made.writing):
        with contextlib.suppress(OSError):
            os.close(descriptor)


@contextlib.asynccontextmanager
async def unread(pipe: FullPipe, *command: object) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a command with the pipe as stdout and stderr; kill it at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command), cwd=ROOT, stdout=pipe.writing, stderr=pipe.writing
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def connect(directory: Path) -> ControlClient:
    """Connect repeatedly until the node listens: nobody reads its ready message."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                return await ControlClient.connect(directory / "p", directory / "s")
            except CannotAsk:
                await asyncio.sleep(0.01)


def pod_number(number: int) -> Pod:
    return Pod(f"p{number}", uid=f"u{number}", containers=(Container("c", {RESOURCE: 1}),))


async def allocatable(node: ControlClient, resource: str, number: int) -> None:
    async with asyncio.timeout(DEADLINE), contextlib.aclosing(node.watch_devices(resource)) as all_:
        async for document in all_:
            if [each["allocatable"] for each in document["resources"]] == [number]:
                return


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


def dropped(port: int) -> int:
    with urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        text = page.read().decode()
    name = 'kubedevices_dropped_lines_total{stream="stdout"} '
    (line,) = [line for line in text.splitlines() if line.startswith(name)]
    return int(float(line.removeprefix(name)))


@pytest.mark.parametrize(("reader", "pods"), [("does not read", 1000), ("left", 20)])
async def test_an_unread_node_admits_a_thousand_pods(
    short_dir: Path, pipe: FullPipe, reader: str, pods: int
) -> None:
    """Log lines without room are dropped and counted."""
    port, directory = free_port(), short_dir / "p"
    places = ("--socket-dir", directory, "--state-dir", short_dir / "s", "--listen", port)
    # The line of these is more than what waits for a reader.
    long = [f"{number}-{'d' * 15_000}" for number in range(350)]
    async with (
        unread(pipe, *COMMAND, "--log-level", "debug", *places) as process,
        await connect(short_dir) as node,
        FakePlugin(directory, devices=healthy(*map(str, range(pods)))) as plugin,
        FakePlugin(
            directory, "example.com/long", socket_name="long.sock", devices=healthy(*long)
        ) as other,
    ):
        if reader == "left":
            pipe.leave()
        await plugin.register()
        await allocatable(node, RESOURCE, pods)
        await asyncio.gather(*(node.allocate(pod_number(number)) for number in range(pods)))
        await other.register()
        await allocatable(node, other.resource, len(long))
        lost = await asyncio.to_thread(dropped, port)
        assert lost > 0
        reading = asyncio.to_thread(pipe.read_all) if reader != "left" else asyncio.sleep(0, b"")
        told = asyncio.create_task(reading)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), DEADLINE) == 0
        lines = [json.loads(line) for line in (await told).splitlines() if line.startswith(b"{")]
    assert not (directory / "kubelet.sock").exists()
    if reader != "left":
        missing = sum(line["events"] for line in lines if line["event"] == "missed")
        assert missing >= lost
        assert lines[-1]["event"] == "stopped"


async def test_an_unread_plugin_answers_and_stops(
    socket_dir: Path, devices: Path, pipe: FullPipe
) -> None:
    """Neither its log lines nor the author's prints block the kubelet's calls or the exit."""
    program = (sys.executable, "-m", "tests.stories.widget_plugin", socket_dir, devices, "talk")
    async with FakeKubelet(socket_dir) as kubelet, unread(pipe, *program) as process:
        connected = await kubelet.wait_for(WIDGET, 1)
        request = AllocateRequest((ContainerAllocateRequest(("w1",)),))
        for _ in range(100):
            await connected.client.allocate(request, timeout=DEADLINE)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), DEADLINE) == 0
    assert not [*socket_dir.glob("*widget*")]


async def test_an_unread_plugin_that_fails_ends(
    socket_dir: Path, devices: Path, pipe: FullPipe
) -> None:
    """The last log line must not block the exit: a service manager waits for it."""
    program = (sys.executable, "-m", "tests.stories.widget_plugin", socket_dir, devices, "domain")
    async with unread(pipe, *program) as process:
        assert await asyncio.wait_for(process.wait(), DEADLINE) == 2


async def test_an_unread_verb_that_fails_ends(short_dir: Path, pipe: FullPipe) -> None:
    """The same on the command line."""
    command = (sys.executable, "-m", "kubedevices.cli", "simulate", "--socket-dir", short_dir)
    async with unread(pipe, *command, "--listen", "203.0.113.1:9") as process:
        assert await asyncio.wait_for(process.wait(), DEADLINE) == 3
