"""A plugin of kubedevices beside a minimal plugin in Go and a minimal plugin on grpcio.

All three plugins obey the same commands. The rounds of a row alternate between the plugins, so
other work on the machine slows all of them down equally. The client is a Go program, like a
kubelet. Without Debian's packages golang-go and golang-google-grpc-dev the column of Go is empty,
and the client is ours.
"""

import asyncio
import contextlib
import json
import shutil
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import measure, plugin_process
from benchmarks.plugin_process import DEADLINE, RunningPlugin, plugin
from kubedevices.values.allocation import AllocateRequest, ContainerAllocateRequest
from tests.host_needs import is_given
from tests.interop import go_peer

GO, GRPCIO, OURS = "minimal Go plugin", "minimal grpcio plugin", "kubedevices"
SHORT = {GO: "Go", GRPCIO: "grpcio", OURS: "ours"}
SOURCES = Path(go_peer.__file__).with_name("minimal_go")
ALLOCATE = AllocateRequest((ContainerAllocateRequest(("widget-1",)),))


class Size(NamedTuple):
    """How much is measured. `many` and `most` are numbers of devices."""

    rounds: int
    starts: int
    calls: int
    changes: int
    many: int
    most: int
    writes: int


FULL = Size(rounds=5, starts=10, calls=300, changes=10, many=10_000, most=100_000, writes=300)
QUICK = Size(rounds=1, starts=1, calls=2, changes=1, many=8, most=8, writes=2)


class Row(NamedTuple):
    """One row of the table, and the target of our plugin.

    `run` measures the plugin with a given name. The target is a maximum, for a rate (`is_rate`) a
    minimum, and a multiple of what another plugin needs: `times`, by the name of the plugin.
    """

    title: str
    run: Callable[[str], Awaitable[float]]
    rounds: int
    times: Mapping[str, float]
    is_rate: bool = False


# ---------------------------------------------------------------- what is measured


class Calls(NamedTuple):
    """Calls to a plugin: seconds of each call, seconds until all have ended, CPU of the plugin."""

    each: Sequence[float]
    all_together: float
    cpu: float


async def make_calls(name: str, count: int, workers: int) -> Calls:
    """Let each of `workers` make `count` Allocate calls, after as many calls to warm up."""
    async with plugin(name, 8) as running:
        await _calls(running, count, workers)
        before = measure.cpu(running.process.pid)
        each, all_together = await _calls(running, count, workers)
        return Calls(each, all_together, measure.cpu(running.process.pid) - before)


async def _calls(running: RunningPlugin, count: int, workers: int) -> tuple[Sequence[float], float]:
    if GO in plugin_process.PLUGINS:
        command = go_client("calls", running, str(count), str(workers))
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
        printed = json.loads((await process.communicate())[0])
        return [each / 1e9 for each in printed["nanoseconds"]], printed["seconds"]
    async with running.client() as client:

        async def work() -> list[float]:
            times = []
            for _ in range(count):
                begin = time.monotonic()
                await client.allocate(ALLOCATE, timeout=DEADLINE)
                times.append(time.monotonic() - begin)
            return times

        begin = time.monotonic()
        found = await asyncio.gather(*[work() for _ in range(workers)])
        return [each for times in found for each in times], time.monotonic() - begin


@contextlib.asynccontextmanager
async def watching(running: RunningPlugin) -> AsyncIterator[Callable[[], Awaitable[float]]]:
    """Open a stream of lists; yield a function that waits for the next list.

    The function returns the time (`time.time`) at which the client had decoded the list.
    """
    if GO in plugin_process.PLUGINS:
        command = go_client("watch", running)
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        assert process.stdout
        lines = process.stdout

        async def next_list() -> float:
            async with asyncio.timeout(DEADLINE):
                return float(json.loads(await lines.readline())["at"]) / 1e9

        try:
            yield next_list
        finally:
            await _end(process)
        return
    async with running.client() as client:
        stream = client.list_and_watch()

        async def next_of_stream() -> float:
            async with asyncio.timeout(DEADLINE):
                await anext(stream)
            return time.time()

        async with contextlib.aclosing(stream):
            yield next_of_stream


async def _end(process: Process) -> None:
    assert process.stdin
    process.stdin.close()
    await process.wait()


def go_client(verb: str, running: RunningPlugin, *arguments: str) -> list[str]:
    """Return the command of a client.

    The client is a copy of the program, because the PSS of the plugin would be too small if both
    processes shared the pages of one file.
    """
    program, copy = Path(plugin_process.PLUGINS[GO][0]), Path(plugin_process.GENERATED.name) / "go"
    if not copy.exists():
        shutil.copy2(program, copy)
    return [str(copy), verb, str(running.socket), *arguments]


async def call_time(name: str, size: Size) -> float:
    """Return the median time of calls one after the other, in µs."""
    return measure.median((await make_calls(name, size.calls, 1)).each) * 1e6


async def call_cpu(name: str, size: Size) -> float:
    """Return the CPU time of the plugin for one call, in µs."""
    return (await make_calls(name, size.calls, 1)).cpu / size.calls * 1e6


async def calls_at_once(name: str, size: Size) -> float:
    """Return the calls per second of eight callers together."""
    return size.calls * 8 / (await make_calls(name, size.calls, 8)).all_together


