"""What a proxy in front of a plugin costs: an Allocate, a list, memory. Beside the plugin alone.

The same plugin process is asked on its own socket and through the proxy, taking turns.
"""

import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks import measure
from benchmarks.plugin_process import DEADLINE, ROOT, Kubelet
from kubedevices.allocation import AllocateRequest, ContainerAllocateRequest
from kubedevices.kubelet_api.clients import DevicePluginClient
from kubedevices.wire.unix_grpc import GrpcChannel

FEW, MANY = 8, 10_000


class Size(NamedTuple):
    """How much is measured. Of so many `rounds` the one counts that other work disturbed least."""

    rounds: int
    calls: int
    lists: int
    settle: float


FULL = Size(20, 100, 20, 2)
QUICK = Size(1, 3, 2, 0)


@dataclass
class Pair:
    """A plugin and a proxy in front of it, each with a client."""

    plugin: asyncio.subprocess.Process
    proxy: asyncio.subprocess.Process
    alone: DevicePluginClient
    proxied: DevicePluginClient

    def flip(self) -> None:
        """Let one device change its health."""
        assert self.plugin.stdin
        self.plugin.stdin.write(b"\n")


@contextlib.asynccontextmanager
async def pair(devices: int) -> AsyncIterator[Pair]:
    """Start proxy and plugin, wait until the proxy has registered, end both."""
    directory = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    inside, outside = directory / "in", directory / "out"
    outside.mkdir()
    kubelet = Kubelet(outside)
    await kubelet.start()
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        stack.push_async_callback(kubelet.stop)
        proxy = await _start(
            stack,
            *("-c", "from kubedevices.cli import main; main()", "proxy", "--log-level", "warning"),
            *("--plugin-dir", str(inside), "--socket-dir", str(outside)),
            *("--state-dir", str(directory / "state")),
        )
        plugin = await _start(stack, "-m", "benchmarks.our_plugin", str(inside), str(devices))
        await kubelet.next_registration()
        clients = [
            DevicePluginClient(await stack.enter_async_context(await GrpcChannel.dial(_socket(at))))
            for at in (inside, outside)
        ]
        yield Pair(plugin, proxy, *clients)


async def _start(stack: contextlib.AsyncExitStack, *words: str) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *words,
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{ROOT}/src"},
    )

    async def end() -> None:
        if process.returncode is None:
            process.kill()
        await process.wait()

    stack.push_async_callback(end)
    return process


def _socket(directory: Path) -> Path:
    (path,) = (each for each in directory.glob("*.sock") if each.name != "kubelet.sock")
    return path


async def milliseconds(work: Awaitable[object]) -> float:
    """Return how long `work` takes."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(DEADLINE):
        await work
    return (loop.time() - began) * 1000


async def calls(size: Size) -> list[list[str]]:
    """Return the rows for calls and memory."""
    request = AllocateRequest((ContainerAllocateRequest(("widget-0",)),))
    asked: list[Callable[[Pair], Awaitable[object]]] = [
        lambda at: at.alone.allocate(request, timeout=DEADLINE),
        lambda at: at.proxied.allocate(request, timeout=DEADLINE),
        lambda at: at.alone.get_device_plugin_options(timeout=DEADLINE),
    ]
    medians: list[list[float]] = []
    async with pair(FEW) as running:
        for _ in range(size.rounds):
            took: list[list[float]] = [[] for _ in asked]
            for _ in range(size.calls):
                for ask, times in zip(asked, took, strict=True):
                    times.append(await milliseconds(ask(running)))
            medians.append([*map(measure.median, took)])
        await asyncio.sleep(size.settle)
        plugin, proxy = (
            measure.memory(each.pid)["pss"] for each in (running.plugin, running.proxy)
        )
    alone, proxied, trip = min(medians, key=sum)
    return [
        ["Allocate, p50", f"{alone:.2f} ms", f"{proxied:.2f} ms", f"≤ {alone + trip + 0.1:.2f} ms"],
        ["memory (PSS)", f"{plugin:.1f} MB", f"{proxy:.1f} MB", f"≤ {plugin + 3:.1f} MB"],
    ]


async def lists(size: Size) -> list[str]:
    """Return the row for a long list, of which one device has changed."""
    took: list[list[float]] = [[], []]
    async with pair(MANY) as running:
        for number in range(2 * size.lists):
            # One stream at a time: two would share the processor.
            way = number % 2
            client = (running.alone, running.proxied)[way]
            async with contextlib.aclosing(client.list_messages()) as stream:
                await anext(stream)
                running.flip()
                took[way].append(await milliseconds(anext(stream)))
            await asyncio.sleep(size.settle / 4)
    alone, proxied = map(measure.median, took)
    target = f"≤ {1.5 * alone:.1f} ms"
    return [f"a list of {MANY:,} devices, p50", f"{alone:.1f} ms", f"{proxied:.1f} ms", target]


async def main(*, quick: bool) -> None:
    """Print the table."""
    size = QUICK if quick else FULL
    rows = [*await calls(size), await lists(size)]
    measure.table(
        "a plugin alone, and behind the proxy",
        ("", "alone", "behind the proxy", "target"),
        rows,
    )
