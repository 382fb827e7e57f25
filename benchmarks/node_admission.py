"""The time of an admission, beside the time of one Allocate call and of one durable commit.

All nodes of a table run at the same time and are measured in turns, so other work on the machine
slows all of them down equally. Right before each admission the benchmark measures the two
baselines, with the same plugin and in the same directory. `churn` admits a pod and releases the
pod. `growth` only admits pods; the benchmark releases these pods after the measurement.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
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

    `pods` are the other pods of a node. The table of pods that come at the same time has
    `simultaneous` pods and `plugins` resources.
    """

    devices: Sequence[int]
    pods: Sequence[int]
    per_pod: Sequence[int]
    numa_nodes: Sequence[int]
    rounds: int
    turn: int
    pause: float
    plugins: int
    simultaneous: int


FULL = Size((8, 1_000, 10_000), (0, 100, 1_000), (1, 8), (0, 2, 8), 9, 25, CHECKPOINT_PAUSE, 10, 50)
QUICK = Size((8,), (0, 3), (1,), (0, 2), 1, 3, 0, 3, 6)


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


@dataclass
class Row:
    """One row of the table."""

    devices: int
    pods: int
    per_pod: int
    call: Times = field(default_factory=Times)
    commit: Times = field(default_factory=Times)
    churn: Times = field(default_factory=Times)
    growth: Times = field(default_factory=Times)
    beyond: Times = field(default_factory=Times)
    churn_cpu: list[float] = field(default_factory=list)
    growth_cpu: list[float] = field(default_factory=list)

    def cells(self) -> list[str]:
        return [
            f"{self.devices:,}",
            f"{self.pods:,}",
            str(self.per_pod),
            f"{self.call.p50:.2f}",
            f"{self.commit.p50:.2f}",
            self.churn.text(),
            f"{measure.median(self.churn_cpu):.2f}",
            self.growth.text(),
            f"{measure.median(self.growth_cpu):.2f}",
            f"{self.beyond.p50:+.2f}",
        ]


HEADER = (
    "devices",
    "other pods",
    "devices per pod",
    "plugin call",
    "plain commit",
    "churn p50 / p99",
    "CPU of churn",
    "growth p50 / p99",
    "CPU of growth",
    "churn − call − commit",
)