async def start(name: str) -> float:
    """Return the milliseconds from the start of the process to Register."""
    async with plugin(name, 8) as running:
        return (running.registered - running.started) * 1e3


async def first_list(name: str, devices: int) -> float:
    """Return the milliseconds from the start of the process until the client has the first list."""
    async with plugin(name, devices) as running:
        registered = time.time()
        async with watching(running) as next_list:
            listed = await next_list() - registered
        return (running.registered - running.started + listed) * 1e3


async def memory(name: str, devices: int, changes: int) -> float:
    """Return the PSS in MB of a plugin that has sent `changes` more lists to one stream."""
    async with plugin(name, devices) as running, watching(running) as next_list:
        await next_list()
        for _ in range(changes):
            running.flip()
            await next_list()
        return measure.memory(running.process.pid)["pss"]


async def change_time(name: str, size: Size, *, is_cpu: bool = False) -> float:
    """Return the median milliseconds from a change of a device until the client has the list.

    With `is_cpu`, return the mean CPU time of the plugin for a change, in milliseconds.
    """
    times = []
    async with plugin(name, size.many) as running, watching(running) as next_list:
        await next_list()
        before = measure.cpu(running.process.pid)
        for _ in range(size.changes):
            begin = time.time()
            running.flip()
            times.append(await next_list() - begin)
        cpu = measure.cpu(running.process.pid) - before
    return (cpu / size.changes if is_cpu else measure.median(times)) * 1e3


async def neighbours_admissions(name: str, size: Size) -> float:
    """Return the wake-ups of an idle plugin per checkpoint that a kubelet writes."""
    async with plugin(name, 8) as running, watching(running) as next_list:
        await next_list()
        await asyncio.sleep(0.2 if size.writes > 10 else 0)
        before = measure.wake_ups(running.process.pid)
        for _ in range(size.writes):
            await asyncio.sleep(0.005)
            plugin_process.write_checkpoint(running.kubelet.directory)
        return (measure.wake_ups(running.process.pid) - before) / size.writes


# ---------------------------------------------------------------- the table


def rows(size: Size) -> list[Row]:
    """Return the rows, with the targets of our plugin."""
    rounds, many, most = size.rounds, size.many, size.most
    changed = f"one of {many:,} devices changes"
    return [
        Row("Allocate, p50, µs", partial(call_time, size=size), rounds, {GRPCIO: 0.5, GO: 2}),
        Row("CPU of a call, µs", partial(call_cpu, size=size), rounds, {GRPCIO: 0.4}),
        Row(
            "8 callers at once, calls per second",
            partial(calls_at_once, size=size), rounds, {GRPCIO: 2}, is_rate=True,
        ),
        Row("start of the process to Register, ms", start, size.starts, {GRPCIO: 1.2}),
        *[
            Row(
                f"PSS with {devices:,} devices, MB",
                partial(memory, devices=devices, changes=size.changes), 1, {GO: limit},
            )
            for devices, limit in {8: 1.4, many: 1.6, most: 3}.items()
        ],
        Row(
            f"{changed}: until the client has the list, ms",
            partial(change_time, size=size), rounds, {GO: 3},
        ),
        Row(
            f"{changed}: CPU of the plugin, ms",
            partial(change_time, size=size, is_cpu=True), rounds, {GRPCIO: 1.3},
        ),
        Row(
            f"start of the process to the first list, {many:,} devices, ms",
            partial(first_list, devices=many), size.starts, {GRPCIO: 1.75},
        ),
        Row(
            "wake-ups of an idle plugin per admission of another plugin's pod",
            # Not 0, because an idle plugin wakes up once a second.
            partial(neighbours_admissions, size=size), 1, {GRPCIO: 0.1},
        ),
    ]  # fmt: skip


def target(row: Row) -> str:
    """Return the target of our plugin in words."""
    sign = "≥" if row.is_rate else "≤"
    return ", ".join(f"{sign} {factor:g} × {SHORT[name]}" for name, factor in row.times.items())


async def measured(row: Row) -> dict[str, float]:
    """Return the median of a row for each plugin; the rounds alternate between the plugins."""
    runs = {name: partial(row.run, name) for name in plugin_process.PLUGINS}
    values: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(row.rounds):
        for name, run in runs.items():
            values[name].append(await run())
    return {name: measure.median(each) for name, each in values.items()}


async def main(*, quick: bool = False) -> None:
    """Print the table."""
    size = QUICK if quick else FULL
    if is_given("go") and is_given("grpc-go"):
        go = go_peer.build(SOURCES, "minimal-go")
        plugin_process.PLUGINS[GO] = [str(go), "plugin"]
    else:
        print("\nGo is missing (golang-go, golang-google-grpc-dev): the column of Go stays empty")
    plugin_process.generate_modules()
    shown = []
    for row in rows(size):
        found = await measured(row)
        figures = [f"{found[each]:.1f}" if each in found else "" for each in SHORT]
        ratios = [f"{found[OURS] / found[each]:.2f}" if found.get(each) else "" for each in SHORT]
        shown.append([row.title, *figures, *ratios[:2], target(row)])
    header = ["", GO, GRPCIO, OURS, "× Go", "× grpcio", "target"]
    measure.table("A plugin of kubedevices beside two minimal plugins", header, shown)


if __name__ == "__main__":
    asyncio.run(main(quick="--quick" in sys.argv))
