"""Runs all checks: one after another on one copy of the plugin, or each track on its own copy.

Each track has its own directories, processes and kubelet, so tracks do not disturb each other. But
all copies share the devices. So checks that change devices run after the main track, which compares
whole lists. The other tracks do not judge devices that change (`shared_state.DeviceChanges`).
"""

import asyncio
import contextlib
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from kubedevices.check.check import NotPassed, Phase, PluginCheck, PluginLost, Status, Verdict
from kubedevices.check.check_sequence import CheckSequence
from kubedevices.check.checks import CHANGES_TRACK, DIES_CHECK
from kubedevices.check.harness import Harness
from kubedevices.check.harness_setup import open_harness
from kubedevices.check.kubelets import SUPPORTED, Kubelets
from kubedevices.check.plugin import Plugin
from kubedevices.check.program_copy import watched
from kubedevices.check.results import (
    PLUGIN,
    CheckResult,
    Progress,
    ResultCollector,
    RunResult,
    silence,
)
from kubedevices.check.shared_state import DeviceChanges, SharedState
from kubedevices.check.target import Target
from kubedevices.check.timing import CheckTiming
from kubedevices.errors import PluginNotStarted, WireError

LONGEST_WORK = 1.0
"""Processor seconds assumed for a start if they cannot be measured; some plugins sleep for 10 s."""

WORK_OF_SUPERVISOR = 0.1
"""Processor seconds for the start of the supervisor of each copy."""


async def run_all(
    target: Target,
    checks: Iterable[PluginCheck],
    timing: CheckTiming,
    progress: Progress | None = None,
    kubelets: Kubelets = SUPPORTED,
) -> RunResult:
    """Check one plugin; return the results in the order of `checks`, and the plugin's output.

    Raises `CannotAsk` if the plugin cannot be started or never registers, and `UnknownResource`.
    """
    judged = [(check, kubelets.severity(check)) for check in checks]
    chosen = [replace(check, severity=how) if how else check for check, how in judged]
    shared = SharedState(DeviceChanges(target.trigger))
    collector = ResultCollector(chosen, progress or silence)
    harmless = {check.id for check, how in judged if how is None}
    for check in chosen:
        if check.id in harmless:
            why = f"kubelet {kubelets} does no such harm, only {kubelets.harmful(check)}"
            collector.end(check, [CheckResult(check, PLUGIN, Verdict(Status.SKIP, why), 0.0)])
    to_try = [check for check in chosen if check.id not in harmless]
    async with watched(shared.lost_time):
        await _Scheduler(target, timing, shared, collector).run(in_order(to_try))
    results = collector.finish(shared, DIES_CHECK)
    return RunResult(results, shared.logs, shared.changes.problem)


def in_order(checks: Iterable[PluginCheck]) -> list[PluginCheck]:
    """Return checks by phase and then by track, each check after the checks that it needs."""
    by_id = {check.id: check for check in checks}
    ordered: dict[str, PluginCheck] = {}

    def take(check: PluginCheck) -> None:
        for name in check.needs:
            if name in by_id and name not in ordered:
                take(by_id[name])
        ordered[check.id] = check

    tracks = [check.track for check in by_id.values()]
    for check in sorted(by_id.values(), key=lambda each: (each.phase, tracks.index(each.track))):
        take(check)
    return list(ordered.values())


def seconds_apart(shared: SharedState) -> float:
    """Return the seconds between the starts of two copies, so that they do not share a processor.

    Only the processor time of a start counts: while a start waits, another copy may start.
    """
    work = min(shared.usual_start, shared.work_of_start or LONGEST_WORK, LONGEST_WORK)
    return (work + WORK_OF_SUPERVISOR) / (os.cpu_count() or 1)


