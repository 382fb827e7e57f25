"""Admission: what a pod costs beside one call to the plugin and one durable commit.

All nodes of a table run at the same time and take turns in every round, so that a busy machine hits
all of them alike. Right before each admission the baselines are measured, on the same plugin and in
the same directory. `churn` admits and releases, `growth` admits only; what a turn admitted is
released before the next one, untimed.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks import measure
from benchmarks.node_rig import (
    CHECKPOINT_PAUSE,
    DEADLINE,
    Node,
    PlainCommit,
    allocate_request,
    milliseconds,
    node,
)
from kubedevices.kubelet_api.clients import DevicePluginClient
from kubedevices.node.pods.pod import Pod

WIDGET, OTHER = "widget", "other"


class Size(NamedTuple):
    """How much is measured."""

    devices: Sequence[int]
    pods: Sequence[int]
    per_pod: Sequence[int]
    numa_nodes: Sequence[int]
    rounds: int
    turn: int
    pause: float
    plugins: int
    crowd: int


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
        """Compare round by round: both were measured within the same seconds."""
        pairs = zip(self.rounds, other.rounds, strict=True)
        return measure.median(measure.median(mine) / measure.median(its) for mine, its in pairs)


@dataclass
class Cell:
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

    def row(self) -> list[str]:
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
    "per pod",
    "plugin call",
    "plain commit",
    "churn p50 / p99",
    "CPU with release",
    "growth p50 / p99",
    "CPU",
    "churn − call − commit",
)


class Bench:
    """One node with its cells and what measures them."""

    def __init__(self, running: Node, client: DevicePluginClient, cells: Sequence[Cell]) -> None:
        self.node, self.client, self.cells = running, client, cells
        self.commits: dict[int, PlainCommit] = {}

    async def warm_up(self) -> None:
        """Do everything once, and make the transactions to compare with."""
        for cell in self.cells:
            pod = self.node.next_pod({WIDGET: cell.per_pod})
            await self.node.manager.allocate(pod)
            self.commits[cell.per_pod] = self.node.commit_baseline(pod)
            await self.node.manager.release(pod.uid)

    async def turn(self, length: int) -> None:
        for cell in self.cells:
            await self._churn(cell, length)
            await self._growth(cell, min(length, cell.devices // cell.per_pod))

    async def _churn(self, cell: Cell, length: int) -> None:
        manager, plain = self.node.manager, self.commits[cell.per_pod]
        request = allocate_request(WIDGET, cell.per_pod)
        calls, commits, times = [], [], []
        used = 0.0
        for _ in range(length):
            calls.append(await milliseconds(self.client.allocate(request, timeout=DEADLINE)))
            commits.append(plain.commit())
            pod = self.node.next_pod({WIDGET: cell.per_pod})
            cpu = time.process_time()
            times.append(await milliseconds(manager.allocate(pod)))
            await manager.release(pod.uid)
            used += time.process_time() - cpu
        cell.churn_cpu.append(used * 1e3 / length)
        for series, found in ((cell.call, calls), (cell.commit, commits), (cell.churn, times)):
            series.rounds.append(found)
        cell.beyond.rounds.append(
            [time - call - commit for time, call, commit in zip(times, calls, commits, strict=True)]
        )

    async def _growth(self, cell: Cell, length: int) -> None:
        manager, times, pods = self.node.manager, [], []
        cpu = time.process_time()
        for _ in range(length):
            pods.append(pod := self.node.next_pod({WIDGET: cell.per_pod}))
            times.append(await milliseconds(manager.allocate(pod)))
        cell.growth_cpu.append((time.process_time() - cpu) * 1e3 / length)
        cell.growth.rounds.append(times)
        for pod in pods:
            await manager.release(pod.uid)


async def admissions(size: Size, numa_nodes: int) -> list[Cell]:
    """Return a cell for every combination of devices, other pods and devices per pod."""
    async with contextlib.AsyncExitStack() as stack:
        benches = []
        for devices in size.devices:
            for pods in size.pods:
                counts = {WIDGET: devices, OTHER: max(pods, 1)}
                running = await stack.enter_async_context(node(counts, numa_nodes))
                await running.fill(pods, {OTHER: 1})
                client = await stack.enter_async_context(running.client(WIDGET))
                cells = [Cell(devices, pods, per_pod) for per_pod in size.per_pod]
                benches.append(Bench(running, client, cells))
        for bench in benches:
            await bench.warm_up()
        await asyncio.sleep(size.pause)
        for _ in range(size.rounds):
            for bench in benches:
                await bench.turn(size.turn)
                await asyncio.sleep(size.pause)  # its checkpoint file is its own affair
        for bench in benches:
            for plain in bench.commits.values():
                plain.close()
    return [cell for bench in benches for cell in bench.cells]


def find(cells: Sequence[Cell], devices: int, pods: int) -> Cell:
    """Return the cell of pods that take one device each."""
    return next(
        cell for cell in cells if (cell.devices, cell.pods, cell.per_pod) == (devices, pods, 1)
    )


# ---------------------------------------------------------------- many at once


class Crowd:
    """Many pods over many plugins, each with three resources."""

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


async def crowd(size: Size) -> None:
    """Print how long many pods take that come at the same time."""
    names = [f"type{number}" for number in range(size.plugins)]
    async with (
        node(dict.fromkeys(names, size.crowd)) as running,
        running.client(names[0]) as client,
    ):
        found = Crowd(running, client, names)
        for _ in range(size.rounds):
            await found.round(size.crowd)
    total = measure.median(found.all_at_once)
    measure.table(
        f"{size.crowd} pods over {size.plugins} plugins, 3 resources each: milliseconds",
        (
            "all at once, until the last",
            "of that per pod",
            "one after the other, p50 / p99 of a pod",
            "plugin call",
            "plain commit",
            "target per pod",
        ),
        [
            [
                f"{total:.1f}",
                f"{total / size.crowd:.2f}",
                found.alone.text(),
                f"{found.call.p50:.2f}",
                f"{found.commit.p50:.2f}",
                "≤ 0.60",
            ]
        ],
    )


# ---------------------------------------------------------------- tables


def targets(size: Size, found: Mapping[int, Sequence[Cell]]) -> None:
    """Print the targets beside what was measured of them."""
    few, many = size.devices[0], size.devices[-1]
    base = find(found[0], few, 0)
    crowded, large = find(found[0], few, size.pods[-1]), find(found[0], many, 0)
    numa = find(found[size.numa_nodes[-1]], many, 0)
    more = numa.beyond.p50 - base.beyond.p50
    with_pods, with_devices = crowded.churn.ratio_to(base.churn), large.churn.ratio_to(base.churn)
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
    """Print the admission tables and what they say about the targets."""
    size = QUICK if quick else FULL
    found: dict[int, list[Cell]] = {}
    for numa_nodes in size.numa_nodes:
        cells = found[numa_nodes] = await admissions(size, numa_nodes)
        name = f"{numa_nodes} NUMA nodes, best-effort" if numa_nodes else "topology off"
        measure.table(f"Admission, {name}: milliseconds", HEADER, [cell.row() for cell in cells])
    targets(size, found)
    await crowd(size)
