"""The cost of `kubedevices proxy` in front of a plugin: time of Allocate and of a list, memory.

The benchmark calls the same plugin process on its own socket and through the proxy, in turns.
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
from benchmarks.measure import milliseconds
from benchmarks.plugin_process import DEADLINE, ROOT, Kubelet, socket_of_plugin
from kubedevices.kubelet_api.clients import DevicePluginClient
from kubedevices.values.allocation import AllocateRequest, ContainerAllocateRequest
from kubedevices.wire.unix_grpc import GrpcChannel

FEW, MANY = 8, 10_000


class Size(NamedTuple):
    """How much is measured; `settle` in seconds.

    Of the `rounds` only the fastest counts: other programs disturbed this round least.
    """

    rounds: int
    calls: int
    lists: int
    settle: float


FULL = Size(20, 100, 20, 2)
QUICK = Size(1, 3, 2, 0)


@dataclass
class PluginAndProxy:
    """A plugin, a proxy in front of the plugin, and a client of each."""

    plugin: asyncio.subprocess.Process
    proxy: asyncio.subprocess.Process
    alone: DevicePluginClient
    proxied: DevicePluginClient

    def flip(self) -> None:
        """Make the plugin change the health of one device."""
        assert self.plugin.stdin
        self.plugin.stdin.write(b"\n")


@contextlib.asynccontextmanager
async def plugin_and_proxy(devices: int) -> AsyncIterator[PluginAndProxy]:
    """Run a proxy and a plugin; the context begins when the proxy has registered."""
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
            DevicePluginClient(
                await stack.enter_async_context(await GrpcChannel.dial(socket_of_plugin(directory)))
            )
            for directory in (inside, outside)
        ]
        yield PluginAndProxy(plugin, proxy, *clients)


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


async def calls(size: Size) -> list[list[str]]:
    """Return the rows for calls and memory."""
    request = AllocateRequest((ContainerAllocateRequest(("widget-0",)),))
    kinds: list[Callable[[PluginAndProxy], Awaitable[object]]] = [
        lambda running: running.alone.allocate(request, timeout=DEADLINE),
        lambda running: running.proxied.allocate(request, timeout=DEADLINE),
        # The shortest call: one round trip.
        lambda running: running.alone.get_device_plugin_options(timeout=DEADLINE),
    ]
    medians: list[list[float]] = []
    async with plugin_and_proxy(FEW) as running:
        for _ in range(size.rounds):
            times: list[list[float]] = [[] for _ in kinds]
            for _ in range(size.calls):
                for call, times_of_call in zip(kinds, times, strict=True):
                    times_of_call.append(await milliseconds(call(running)))
            medians.append([*map(measure.median, times)])
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
    """Return the row for a long list in which one device has changed."""
    times: list[list[float]] = [[], []]
    async with plugin_and_proxy(MANY) as running:
        for number in range(2 * size.lists):
            # One stream at a time: two streams would share the processor.
            side = number % 2
            client = (running.alone, running.proxied)[side]
            async with (
                asyncio.timeout(DEADLINE),
                contextlib.aclosing(client.list_messages()) as stream,
            ):
                await anext(stream)
                running.flip()
                times[side].append(await milliseconds(anext(stream)))
            await asyncio.sleep(size.settle / 4)
    alone, proxied = map(measure.median, times)
    target = f"≤ {1.5 * alone:.1f} ms"
    return [f"a list of {MANY:,} devices, p50", f"{alone:.1f} ms", f"{proxied:.1f} ms", target]


async def main(*, quick: bool) -> None:
    """Print the table."""
    size = QUICK if quick else FULL
    rows = [*await calls(size), await lists(size)]
    measure.table(
        "A plugin alone and behind the proxy",
        ("", "alone", "behind the proxy", "target"),
        rows,
    )
