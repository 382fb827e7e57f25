"""A whole run: which rules share a copy of the driver, and which have a copy of their own.

Rules without a track run one after another on one copy. Each track has a copy, an API server and a
kubelet of its own. A limited number of copies works at the same time. Copies whose rules only wait,
for example for the 60 s of upstream's helper, all begin at once: their waits pass side by side.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kubedevices.check.check import PluginCheck, PluginLost, Status, Verdict, judged
from kubedevices.check.drivers.node import DriverNode
from kubedevices.check.drivers.node_setup import open_node
from kubedevices.check.drivers.rights import least_role
from kubedevices.check.drivers.rules import DIES
from kubedevices.check.drivers.target import AFTERWARDS, TRIGGERED, DriverTarget
from kubedevices.check.drivers.timing import DriverTiming
from kubedevices.check.kubelets import SUPPORTED, Kubelets
from kubedevices.check.results import CheckResult, Progress, ResultCollector, RunResult, silence
from kubedevices.check.shared_state import DeviceChanges, SharedState
from kubedevices.errors import DriverNeverRegistered

RULE_LIMIT, LONG_LIMIT = 600.0, 3600.0
"""Seconds after which a rule that hangs fails; the second in a long run."""


async def run_driver(
    target: DriverTarget,
    rules: Iterable[PluginCheck],
    timing: DriverTiming,
    progress: Progress | None = None,
    kubelets: Kubelets = SUPPORTED,
) -> RunResult:
    """Check one driver; return the results in the order of `rules`, and its output.

    Raises `PluginNotStarted`, `DriverNeverRegistered` and `NoPrivateView`.
    """
    judged = [(rule, kubelets.severity(rule)) for rule in rules]
    chosen = [replace(rule, severity=how) for rule, how in judged if how is not None]
    shared = SharedState(DeviceChanges(target.trigger))
    collector = ResultCollector(chosen, progress or silence)
    await _Run(target, timing, shared, collector).run(chosen)
    results = collector.finish(shared, DIES)
    role = least_role(shared.rights)
    return RunResult(results, shared.logs, shared.changes.problem, role, shared.requests)


@dataclass(frozen=True)
class _Run:
    _target: DriverTarget
    _timing: DriverTiming
    _shared: SharedState
    _collector: ResultCollector

    async def run(self, rules: Sequence[PluginCheck]) -> None:
        tracks: dict[str, list[PluginCheck]] = defaultdict(list)
        for rule in rules:
            tracks[rule.track].append(rule)
        main, triggered = tracks.pop("", []), tracks.pop(TRIGGERED, [])
        afterwards = tracks.pop(AFTERWARDS, [])
        aside = sorted(tracks.values(), key=_urgency)
        async with open_node(self._target, self._timing, self._shared) as node:
            await self._first_start(node)
            if self._target.at_once > 1:
                await self._beside(node, main, aside)
            else:
                await self._publishes(node)
                await self._all(node, main)
                await node.end_processes()
                for track in aside:
                    await self._apart(node, track)
            await self._all(node, triggered)
            self._shared.rights |= node.cluster.used_rights()
            for rule in afterwards:
                self._end(node, rule, await self._judged(node, rule), 0)
            await node.end_processes()

    async def _first_start(self, node: DriverNode) -> None:
        """Start the first copy; it tells whether the program is a driver at all."""
        await node.start_fresh()
        if problem := await node.until_registered(self._timing.start):
            raise DriverNeverRegistered(problem, node.last_words())
        self._shared.resources = (node.driver,)

    async def _publishes(self, node: DriverNode) -> None:
        if problem := await node.until_ready(self._timing.start):
            raise DriverNeverRegistered(problem, node.last_words())

    async def _beside(
        self, node: DriverNode, main: list[PluginCheck], aside: list[list[PluginCheck]]
    ) -> None:
        """Run the rules of `main` on one copy, and each track of `aside` on a copy of its own.

        The copies start as soon as the first is registered: it may publish only much later, when
        its kubelet has served for some seconds. Copies that wait take no place.
        """
        places = asyncio.Semaphore(self._target.at_once - 1)

        async def one(track: list[PluginCheck]) -> None:
            waits = all(rule.waits for rule in track)
            async with contextlib.nullcontext() if waits else places:
                await self._apart(node, track)

        copies = [asyncio.create_task(one(track), name=f"rule {track[0].id}") for track in aside]
        try:
            await self._publishes(node)
            await self._all(node, main)
            await asyncio.gather(*copies)
        finally:
            for each in copies:
                each.cancel()
            await asyncio.gather(*copies, return_exceptions=True)

    async def _apart(self, first: DriverNode, rules: Sequence[PluginCheck]) -> None:
        async with open_node(self._target, self._timing, self._shared, first) as node:
            await self._all(node, rules)
            await node.end_processes()

    async def _all(self, node: DriverNode, rules: Sequence[PluginCheck]) -> None:
        for rule in rules:
            await self._one(node, rule)

    async def _one(self, node: DriverNode, rule: PluginCheck) -> None:
        self._collector.begin(rule)
        began = asyncio.get_running_loop().time()
        verdict = await self._verdict(node, rule)
        self._end(node, rule, verdict, asyncio.get_running_loop().time() - began)

    def _end(self, node: DriverNode, rule: PluginCheck, verdict: Verdict, seconds: float) -> None:
        short = verdict._replace(evidence=node.without_directories(verdict.evidence))
        driver = self._shared.resources[0]
        self._collector.end(rule, [CheckResult(rule, driver, short, seconds)])

    async def _verdict(self, node: DriverNode, rule: PluginCheck) -> Verdict:
        node.checking = rule.id
        if blocked := self._collector.blocked(rule, None):
            return blocked
        try:
            if not rule.starts:
                await node.ready()
        except PluginLost as error:
            self._shared.record_end(node.process, str(error), node.last_words())
            return Verdict(Status.SKIP, f"it does not register any more: {error}")
        process = node.process
        verdict = await self._judged(node, rule)
        if verdict.status in (Status.FAIL, Status.WARN):
            node.is_suspect |= verdict.status is Status.FAIL
            if process is not None and not node.is_connected():  # the connection ends first
                await node.lost_time.wait(process.wait, node.timing.hold)
        if process is node.process and process is not None and not process.running:
            # Rules that end the driver themselves say so by their verdict.
            if not rule.track and process.code != 0:
                when = f"its process ended ({process.end_text()}) during {rule.id}"
                self._shared.record_end(process, when, process.last_words())
            node.is_suspect = True
        return verdict

    async def _judged(self, node: DriverNode, rule: PluginCheck) -> Verdict:
        limit = LONG_LIMIT if self._target.long else RULE_LIMIT
        found = await judged(rule, node, limit, node.last_words)
        assert isinstance(found, Verdict)
        return found


def _urgency(track: Sequence[PluginCheck]) -> tuple[bool, bool, int]:
    """Return the key by which tracks are sorted: those that may take longest begin first."""
    starts = all(rule.starts for rule in track)
    return (not any(rule.slow for rule in track), starts, -max(len(rule.needs) for rule in track))