class _Scheduler:
    """Decides which checks run on which copy of the plugin, and when."""

    def __init__(
        self, target: Target, timing: CheckTiming, shared: SharedState, collector: ResultCollector
    ) -> None:
        self._target, self._timing = target, timing
        self._shared, self._collector = shared, collector

    async def run(self, checks: list[PluginCheck]) -> None:
        arrival = [check for check in checks if check.phase is Phase.ARRIVAL]
        done = arrival or checks[:1]  # the first check starts the plugin
        tracks: dict[str, list[PluginCheck]] = defaultdict(list)
        for check in checks:
            if check not in done:
                tracks[check.id if check.alone else check.track].append(check)
        aside = {name: each for name, each in tracks.items() if name not in ("", CHANGES_TRACK)}
        async with open_harness(self._target, self._timing, self._shared) as harness:
            main = CheckSequence(harness, self._collector)
            if not (self._target.side_by_side and self._target.command and aside):
                await self._one_by_one(main, checks)
                return
            await main.run(done)
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(_asking_allocate(main.harness))
                first = await self._open_beside(main, stack)
                if first is None:
                    await self._one_by_one(main, checks, done)
                    return
                await self._side_by_side(main, first, tracks, aside)

    async def _one_by_one(
        self,
        main: CheckSequence,
        checks: Sequence[PluginCheck],
        done: Sequence[PluginCheck] = (),
    ) -> None:
        self._shared.changes.may_go_on.set()
        peaceful = [check for check in checks if check.phase <= Phase.QUIET]
        await main.run([check for check in peaceful if check not in done])
        await main.check_late_resources(peaceful)
        later = [check for check in checks if check.phase > Phase.QUIET]
        await main.run([check for check in later if check not in done])
        await main.look_back()

    async def _open_beside(self, main: CheckSequence, stack: AsyncExitStack) -> Harness | None:
        """Return a second harness if a second copy of the plugin can run beside the first.

        A second copy cannot run, for example, if both need the same port. Then the first copy is
        started afresh, because the second may have harmed it.
        """
        if main.is_lost or not main.harness.is_connected():
            return None
        trial = AsyncExitStack()
        harness = await trial.enter_async_context(
            open_harness(self._target, self._timing, self._shared)
        )
        harness.checking = "a second copy of the plugin"
        try:
            await harness.ready()
            await harness.pause(self._timing.hold)
        except (PluginLost, PluginNotStarted):
            pass
        # Both must be ready: if two copies want one port, either copy may fail.
        if harness.is_ready() and main.harness.is_ready():
            stack.push_async_exit(trial)
            return harness
        await trial.aclose()
        main.forget_process()
        return None

    async def _side_by_side(
        self,
        main: CheckSequence,
        first: Harness,
        tracks: dict[str, list[PluginCheck]],
        aside: dict[str, list[PluginCheck]],
    ) -> None:
        # Tracks with slow checks begin first, then those that may wait long for a plugin that never
        # returns. The starts of copies are `apart` seconds apart.
        names = sorted(aside, key=lambda name: _urgency(aside[name]))
        tasks = [asyncio.create_task(self._on(first, aside[names[0]]), name=names[0])]
        apart = seconds_apart(self._shared)
        tasks += [
            asyncio.create_task(self._on_its_own(aside[name], number * apart), name=name)
            for number, name in enumerate(names[1:])
        ]
        tasks.append(asyncio.create_task(self._on_main(main, tracks[""], tracks[CHANGES_TRACK])))
        try:
            await asyncio.gather(*tasks)
            await main.look_back()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _on_main(
        self, main: CheckSequence, left: list[PluginCheck], changes: list[PluginCheck]
    ) -> None:
        await main.run(left)
        await main.check_late_resources(left)
        await main.run(changes)
        self._shared.changes.may_go_on.set()

    async def _on_its_own(self, checks: list[PluginCheck], delay: float) -> None:
        await asyncio.sleep(delay)
        async with open_harness(self._target, self._timing, self._shared) as harness:
            await self._on(harness, checks)

    async def _on(self, harness: Harness, checks: list[PluginCheck]) -> None:
        sequence = CheckSequence(harness, self._collector)
        await sequence.run(checks)
        await sequence.check_late_resources([each for each in checks if each.phase <= Phase.QUIET])
        await sequence.look_back()
        await harness.end_processes()


@asynccontextmanager
async def _asking_allocate(harness: Harness) -> AsyncIterator[None]:
    """Ask for a device meanwhile: if that hangs, no copy needs to wait for it all over again."""

    async def ask(plugin: Plugin) -> None:
        with contextlib.suppress(NotPassed, WireError):
            await plugin.try_allocate()

    asked = [Plugin.of(harness, each) for each in harness.resources if harness.is_connected()]
    tasks = [asyncio.create_task(ask(each), name="first Allocate") for each in asked]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _urgency(track: Sequence[PluginCheck]) -> tuple[bool, bool, int]:
    """Return the key by which tracks are sorted: the one that may take longest begins first."""
    return (
        not any(check.slow for check in track),
        track[0].phase < Phase.RESTARTS,
        -len(track),
    )
