"""A look at a big cluster: time and memory of `devices --cluster` and `explain pod` as processes.

The stand-in for an API server runs in a process of its own, over plain HTTP on this machine. The
baseline is a program that reads the same pages with the standard library, and keeps the objects.
"""

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks import measure
from benchmarks.big_cluster import DEVICES, PENDING, PODS, SLICES

FULL, QUICK = 500, 3
ROUNDS = 3
DEADLINE = 300

_READ = """
import json, sys, urllib.parse, urllib.request
server = json.load(open(sys.argv[1]))["clusters"][0]["cluster"]["server"]
found = []
dra = "apis/resource.k8s.io/v1"
for path in (f"{dra}/resourceslices", f"{dra}/resourceclaims", "api/v1/pods", "api/v1/nodes"):
    rest = ""
    while True:
        query = urllib.parse.urlencode({"limit": 100, "continue": rest})
        page = json.load(urllib.request.urlopen(f"{server}/{path}?{query}"))
        found += page["items"]
        rest = page["metadata"].get("continue", "")
        if not rest:
            break
"""
_KUBEDEVICES = (sys.executable, "-m", "kubedevices.cli")
COMMANDS = {
    "reading the same pages only": (sys.executable, "-c", _READ),
    "devices --cluster": (*_KUBEDEVICES, "devices", "--cluster", "--kubeconfig"),
    "devices --cluster -o json": (
        *_KUBEDEVICES,
        *("devices", "--cluster", "-o", "json", "--kubeconfig"),
    ),
    "explain": (*_KUBEDEVICES, "explain", "--kubeconfig"),
    **{
        f"explain pod {name}": (*_KUBEDEVICES, "explain", "pod", f"ml/{name}", "--kubeconfig")
        for name in PENDING
    },
}


@contextlib.asynccontextmanager
async def big_cluster(nodes: int) -> AsyncIterator[Path]:
    """Run the API server with the cluster; yield the kubeconfig."""
    with tempfile.TemporaryDirectory(prefix="kd-", dir="/tmp") as name:
        kubeconfig = Path(name) / "kubeconfig"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.big_cluster", str(nodes), str(kubeconfig)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout
        assert process.stdin
        try:
            async with asyncio.timeout(DEADLINE):
                await process.stdout.readline()
            yield kubeconfig
        finally:
            process.stdin.close()
            await process.wait()


async def run_once(command: tuple[str, ...], kubeconfig: Path) -> tuple[float, float, float]:
    """Return seconds, seconds of CPU and the peak of the memory in MB of a command."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *command, str(kubeconfig), stdout=asyncio.subprocess.DEVNULL
    )
    ended = asyncio.ensure_future(process.wait())
    peak = cpu = 0.0
    async with asyncio.timeout(DEADLINE):
        while not ended.done():
            with contextlib.suppress(OSError):
                cpu = max(cpu, measure.cpu(process.pid))
                peak = max(peak, measure.peak_memory(process.pid))
            await asyncio.wait({ended}, timeout=0.01)
    assert process.returncode in (0, 1), process.returncode
    return time.perf_counter() - began, cpu, peak


async def main(*, quick: bool = False) -> None:
    """Print the table of docs/performance.md."""
    nodes = QUICK if quick else FULL
    rows = []
    async with big_cluster(nodes) as kubeconfig:
        for name, command in COMMANDS.items():
            found = [await run_once(command, kubeconfig) for _ in range(1 if quick else ROUNDS)]
            seconds, cpu, peak = (measure.median(column) for column in zip(*found, strict=True))
            rows.append([name, f"{seconds:.1f}", f"{cpu:.1f}", f"{peak:.0f}"])
    counts = f"{nodes:,} nodes, {nodes * SLICES:,} slices, {nodes * SLICES * DEVICES:,} devices"
    header = ["", "seconds", "seconds of CPU", "peak memory in MB"]
    measure.table(f"A look at {counts}, {nodes * PODS:,} pods", header, rows)
