"""The time of an admission, beside the time of one Allocate call and of one durable commit.

All nodes run at the same time and are measured in turns, so other work on the machine slows all of
them down equally. Right before each admission the benchmark measures the two baselines, with the
same plugin and in the same directory. Each pod is released after its admission.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks import measure
from benchmarks.measure import milliseconds
from benchmarks.node_rig import (
    CHECKPOINT_PAUSE,
    DEADLINE,
    Node,
    PlainCommit,
    allocate_request,
    node,
)
from kubedevices.kubelet_api.clients import DevicePluginClient
from kubedevices.node.pods.pod import Pod

WIDGET, OTHER = "widget", "other"


class Size(NamedTuple):
    """How much is measured: `turn` admissions per node and round, `pause` seconds between nodes.

    `nodes` have devices, other pods and NUMA nodes; the first is the baseline of the others. The
    table of pods that come at the same time has `simultaneous` pods and `plugins` resources.
    """

    nodes: Sequence[tuple[int, int, int]]
    rounds: int
    turn: int
    pause: float
    plugins: int
    simultaneous: int


FULL = Size(
    ((8, 0, 0), (8, 1_000, 0), (10_000, 0, 0), (10_000, 1_000, 0), (10_000, 0, 8)),
    9, 25, CHECKPOINT_PAUSE, 10, 50,
)  # fmt: skip
QUICK = Size(((8, 0, 0), (8, 3, 2)), 1, 3, 0, 3, 6)


@dataclass
class Times:
    """Milliseconds, one list per round."""

    rounds: list[list[float]] = field(default_factory=list)

    @property
    def p50(self) -> float:
        return measure.median(measure.median(each) for each in self.rounds)

    @property
    def p99(self) -> float:
        return measure.percentile([value for each in self.rounds for value in each], 99)

    def text(self) -> str:
        return f"{self.p50:.2f} / {self.p99:.2f}"

    def ratio_to(self, other: "Times") -> float:
        """Return the median ratio of the rounds: a round measures both within the same seconds."""
        pairs = zip(self.rounds, other.rounds, strict=True)
        return measure.median(measure.median(mine) / measure.median(its) for mine, its in pairs)


class MeasuredNode:
    """One node, and the code that measures it."""

    def __init__(self, running: Node, client: DevicePluginClient) -> None:
        self.node, self.client = running, client
        self.call, self.commit, self.admission = Times(), Times(), Times()
        self.cpu: list[float] = []
        self._plain: PlainCommit

    async def warm_up(self) -> None:
        """Admit and release a pod, and prepare the baseline commit."""
        pod = self.node.next_pod({WIDGET: 1})
        await self.node.manager.allocate(pod)
        self._plain = self.node.commit_baseline(pod)
        await self.node.manager.release(pod.uid)

    async def turn(self, length: int) -> None:
        """Measure one round."""
        manager, request = self.node.manager, allocate_request(WIDGET, 1)
        calls, commits, times = [], [], []
        used = 0.0
        for _ in range(length):
            calls.append(await milliseconds(self.client.allocate(request, timeout=DEADLINE)))
            commits.append(self._plain.commit())
            pod = self.node.next_pod({WIDGET: 1})
            cpu = time.process_time()
            times.append(await milliseconds(manager.allocate(pod)))
            await manager.release(pod.uid)
            used += time.process_time() - cpu
        self.cpu.append(used * 1e3 / length)
        for series, found in ((self.call, calls), (self.commit, commits), (self.admission, times)):
            series.rounds.append(found)

    @property
    def times_baselines(self) -> float:
        """How often an admission takes a call and a commit, the median of the rounds."""
        rounds = zip(self.admission.rounds, self.call.rounds, self.commit.rounds, strict=True)
        return measure.median(
            measure.median(times) / (measure.median(calls) + measure.median(commits))
            for times, calls, commits in rounds
        )

    def close(self) -> None:
        """Remove what the baseline commit has written."""
        self._plain.close()


async def admissions(size: Size) -> list[MeasuredNode]:
    """Return the measured nodes."""
    async with contextlib.AsyncExitStack() as stack:
        nodes = []
        for devices, pods, numa_nodes in size.nodes:
            counts = {WIDGET: devices, OTHER: max(pods, 1)}
            running = await stack.enter_async_context(node(counts, numa_nodes))
            await running.fill(pods, {OTHER: 1})
            client = await stack.enter_async_context(running.client(WIDGET))
            nodes.append(MeasuredNode(running, client))
        for each in nodes:
            await each.warm_up()
            stack.callback(each.close)
        await asyncio.sleep(size.pause)
        for _ in range(size.rounds):
            for each in nodes:
                await each.turn(size.turn)
                # Let the node write its checkpoint file now, not while another node is measured.
                await asyncio.sleep(size.pause)
    return nodes


# ---------------------------------------------------------------- many pods at once


class SimultaneousPods:
    """Many pods that come at the same time, each with resources of three of many plugins."""

    def __init__(self, running: Node, client: DevicePluginClient, names: Sequence[str]) -> None:
        self.node, self.client, self.names = running, client, names
        self.all_at_once: list[float] = []
        self.alone, self.call, self.commit = Times(), Times(), Times()

    async def round(self, pods: int) -> None:
        made = [
            self.node.next_pod({self.names[(n + step) % len(self.names)]: 1 for step in range(3)})
            for n in range(pods)
        ]
        allocate = self.node.manager.allocate
        self.all_at_once.append(await milliseconds(asyncio.gather(*map(allocate, made))))
        plain = self.node.commit_baseline(made[0])
        await self._release(made)
        self.alone.rounds.append([await milliseconds(allocate(pod)) for pod in made])
        await self._release(made)
        request = allocate_request(self.names[0], 1)
        self.call.rounds.append(
            [await milliseconds(self.client.allocate(request, timeout=DEADLINE)) for _ in made]
        )
        self.commit.rounds.append([plain.commit() for _ in made])
        plain.close()

    async def _release(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            await self.node.manager.release(pod.uid)


async def simultaneous_pods(size: Size) -> None:
    """Print how long the admission of many pods takes that come at the same time."""
    names = [f"type{number}" for number in range(size.plugins)]
    async with (
        node(dict.fromkeys(names, size.simultaneous)) as running,
        running.client(names[0]) as client,
    ):
        found = SimultaneousPods(running, client, names)
        for _ in range(size.rounds):
            await found.round(size.simultaneous)
    total = measure.median(found.all_at_once)
    per_pod = total / size.simultaneous
    measure.table(
        f"{size.simultaneous} pods, {size.plugins} plugins, 3 resources per pod: milliseconds",
        (
            "all at once, until the last pod is admitted",
            "the same per pod",
            "one after the other, p50 / p99 of a pod",
            "plugin call",
            "plain commit",
            "a pod × (3 calls + commit)",
        ),
        [
            [
                f"{total:.1f}",
                f"{per_pod:.2f}",
                found.alone.text(),
                f"{found.call.p50:.2f}",
                f"{found.commit.p50:.2f}",
                f"{per_pod / (3 * found.call.p50 + found.commit.p50):.2f}",
            ]
        ],
    )


# ---------------------------------------------------------------- tables


async def main(*, quick: bool = False) -> None:
    """Print both tables."""
    size = QUICK if quick else FULL
    found = await admissions(size)
    rows = [
        [
            f"{devices:,}",
            f"{pods:,}",
            str(numa_nodes or "none"),
            f"{each.call.p50:.2f}",
            f"{each.commit.p50:.2f}",
            each.admission.text(),
            f"{measure.median(each.cpu):.2f}",
            f"{each.times_baselines:.2f}",
            f"{each.admission.ratio_to(found[0].admission):.2f}",
        ]
        for (devices, pods, numa_nodes), each in zip(size.nodes, found, strict=True)
    ]
    header = [
        *("devices", "other pods", "NUMA nodes", "plugin call", "plain commit"),
        *("admission, p50 / p99", "CPU", "× (call + commit)", "× the first row"),
    ]
    measure.table("Admission of a pod with one device: milliseconds", header, rows)
    await simultaneous_pods(size)
