"""Runs checks against a stage in the order of their phases and collects what they find."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kubedevices.conformance.check import (
    Broken,
    Check,
    Finding,
    Outcome,
    Phase,
    PluginLost,
    Severity,
    Status,
    Verdict,
    verdict_of,
)
from kubedevices.conformance.stage import Stage, Target, open_stage
from kubedevices.conformance.timing import Timing
from kubedevices.errors import WireError

CHECK_LIMIT = 600.0
"""Seconds after which a check that hangs counts as broken; none comes near it."""

PLUGIN = "*"
"""Stands for a resource where a verdict is about the whole plugin of several resources."""


@dataclass(frozen=True)
class Result:
    """What one check found about one resource, and how long it took in all."""

    check: Check
    resource: str
    verdict: Verdict
    seconds: float

    @property
    def status(self) -> Status:
        """Shortcut to the verdict's."""
        return self.verdict.status


_BLOCKED = "says nothing while"

Progress = Callable[[Check, Sequence[Result]], None]
"""Called before a check with no results, and after it with its results."""


def _silence(check: Check, results: Sequence[Result]) -> None:
    """A progress that tells nobody."""


async def run_checks(
    target: Target, checks: Iterable[Check], timing: Timing, progress: Progress | None = None
) -> list[Result]:
    """Check one plugin; return the results in the order of `checks`.

    Raises `CannotAsk` when the plugin could not even be started.
    """
    checks = list(checks)
    async with open_stage(target, timing) as stage:
        runner = _Runner(stage, progress or _silence)
        await runner.run(in_order(checks))
    order = {check.id: number for number, check in enumerate(checks)}
    return sorted(runner.results, key=lambda result: (order[result.check.id], result.resource))


def in_order(checks: Iterable[Check]) -> list[Check]:
    """Return checks phase by phase, each after those it needs."""
    by_id = {check.id: check for check in checks}
    ordered: dict[str, Check] = {}

    def take(check: Check) -> None:
        for name in check.needs:
            if name in by_id and name not in ordered:
                take(by_id[name])
        ordered[check.id] = check

    for check in sorted(by_id.values(), key=lambda check: check.phase):
        take(check)
    return list(ordered.values())


def _is_of_a_resource(check: Check) -> bool:
    return check.per_resource or check.phase is Phase.ARRIVAL


