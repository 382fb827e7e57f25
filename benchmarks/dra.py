"""A DRA driver as a process: memory, start, claims, requests to the API server.

The same simulator runs as a device plugin and as a DRA driver. API server and kubelet are our
stand-ins, over plain HTTP on this machine. A driver in a cluster uses TLS; the process loads the
code of TLS here too.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

from benchmarks import measure
from benchmarks.dra_burst import burst_rows, pod_resources
from benchmarks.plugin_process import Kubelet
from kubedevices.testing.api_server import ApiServer
from kubedevices.testing.dra_kubelet.claim_manager import ClaimManager, DraPod
from kubedevices.testing.workbench.dra_node import NODE_NAME, DraNode

DOMAIN = "bench.example.com"
RESOURCE = f"{DOMAIN}/gpu"
DEADLINE = 60
_NO_TLS = "sys; sys.modules['ssl'] = None; import asyncio; del sys.modules['ssl']; import asyncio"
"""The imports of a device plugin: asyncio without OpenSSL."""


class Size(NamedTuple):
    """How much is measured; `settle` and `idle` in seconds."""

    rounds: int
    claims: int
    devices: int
    settle: float
    idle: float


FULL, QUICK = Size(5, 200, 2_000, 2, 330), Size(1, 3, 150, 0, 0.2)


class PrepareTimer:
    """Measures the seconds of each `prepare` of the kubelet's side of DRA, gRPC included."""

    def __init__(self, kubelet: ClaimManager) -> None:
        self._prepare = kubelet.prepare
        self.seconds: list[float] = []
        kubelet.prepare = self._timed  # type: ignore[method-assign]

    async def _timed(self, pod: DraPod) -> None:
        began = time.perf_counter()
        await self._prepare(pod)
        self.seconds.append(time.perf_counter() - began)


