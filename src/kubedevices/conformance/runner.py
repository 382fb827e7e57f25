"""Runs checks: one after another on one plugin, or side by side, each track on a plugin of its own.

Tracks have directories, processes and a kubelet of their own, so none can disturb another. Devices
are everybody's: what makes them change comes after the main track, which compares whole lists, and
the other tracks expect nothing of devices that change, see `trigger.Changes`.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from kubedevices.conformance.board import PLUGIN, CheckResult, Progress, ResultCollector, silence
from kubedevices.conformance.check import Phase, PluginCheck, PluginLost, Status, Verdict
from kubedevices.conformance.checks import CHANGES, CHANGING, DIES
from kubedevices.conformance.kubelets import SUPPORTED, Kubelets
from kubedevices.conformance.line import StageRunner
from kubedevices.conformance.notes import Death, Log, Notes
from kubedevices.conformance.stage import Stage, open_stage
from kubedevices.conformance.target import Target
from kubedevices.conformance.timing import CheckTiming
from kubedevices.conformance.trigger import Changes
from kubedevices.errors import PluginNotStarted

LONGEST_WORK = 1.0
"""Seconds of work in the start of a plugin that cannot be looked into; some sleep for ten."""

WORK_BESIDE = 0.1
"""The same of what is started for each copy beside it: the supervisor."""

__all__ = ["CheckResult", "StageResult", "run_all", "run_checks"]


@dataclass(frozen=True)
class StageResult:
    """A run that is over: its results in the order of the checks, and what the plugin printed."""

    results: list[CheckResult]
    logs: Sequence[Log] = ()


async def run_checks(
    target: Target,
    checks: Iterable[PluginCheck],
    timing: CheckTiming,
    progress: Progress | None = None,
    kubelets: Kubelets = SUPPORTED,
) -> list[CheckResult]:
    """Check one plugin; return the results in the order of `checks`.

    Raises `CannotAsk` when the plugin could not even be started.
    """
    return (await run_all(target, checks, timing, progress, kubelets)).results


async def run_all(
    target: Target,
    checks: Iterable[PluginCheck],
    timing: CheckTiming,
    progress: Progress | None = None,
    kubelets: Kubelets = SUPPORTED,
) -> StageResult:
    """Do the same and return everything there is for a report."""
    judged = [(check, kubelets.severity(check)) for check in checks]
    chosen = [replace(check, severity=how) if how else check for check, how in judged]
    notes = Notes(Changes(target.trigger))
    board = ResultCollector(chosen, progress or silence)
    harmless = {check.id for check, how in judged if how is None}
    for check in chosen:
        if check.id in harmless:
            why = f"kubelet {kubelets} does no such harm, only {kubelets.harmful(check)}"
            board.end(check, [CheckResult(check, PLUGIN, Verdict(Status.SKIP, why), 0.0)])
    to_try = [check for check in chosen if check.id not in harmless]
    await _Run(target, timing, notes, board).run(in_order(to_try))
    results = board.finish()
    if deaths := unreported_deaths(notes, results):
        first, names = deaths[0], notes.resources
        resource = names[0] if len(names) == 1 else PLUGIN
        board.died(DIES, resource, first.when, first.words, len(deaths))
        results = board.finish()
    return StageResult(results, notes.logs)


def unreported_deaths(notes: Notes, results: Iterable[CheckResult]) -> list[Death]:
    """Return the ends that nobody asked for and that the checks of changes have not told."""
    told = any(each.status is Status.FAIL and each.check.id in CHANGING for each in results)
    return [each for each in notes.deaths if not (told and each.is_by_change)]


def in_order(checks: Iterable[PluginCheck]) -> list[PluginCheck]:
    """Return checks phase by phase and track by track, each after those it needs."""
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


def seconds_apart(notes: Notes) -> float:
    """Return the pause between the starts of two copies, each of which needs a processor for it.

    What a start takes longer than its work it waits for something, and others may begin.
    """
    work = min(notes.usual_start, notes.work_of_start or LONGEST_WORK, LONGEST_WORK)
    return (work + WORK_BESIDE) / (os.cpu_count() or 1)


class _Run:
    def __init__(
        self, target: Target, timing: CheckTiming, notes: Notes, board: ResultCollector
    ) -> None:
        self._target, self._timing = target, timing
        self._notes, self._board = notes, board

    async def run(self, checks: list[PluginCheck]) -> None:
        arrival = [check for check in checks if check.phase is Phase.ARRIVAL]
        done = arrival or checks[:1]  # whatever it is, the plugin is met for it
        tracks: dict[str, list[PluginCheck]] = defaultdict(list)
        for check in checks:
            if check not in done:
                tracks[check.id if check.alone else check.track].append(check)
        aside = {name: each for name, each in tracks.items() if name not in ("", CHANGES)}
        async with open_stage(self._target, self._timing, self._notes) as stage:
            main = StageRunner(stage, self._board)
            if not (self._target.side_by_side and self._target.command and aside):
                await self._one_by_one(main, checks)
                return
            await main.run(done)
            async with AsyncExitStack() as stack:
                first = await self._open_beside(main, stack)
                if first is None:
                    await self._one_by_one(main, checks, done)
                    return
                await self._side_by_side(main, first, tracks, aside)

    async def _one_by_one(
        self,
        main: StageRunner,
        checks: Sequence[PluginCheck],
        done: Sequence[PluginCheck] = (),
    ) -> None:
        self._notes.changes.may_go_on.set()
        peaceful = [check for check in checks if check.phase <= Phase.QUIET]
        await main.run([check for check in peaceful if check not in done])
        await main.check_late_resources(peaceful)
        later = [check for check in checks if check.phase > Phase.QUIET]
        await main.run([check for check in later if check not in done])

    async def _open_beside(self, main: StageRunner, stack: AsyncExitStack) -> Stage | None:
        """Return a second stage if a second plugin can run beside the first; both may need a port.

        If it cannot, the first is started afresh, because the second may have harmed it.
        """
        if main.is_lost or not main.stage.is_connected():
            return None
        trial = AsyncExitStack()
        stage = await trial.enter_async_context(open_stage(self._target, self._timing, self._notes))
        stage.checking = "a second plugin beside the first"
        try:
            await stage.ready()
            await stage.pause(self._timing.hold)
        except (PluginLost, PluginNotStarted):
            pass
        # Both: two copies may want one port, and either of them may be the loser.
        if stage.is_ready() and main.stage.is_ready():
            stack.push_async_exit(trial)
            return stage
        await trial.aclose()
        main.stage.is_suspect = True
        return None

    async def _side_by_side(
        self,
        main: StageRunner,
        first: Stage,
        tracks: dict[str, list[PluginCheck]],
        aside: dict[str, list[PluginCheck]],
    ) -> None:
        # What waits longest begins first, and no two copies start in the same moment.
        names = sorted(
            aside, key=lambda name: (-any(c.slow for c in aside[name]), -len(aside[name]))
        )
        tasks = [asyncio.create_task(self._on(first, aside[names[0]]), name=names[0])]
        apart = seconds_apart(self._notes)
        tasks += [
            asyncio.create_task(self._on_its_own(aside[name], number * apart), name=name)
            for number, name in enumerate(names[1:])
        ]
        tasks.append(asyncio.create_task(self._on_main(main, tracks[""], tracks[CHANGES])))
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _on_main(
        self, main: StageRunner, left: list[PluginCheck], changes: list[PluginCheck]
    ) -> None:
        await main.run(left)
        await main.check_late_resources(left)
        await main.run(changes)
        self._notes.changes.may_go_on.set()

    async def _on_its_own(self, checks: list[PluginCheck], delay: float) -> None:
        await asyncio.sleep(delay)
        async with open_stage(self._target, self._timing, self._notes) as stage:
            await self._on(stage, checks)

    async def _on(self, stage: Stage, checks: list[PluginCheck]) -> None:
        line = StageRunner(stage, self._board)
        await line.run(checks)
        await line.check_late_resources([each for each in checks if each.phase <= Phase.QUIET])
        await stage.end_processes()