class MeasuredNode:
    """One node, its rows of the table, and the code that measures them."""

    def __init__(self, running: Node, client: DevicePluginClient, rows: Sequence[Row]) -> None:
        self.node, self.client, self.rows = running, client, rows
        self.commits: dict[int, PlainCommit] = {}

    async def warm_up(self) -> None:
        """Admit and release a pod for each row, and prepare the baseline commit of each row."""
        for row in self.rows:
            pod = self.node.next_pod({WIDGET: row.per_pod})
            await self.node.manager.allocate(pod)
            self.commits[row.per_pod] = self.node.commit_baseline(pod)
            await self.node.manager.release(pod.uid)

    async def turn(self, length: int) -> None:
        for row in self.rows:
            await self._churn(row, length)
            await self._growth(row, min(length, row.devices // row.per_pod))

    async def _churn(self, row: Row, length: int) -> None:
        manager, plain = self.node.manager, self.commits[row.per_pod]
        request = allocate_request(WIDGET, row.per_pod)
        calls, commits, times = [], [], []
        used = 0.0
        for _ in range(length):
            calls.append(await milliseconds(self.client.allocate(request, timeout=DEADLINE)))
            commits.append(plain.commit())
            pod = self.node.next_pod({WIDGET: row.per_pod})
            cpu = time.process_time()
            times.append(await milliseconds(manager.allocate(pod)))
            await manager.release(pod.uid)
            used += time.process_time() - cpu
        row.churn_cpu.append(used * 1e3 / length)
        for series, found in ((row.call, calls), (row.commit, commits), (row.churn, times)):
            series.rounds.append(found)
        row.beyond.rounds.append(
            [time - call - commit for time, call, commit in zip(times, calls, commits, strict=True)]
        )

    async def _growth(self, row: Row, length: int) -> None:
        manager, times, pods = self.node.manager, [], []
        cpu = time.process_time()
        for _ in range(length):
            pods.append(pod := self.node.next_pod({WIDGET: row.per_pod}))
            times.append(await milliseconds(manager.allocate(pod)))
        row.growth_cpu.append((time.process_time() - cpu) * 1e3 / length)
        row.growth.rounds.append(times)
        for pod in pods:
            await manager.release(pod.uid)


async def admissions(size: Size, numa_nodes: int) -> list[Row]:
    """Return a row for every combination of devices, other pods and devices per pod."""
    async with contextlib.AsyncExitStack() as stack:
        nodes = []
        for devices in size.devices:
            for pods in size.pods:
                counts = {WIDGET: devices, OTHER: max(pods, 1)}
                running = await stack.enter_async_context(node(counts, numa_nodes))
                await running.fill(pods, {OTHER: 1})
                client = await stack.enter_async_context(running.client(WIDGET))
                rows = [Row(devices, pods, per_pod) for per_pod in size.per_pod]
                nodes.append(MeasuredNode(running, client, rows))
        for each in nodes:
            await each.warm_up()
        await asyncio.sleep(size.pause)
        for _ in range(size.rounds):
            for each in nodes:
                await each.turn(size.turn)
                # Let the node write its checkpoint file now, not while another node is measured.
                await asyncio.sleep(size.pause)
        for each in nodes:
            for plain in each.commits.values():
                plain.close()
    return [row for each in nodes for row in each.rows]


def find(rows: Sequence[Row], devices: int, pods: int) -> Row:
    """Return the row of pods that request one device each."""
    return next(row for row in rows if (row.devices, row.pods, row.per_pod) == (devices, pods, 1))


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
    measure.table(
        f"{size.simultaneous} pods, {size.plugins} plugins, 3 resources per pod: milliseconds",
        (
            "all at once, until the last pod is admitted",
            "the same per pod",
            "one after the other, p50 / p99 of a pod",
            "plugin call",
            "plain commit",
            "target per pod",
        ),
        [
            [
                f"{total:.1f}",
                f"{total / size.simultaneous:.2f}",
                found.alone.text(),
                f"{found.call.p50:.2f}",
                f"{found.commit.p50:.2f}",
                "≤ 0.60",
            ]
        ],
    )


# ---------------------------------------------------------------- tables


def targets(size: Size, found: Mapping[int, Sequence[Row]]) -> None:
    """Print each target beside the measured value."""
    few, many = size.devices[0], size.devices[-1]
    base = find(found[0], few, 0)
    more_pods, large = find(found[0], few, size.pods[-1]), find(found[0], many, 0)
    numa = find(found[size.numa_nodes[-1]], many, 0)
    more = numa.beyond.p50 - base.beyond.p50
    with_pods, with_devices = more_pods.churn.ratio_to(base.churn), large.churn.ratio_to(base.churn)
    measure.table(
        "Admission, one device, p50: the targets",
        ("", "measured", "target"),
        [
            ["beyond plugin call and commit", f"{base.beyond.p50:+.2f} ms", "≤ +0.15 ms"],
            [f"with {size.pods[-1]:,} other pods", f"{with_pods:.2f} ×", "≤ 1.20 ×"],
            [f"with {many:,} devices", f"{with_devices:.2f} ×", "≤ 1.50 ×"],
            [
                f"with {many:,} devices on {size.numa_nodes[-1]} NUMA nodes",
                f"{more:+.2f} ms",
                "≤ +3.00 ms",
            ],
        ],
    )


async def main(*, quick: bool = False) -> None:
    """Print the tables of admissions and the table of targets."""
    size = QUICK if quick else FULL
    found: dict[int, list[Row]] = {}
    for numa_nodes in size.numa_nodes:
        rows = found[numa_nodes] = await admissions(size, numa_nodes)
        name = f"{numa_nodes} NUMA nodes, best-effort" if numa_nodes else "topology policy none"
        measure.table(f"Admission, {name}: milliseconds", HEADER, [row.cells() for row in rows])
    targets(size, found)
    await simultaneous_pods(size)