class _Runner:
    def __init__(self, stage: Stage, progress: Progress) -> None:
        self.stage, self._progress = stage, progress
        self.results: list[Result] = []
        self._lost = ""

    async def run(self, checks: list[Check]) -> None:
        peaceful = [check for check in checks if check.phase <= Phase.QUIET]
        await self._run_each(peaceful, self._progress)
        await self._take_in_latecomers(peaceful)
        await self._run_each([each for each in checks if each.phase > Phase.QUIET], self._progress)

    async def _take_in_latecomers(self, done: list[Check]) -> None:
        """Make up for what was checked before some resources registered."""
        known, late = self.stage.resources, self.stage.latecomers()
        if known and late:
            self.stage.resources = late
            # Silently: for whoever watches, these checks have been counted.
            await self._run_each([each for each in done if _is_of_a_resource(each)], _silence)
            self.stage.resources = tuple(sorted({*known, *late}))

    async def _run_each(self, checks: list[Check], progress: Progress) -> None:
        loop = asyncio.get_running_loop()
        for check in checks:
            progress(check, ())
            began = loop.time()
            outcome = self._tidy(await self._try(check))
            seconds = loop.time() - began
            results = [
                Result(check, resource, verdict, seconds) for resource, verdict in outcome.items()
            ]
            self.results += results
            progress(check, results)

    async def _try(self, check: Check) -> dict[str, Verdict]:
        """Make the stage ready and run one check on every resource that it can say anything of."""
        if self._lost and (check.phase is not Phase.PROCESS or not self.stage.resources):
            return self._for_all(Verdict(Status.SKIP, self._lost))
        if blocked := self._blocked_everywhere(check):
            return blocked
        try:
            if not self.stage.resources:
                await self.stage.meet()
            if check.phase not in (Phase.ARRIVAL, Phase.PROCESS):
                await self.stage.ready()
        except Broken as error:  # at the first meeting: it does not register at all
            self._lost = "it does not register"
            return self._for_all(verdict_of(error, Severity.FAIL))
        except PluginLost as error:
            self._lost = f"it does not register any more: {error}"
            return self._for_all(Verdict(Status.SKIP, self._lost))
        process = self.stage.process if check.phase is not Phase.PROCESS else None
        was_running = process is not None and process.running
        verdicts = await self._run(check)
        if process and was_running and not process.running:
            died = f"the plugin's process ended during this check: {process.how_it_ended()}"
            for resource, verdict in verdicts.items():
                if verdict.status is Status.PASS:
                    verdicts[resource] = Verdict(Status.FAIL, died, process.last_words())
        harmful = {Status.FAIL, Status.WARN} if check.phase is Phase.RESTARTS else {Status.FAIL}
        if any(verdict.status in harmful for verdict in verdicts.values()):
            self.stage.is_suspect = True
        return verdicts

    async def _run(self, check: Check) -> dict[str, Verdict]:
        if not check.per_resource:
            return await self._judge(check, self.stage)
        verdicts = {}
        for resource in self.stage.resources:
            blocked = self._blocked(check, resource)
            if blocked:
                verdicts[resource] = blocked
            else:
                found = await self._judge(check, self.stage.plugin(resource))
                verdicts[resource] = found[next(iter(found))]
        return verdicts

    def _tidy(self, verdicts: dict[str, Verdict]) -> dict[str, Verdict]:
        """Leave the directories of the run out of what is said; they mean nothing to anybody."""
        place = self.stage.place
        known = (self.stage.probe.socket_dir, place.sockets, place.registry, place.cdi)

        def tidy(text: str) -> str:
            for directory in known:
                text = text.replace(f"{directory}/", "")
            return text

        return {
            name: Verdict(status, tidy(evidence), tidy(story))
            for name, (status, evidence, story) in verdicts.items()
        }

    async def _judge(self, check: Check, subject: object) -> dict[str, Verdict]:
        outcome: Outcome
        try:
            async with asyncio.timeout(CHECK_LIMIT):
                outcome = await check.run(subject)
        except Finding as finding:
            return self._for_all(verdict_of(finding, check.severity))
        except WireError as error:
            return self._for_all(Verdict(Status(check.severity), str(error)))
        except TimeoutError:
            return self._for_all(Verdict(Status.FAIL, f"no end within {CHECK_LIMIT:.0f} s"))
        if isinstance(outcome, dict):
            return outcome
        return self._for_all(Verdict(Status.PASS, outcome))

    def _blocked_everywhere(self, check: Check) -> dict[str, Verdict]:
        """Return a verdict for all where no resource is left to try."""
        resources = self.stage.resources if check.per_resource else (None,)
        blocked = [self._blocked(check, resource) for resource in resources]
        if not blocked or None in blocked:
            return {}
        if not check.per_resource:
            return self._for_all(blocked[0]) if blocked[0] else {}
        return {
            name: each for name, each in zip(self.stage.resources, blocked, strict=True) if each
        }

    def _blocked(self, check: Check, resource: str | None) -> Verdict | None:
        """Return why a check says nothing after what others found."""
        for result in self.results:
            if result.check.id not in check.needs:
                continue
            if resource is not None and result.resource not in (resource, PLUGIN):
                continue
            if result.status is Status.FAIL:
                return Verdict(Status.SKIP, f"{_BLOCKED} {result.check.id} fails")
            if result.verdict.evidence.startswith(_BLOCKED):
                return result.verdict
        return None

    def _for_all(self, verdict: Verdict) -> dict[str, Verdict]:
        resources = self.stage.resources
        return {resources[0] if len(resources) == 1 else PLUGIN: verdict}
