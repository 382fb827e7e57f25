"""Runs checks one after another on one stage, and says what an end of the plugin means."""

import asyncio
from collections.abc import Sequence

from kubedevices.conformance.board import PLUGIN, CheckResult, ResultCollector
from kubedevices.conformance.check import (
    Broken,
    NotPassed,
    Outcome,
    Phase,
    PluginCheck,
    PluginLost,
    Severity,
    Status,
    Verdict,
    verdict_of,
)
from kubedevices.conformance.checks import CHANGING
from kubedevices.conformance.plugin import Plugin
from kubedevices.conformance.processes import Process
from kubedevices.conformance.stage import Stage
from kubedevices.errors import WireError

CHECK_LIMIT = 600.0
"""Seconds after which a check that hangs counts as broken; none comes near it."""

AT_ONCE = 0.1
"""Seconds in which a check that is skipped has disturbed nothing: it may lack a trigger."""


class StageRunner:
    """The checks of one stage, in order."""

    def __init__(self, stage: Stage, board: ResultCollector) -> None:
        self.stage, self._board = stage, board
        self.is_lost = False
        self._why_lost = ""
        self._alive: Process | None = None  # ran when the last check was over

    async def run(self, checks: Sequence[PluginCheck]) -> None:
        """Try the checks."""
        for check in checks:
            self._board.begin(check)
            await self._run_one(check)

    async def check_late_resources(self, done: Sequence[PluginCheck]) -> None:
        """Make up for what was checked before some resources registered."""
        known, late = self.stage.resources, self.stage.late_resources()
        if known and late:
            self.stage.resources = late
            for check in done:
                if check.per_resource or check.phase is Phase.ARRIVAL:
                    await self._run_one(check)
            self.stage.resources = tuple(sorted({*known, *late}))
            self.stage.notes.resources = self.stage.resources

    async def _run_one(self, check: PluginCheck) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        outcome = self._tidy(await self._try(check))
        seconds = loop.time() - began
        self._board.end(
            check,
            [
                CheckResult(check, resource, verdict, seconds)
                for resource, verdict in outcome.items()
            ],
        )

    async def _try(self, check: PluginCheck) -> dict[str, Verdict]:
        """Make the stage ready and run one check on every resource that it can say anything of."""
        stage = self.stage
        stage.checking = check.id
        if self.is_lost and (check.phase is not Phase.PROCESS or not stage.resources):
            return self._for_all(Verdict(Status.SKIP, self._why_lost))
        if blocked := self._blocked_everywhere(check):
            return blocked
        # If the check before has told of a failure, a plugin that is lost now is no news.
        was_suspect = stage.is_suspect
        try:
            await self._prepare(check)
        except Broken as error:  # at the first meeting: it does not register at all
            self.is_lost, self._why_lost = True, "it does not register"
            return self._for_all(verdict_of(error, Severity.FAIL))
        except PluginLost as error:
            self._lose(str(error), told=was_suspect)
            return self._for_all(Verdict(Status.SKIP, self._why_lost))
        process = stage.process if check.phase is not Phase.PROCESS else None
        # A process that had ended before is not this check's doing.
        was_running = process is not None and process.running
        began, changes = asyncio.get_running_loop().time(), stage.notes.changes.runs
        verdicts = await self._run(check)
        said = {verdict.status for verdict in verdicts.values()}
        tried = said != {Status.SKIP} or stage.spent(began) > AT_ONCE
        # Some plugins die of a disturbance only a moment after it.
        if check.disturbs and tried:
            await stage.pause(stage.timing.linger)
        if process and was_running and not process.running:
            verdicts = self._after_death(check, process, process.ended_at - began, verdicts)
        if process and check.id not in CHANGING and stage.notes.changes.runs != changes:
            stage.notes.blame_change(process)
        harmful = {Status.FAIL, Status.WARN} if check.phase is Phase.RESTARTS else {Status.FAIL}
        if any(verdict.status in harmful for verdict in verdicts.values()):
            stage.is_suspect = True
        self._alive = process if process and process.running else None
        return verdicts

    async def _prepare(self, check: PluginCheck) -> None:
        stage = self.stage
        if not stage.resources:
            await stage.start_first()
        if check.phase in (Phase.ARRIVAL, Phase.PROCESS):
            return
        if self._alive and self._alive is stage.process and not self._alive.running:
            how = self._alive.end_text()
            when = f"its process ended ({how}) while nothing was asked of it"
            stage.notes.died(self._alive, when, self._alive.last_words())
        if check.phase is Phase.RESTARTS and stage.notes.deaths and stage.target.command:
            stage.is_suspect = True  # what dies of a restart must not do so in the next check
        await stage.ready()
        if check.disturbs:
            await stage.wait_after_register()

    def _lose(self, why: str, *, told: bool) -> None:
        """Go on without the plugin; unless a check has just told so, this is a failure."""
        self.is_lost, self._why_lost = True, f"it does not register any more: {why}"
        if self.stage.target.command or not told:
            self.stage.notes.died(self.stage.process, self._why_lost, self.stage.last_words())

    def _after_death(
        self, check: PluginCheck, process: Process, after: float, verdicts: dict[str, Verdict]
    ) -> dict[str, Verdict]:
        """Say once that the process ended, where it belongs: here, or in a check of its own."""
        how, words = process.end_text(), process.last_words()
        said = {verdict.status for verdict in verdicts.values()}
        passes = said == {Status.PASS}
        if check.phase is Phase.QUIET:
            when = f"its process ended ({how}) while nothing was asked of it"
            self.stage.notes.died(process, when, words)
            return self._for_all(Verdict(Status.SKIP, f"its process ended meanwhile ({how})"))
        if check.phase is Phase.RESTARTS:
            if passes or (said <= {Status.PASS, Status.SKIP} and not process.gave_up()):
                when = f"its process ended ({how}) {after:.1f} s after {check.id} began"
                self.stage.notes.died(process, when, words)
            return verdicts
        found = "; ".join({each.evidence for each in verdicts.values()} if not passes else ())
        text = f"its process ended ({how}) {after:.1f} s after the check began"
        return self._for_all(
            Verdict(Status.FAIL, f"{text}: {found}" if found and how not in found else text, words)
        )

    async def _run(self, check: PluginCheck) -> dict[str, Verdict]:
        if not check.per_resource:
            return await self._judge(check, self.stage)
        verdicts = {}
        for resource in self.stage.resources:
            blocked = self._board.blocked(check, resource)
            if blocked:
                verdicts[resource] = blocked
            else:
                found = await self._judge(check, Plugin.of(self.stage, resource))
                verdicts[resource] = found[next(iter(found))]
        return verdicts

    def _tidy(self, verdicts: dict[str, Verdict]) -> dict[str, Verdict]:
        """Leave the directories of the run out of what is said; they mean nothing to anybody."""
        tidy = self.stage.tidy
        return {
            name: Verdict(status, tidy(evidence), tidy(story))
            for name, (status, evidence, story) in verdicts.items()
        }

    async def _judge(self, check: PluginCheck, subject: object) -> dict[str, Verdict]:
        outcome: Outcome
        try:
            async with asyncio.timeout(CHECK_LIMIT):
                outcome = await check.run(subject)
        except NotPassed as finding:
            return self._for_all(verdict_of(finding, check.severity))
        except WireError as error:
            return self._for_all(Verdict(Status(check.severity), str(error)))
        except TimeoutError:
            return self._for_all(Verdict(Status.FAIL, f"no end within {CHECK_LIMIT:.0f} s"))
        if isinstance(outcome, dict):
            return {name: _at_most(verdict, check.severity) for name, verdict in outcome.items()}
        return self._for_all(Verdict(Status.PASS, outcome))

    def _blocked_everywhere(self, check: PluginCheck) -> dict[str, Verdict]:
        """Return a verdict for all where no resource is left to try."""
        resources = self.stage.resources if check.per_resource else (None,)
        blocked = [self._board.blocked(check, resource) for resource in resources]
        if not blocked or None in blocked:
            return {}
        if not check.per_resource:
            return self._for_all(blocked[0]) if blocked[0] else {}
        return {
            name: each for name, each in zip(self.stage.resources, blocked, strict=True) if each
        }

    def _for_all(self, verdict: Verdict) -> dict[str, Verdict]:
        resources = self.stage.resources
        return {resources[0] if len(resources) == 1 else PLUGIN: verdict}


def _at_most(verdict: Verdict, severity: Severity) -> Verdict:
    """Return a verdict that is not worse than the severity of its check."""
    if verdict.status not in (Status.FAIL, Status.WARN):
        return verdict
    worst = min(Severity(verdict.status), severity, key=list(Severity).index)
    return verdict._replace(status=Status(worst))
