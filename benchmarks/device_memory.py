"""How the memory of a simulator grows with the number of its devices.

`kubedevices.manifests.memory` derives the memory limits of containers from these numbers. The peak
is what counts, because a container above its limit is killed. The peak is measured after the first
list of two streams, a scrape of `/metrics`, and a change of the health of all devices.
"""

import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks import measure
from benchmarks.footprint import free_port, get_page
from benchmarks.footprint_places import OnHost
from benchmarks.plugin_process import Kubelet
from kubedevices.check.process_figures import listening_process
from kubedevices.errors import KubedevicesError
from kubedevices.kubelet_api.clients import DevicePluginClient
from kubedevices.manifests import memory
from kubedevices.rules.step_control import tell
from kubedevices.wire.unix_grpc import GrpcChannel

SIZES = (0, 1_000, 10_000, 50_000, 100_000)
QUICK = (0, 1_000)
OPTIONS = ("--device-id-prefix", "device", "--numa-nodes", "0,1", "--node-name", "node-1")


class Memory(NamedTuple):
    """MB (10⁶ bytes) of one simulator: PSS at the end, and the largest RSS."""

    pss: float
    peak: float


async def measure_memory(devices: int) -> Memory:
    """Start a simulator with `devices` devices, use the simulator, and return its memory."""
    with tempfile.TemporaryDirectory(prefix="kd-", dir="/tmp") as name:
        directory = Path(name)
        (directory / "p").mkdir()
        kubelet = Kubelet(directory / "p")
        await kubelet.start()
        port, control = free_port(), directory / "control.sock"
        words = [sys.executable, "-m", "kubedevices.cli", "simulate", *OPTIONS]
        words += ["--number-devices", str(devices), "--control-socket", str(control)]
        words += ["--socket-dir", str(directory / "p"), "--listen", f"127.0.0.1:{port}"]
        try:
            async with OnHost().start(words, directory, {}):
                await kubelet.next_registration()
                return await exercise(directory / "p", port, control, devices)
        finally:
            await kubelet.stop()


async def exercise(plugins: Path, port: int, control: Path, devices: int) -> Memory:
    """Read the list on two streams, read /metrics, change all devices; return the memory."""
    (path,) = await asyncio.to_thread(lambda: [*plugins.glob("simple-device-plugin*.sock")])
    async with contextlib.AsyncExitStack() as stack:
        streams = []
        for _ in range(2):
            channel = await stack.enter_async_context(await GrpcChannel.dial(path))
            stream = DevicePluginClient(channel).list_and_watch()
            streams.append(await stack.enter_async_context(contextlib.aclosing(stream)))
        for stream in streams:
            assert len(await anext(stream)) == devices
        await get_page(port, "/metrics")
        if devices:
            # The answer may come after the deadline of `tell`; the lists come anyway.
            with contextlib.suppress(KubedevicesError):
                await tell(control, {"set": {"health": "Unhealthy"}})
            for stream in streams:
                await anext(stream)
        process = listening_process(path)
        return Memory(measure.memory(process)["pss"], measure.peak_memory(process))


async def main(*, quick: bool = False) -> None:
    """Print the table of docs/performance.md."""
    rows = []
    for devices in QUICK if quick else SIZES:
        found = await measure_memory(devices)
        limit = memory.limit_mib(devices) * 2**20 / 1e6
        figures = (found.pss, found.peak, limit)
        rows.append([f"{devices:,}", *(f"{figure:.0f}" for figure in figures)])
    header = ["devices", "PSS", "peak", "limit in the manifests"]
    measure.table("A simulator with many devices: memory in MB", header, rows)