@contextlib.asynccontextmanager
async def simulator(*more: object, devices: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `kubedevices simulate`."""
    words = ["-m", "kubedevices.cli", "--log-level", "error", "simulate"]
    words += ["--resource-name", RESOURCE, "--number-devices", str(devices), *map(str, more)]
    env = os.environ | {"NODE_NAME": NODE_NAME}
    process = await asyncio.create_subprocess_exec(sys.executable, *words, env=env)
    try:
        yield process
    finally:
        process.terminate()
        await process.wait()


@contextlib.asynccontextmanager
async def dra_node() -> AsyncIterator[DraNode]:
    """Run the stand-ins for an API server and a kubelet."""
    with tempfile.TemporaryDirectory(prefix="kd-dra-", dir="/tmp") as directory:
        node = DraNode(Path(directory) / "k", Path(directory) / "cdi")
        await node.start()
        try:
            yield node
        finally:
            await node.stop()


def driver_of(node: DraNode) -> tuple[object, ...]:
    """Return the arguments of a driver on this node."""
    where = ("--kubelet-dir", node.kubelet_dir, "--cdi-dir", node.cdi_dir)
    return "--mode", "dra", *where, "--kubeconfig", node.kubeconfig


async def as_plugin(size: Size) -> tuple[float, float]:
    """Return the PSS in MB of a device plugin, and the seconds from its start to Register."""
    with tempfile.TemporaryDirectory(prefix="kd-dra-", dir="/tmp") as directory:
        kubelet = Kubelet(Path(directory))
        await kubelet.start()
        began = asyncio.get_running_loop().time()
        async with simulator("--socket-dir", directory, devices=2) as process:
            registered = await kubelet.next_registration() - began
            await asyncio.sleep(size.settle)
            found = measure.memory(process.pid)["pss"]
        await kubelet.stop()
    return found, registered


async def as_driver(size: Size) -> tuple[float, float]:
    """Return the PSS in MB of a driver, and the seconds until its slices are published."""
    async with dra_node() as node:
        began = time.perf_counter()
        async with simulator(*driver_of(node), devices=2) as process:
            await node.wait_published(DOMAIN, 2, DEADLINE)
            served = time.perf_counter() - began
            await asyncio.sleep(size.settle)
            return measure.memory(process.pid)["pss"], served


async def memory_table(size: Size) -> None:
    """Print memory and start of a process in each mode."""
    plugin, driver = [], []
    for _ in range(size.rounds):
        plugin.append(await as_plugin(size))
        driver.append(await as_driver(size))
    bare = await measure.bare_imports_pss(_NO_TLS)
    client = await measure.bare_imports_pss("asyncio, ssl, h11, json")
    rows = [["bare asyncio", f"{bare:.1f}", "", ""]]
    rows.append(["bare asyncio, TLS and HTTP", f"{client:.1f}", f"+{client - bare:.1f}", ""])
    first, second = (
        [measure.median(column) for column in zip(*found, strict=True)]
        for found in (plugin, driver)
    )
    rows.append(["device plugin", f"{first[0]:.1f}", "", f"{first[1] * 1e3:.0f}"])
    rows.append(
        ["DRA driver", f"{second[0]:.1f}", f"+{second[0] - first[0]:.1f}", f"{second[1] * 1e3:.0f}"]
    )
    header = ["", "PSS", "difference", "until it serves"]
    measure.table("A driver beside a device plugin: memory in MB, milliseconds", header, rows)


async def claim_table(size: Size) -> None:
    """Print how long each of many claims takes, one claim after the other."""
    async with dra_node() as node, simulator(*driver_of(node), devices=8):
        await node.wait_published(DOMAIN, 8, DEADLINE)
        timer, releases = PrepareTimer(node.kubelet), []
        for number in range(size.claims):
            await node.claim(f"pod-{number}", {RESOURCE: 1}, (), DEADLINE)
            began = time.perf_counter()
            await node.release(f"pod-{number}")
            releases.append(time.perf_counter() - began)
    rows = [
        [name, *(f"{measure.percentile(seconds, each) * 1e3:.1f}" for each in (50, 99))]
        for name, seconds in (("prepare", timer.seconds), ("give back", releases))
    ]
    measure.table("A claim with one device: milliseconds", ["", "p50", "p99"], rows)


async def burst_table(size: Size) -> None:
    """Print how long many claims take that come at the same time."""
    async with (
        dra_node() as node,
        pod_resources(node),
        simulator(*driver_of(node), devices=size.claims),
    ):
        # A kubelet counts as old after ten seconds; until then the driver publishes nothing.
        await node.wait_published(DOMAIN, size.claims, DEADLINE)
        rows = await burst_rows(node, RESOURCE, size.claims)
    header = ["", "seconds", "ms per claim", "slowest in s", "failed"]
    measure.table(f"{size.claims} claims, each in a call of its own", header, rows)


async def api_table(size: Size) -> None:
    """Print the requests to the API server: for many devices, and of an idle driver."""
    async with dra_node() as node:
        began = time.perf_counter()
        steps = node.kubelet_dir / "steps.sock"
        more = (*driver_of(node), "--control-socket", steps)
        async with simulator(*more, devices=size.devices) as process:
            await node.wait_published(DOMAIN, size.devices, DEADLINE)
            served = time.perf_counter() - began
            rows = [["first publication", f"{served:.1f}", str(len(node.api.requests))]]
            seen, began = len(node.api.requests), time.perf_counter()
            await tell(steps, "{set: {id: '*-7', health: Unhealthy}}")
            await tainted(node.api)
            took = time.perf_counter() - began
            requests = len(node.api.requests) - seen
            rows.append(["one device becomes unhealthy", f"{took:.1f}", str(requests)])
            pss = measure.memory(process.pid)["pss"]
        title = f"{size.devices:,} devices published: seconds, requests ({pss:.0f} MB of PSS)"
        measure.table(title, ["", "seconds", "requests"], rows)
    async with dra_node() as node, simulator(*driver_of(node), devices=8):
        await node.wait_published(DOMAIN, 8, DEADLINE)
        await asyncio.sleep(1)
        seen = len(node.api.requests)
        await asyncio.sleep(size.idle)
        count = len(node.api.requests) - seen
    row = [f"{size.idle / 60:.0f}", str(count), f"{count * 3600 / size.idle:.0f}"]
    header = ["minutes", "requests", "requests per hour"]
    measure.table("An idle driver: requests to the API server", header, [row])


async def tell(steps: Path, step: str) -> None:
    """Make the simulator change a device."""
    words = ["-m", "kubedevices.cli", "simulate", "--control-socket", str(steps), "--tell", step]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == 0


async def tainted(api: ApiServer) -> None:
    """Wait until all slices have the same generation, and one device has a taint."""
    deadline = time.monotonic() + DEADLINE
    while True:
        slices = [each["spec"] for each in api.find("resourceslices")]
        pools = {(s["pool"]["generation"], s["pool"]["resourceSliceCount"]) for s in slices}
        has_taint = any("taints" in device for s in slices for device in s["devices"])
        if has_taint and len(pools) == 1 and len(slices) == next(iter(pools))[1]:
            return
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def main(*, quick: bool = False) -> None:
    """Print the tables of docs/performance.md."""
    size = QUICK if quick else FULL
    await memory_table(size)
    await claim_table(size)
    await burst_table(size)
    await api_table(size)
