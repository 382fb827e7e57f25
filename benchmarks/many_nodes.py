"""Memory of the simulators of many nodes: one process for all of them, or one process for each.

Each node has 8 devices, and a stand-in for a kubelet that reads their list. The memory is read when
all nodes are registered. A process of its own for each of 1,000 nodes needs more memory than most
machines have, so that number is measured for one process only.
"""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import measure
from kubedevices.host.descriptors import allow_all_descriptors
from kubedevices.testing.kubelet.kubelet import Probe

BOTH, ONE_PROCESS = (1, 10, 100), (1_000,)
QUICK = (2,)
DEADLINE = 300
RESOURCE = "example.com/gpu"
SIMULATE = (sys.executable, "-m", "kubedevices.cli", "simulate", "--resource-name", RESOURCE)


async def measure_memory(socket_dirs: Sequence[str], nodes: int) -> dict[str, float]:
    """Start a simulator for each of `socket_dirs`, which are nodes or patterns of nodes.

    Return `pss` and `rss` of all simulators together, in MB (10⁶ bytes).
    """
    async with contextlib.AsyncExitStack() as running:
        name = running.enter_context(tempfile.TemporaryDirectory(prefix="kd-", dir="/tmp"))
        kubelets = []
        for i in range(nodes):
            place = Path(name) / f"n{i}/plugins"
            place.mkdir(parents=True)
            kubelets.append(await running.enter_async_context(Probe(place)))
            await kubelets[-1].start()
        processes = []
        for each in socket_dirs:
            words = [*SIMULATE, "--number-devices", "8", "--socket-dir", f"{name}/{each}"]
            process = await asyncio.create_subprocess_exec(
                *words, stderr=asyncio.subprocess.DEVNULL, env={"PATH": "/usr/bin:/bin"}
            )
            running.push_async_callback(process.wait)
            running.callback(process.kill)
            processes.append(process.pid)
        async with asyncio.timeout(DEADLINE):
            while not all(RESOURCE in each.plugins for each in kubelets):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await asyncio.sleep(1)  # answers and threads of the registration are over
        found = [await asyncio.to_thread(measure.memory, pid) for pid in processes]
        return {kind: sum(each[kind] for each in found) for kind in ("pss", "rss")}


async def main(*, quick: bool = False) -> None:
    """Print the table of docs/performance.md."""
    allow_all_descriptors()
    rows = []
    both = QUICK if quick else BOTH
    for nodes in both if quick else (*BOTH, *ONE_PROCESS):
        one = await measure_memory(["*/plugins"], nodes)
        cells = [f"{one[kind]:,.0f}" for kind in ("pss", "rss")]
        if nodes in both:
            each = await measure_memory([f"n{i}/plugins" for i in range(nodes)], nodes)
            cells += [f"{each[kind]:,.0f}" for kind in ("pss", "rss")]
            cells.append(f"{each['pss'] / one['pss']:.1f} ×")
        else:
            cells += ["–"] * 3
        rows.append([f"{nodes:,}", *cells])
    header = ["nodes × 8 devices", "one process: PSS", "RSS"]
    header += ["a process for each: PSS", "RSS", "ratio of PSS"]
    measure.table("Simulators of many nodes: memory in MB", header, rows)
