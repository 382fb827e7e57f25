"""Runs checks one after another on one harness, and judges an unexpected end of the plugin."""

import asyncio
from collections.abc import Sequence

from kubedevices.check.check import (
    FAIL,
    Broken,
    Phase,
    PluginCheck,
    PluginLost,
    Status,
    Verdict,
    judged,
    verdict_of,
)
from kubedevices.check.checks import REGISTERS_CHECK, TRIGGER_CHECKS
from kubedevices.check.harness import Harness
from kubedevices.check.plugin import Plugin
from kubedevices.check.processes import Process
from kubedevices.check.results import PLUGIN, CheckResult, ResultCollector
from kubedevices.errors import NeverRegistered

CHECK_LIMIT = 600.0
"""Seconds after which a check that hangs fails. Every check is much faster."""

SKIPPED_AT_ONCE = 0.1
"""Seconds. A check that is skipped faster, for example for want of a trigger, did nothing."""


class CheckSequence:
    """Runs the checks of one harness, in order."""

    def __init__(self, harness: Harness, collector: ResultCollector) -> None:
        self.harness, self._collector = harness, collector
        self.is_lost = False
        self._why_lost = ""
        self._alive: Process | None = None  # the process at the end of the previous check
        self._looked_at = 0.0  # when this check ended

    async def run(self, checks: Sequence[PluginCheck]) -> None:
        """Run the checks and give their results to the collector."""
        for check in checks:
            self._collector.begin(check)
            await self._run_one(check)

    async def look_back(self) -> None:
        """Wait a moment, and record it if the process ends: some plugins end a second later."""
        if self._alive and self._alive.running:
            past = self.harness.spent(self._looked_at)
            await self.harness.pause(self.harness.timing.after_register - past)
        self._record_late_end()

    def forget_process(self) -> None:
        """Start the plugin afresh before the next check: something else may have harmed it."""
        self.harness.is_suspect, self._alive = True, None

    def _record_late_end(self) -> None:
        """Record the end of the process that ran when the last check was over."""
        alive = self._alive
        if alive and alive is self.harness.process and not alive.running:
            self.harness.shared.record_end(alive, _ended_between_calls(alive), alive.last_words())

    async def check_late_resources(self, done: Sequence[PluginCheck]) -> None:
        """Repeat the checks `done` for resources that registered after these checks."""
        known, late = self.harness.resources, self.harness.late_resources()
        if known and late:
            self.harness.resources = late
            for check in done:
                if check.per_resource or check.phase is Phase.ARRIVAL:
                    await self._run_one(check)
            self.harness.resources = tuple(sorted({*known, *late}))
            self.harness.shared.resources = self.harness.resources

    async def _run_one(self, check: PluginCheck) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        outcome = self._without_directories(await self._try(check))
        seconds = loop.time() - began
        self._collector.end(
            check,
            [
                CheckResult(check, resource, verdict, seconds)
                for resource, verdict in outcome.items()
            ],
        )

    async def _try(self, check: PluginCheck) -> dict[str, Verdict]:
        """Prepare the plugin, and run the check on each resource whose needed checks passed.

        Raises `NeverRegistered` if the plugin does not register, unless the check is about this.
        """
        harness = self.harness
        harness.checking = check.id
        if self.is_lost and (check.phase is not Phase.PROCESS or not harness.resources):
            return self._for_all(Verdict(Status.SKIP, self._why_lost))
        if blocked := self._blocked_everywhere(check):
            return blocked
        limit = harness.timing.last_begin
        if check.phase > Phase.ARRIVAL and harness.shared.spent() > limit:
            return self._for_all(Verdict(Status.SKIP, f"not begun within {limit:g} s (--quick)"))
        # If the previous check failed, its result already reports the lost plugin.
        was_suspect = harness.is_suspect
        try:
            await self._prepare(check)
        except Broken as error:  # at the first start: the plugin does not register at all
            if check.id != REGISTERS_CHECK.id:
                raise NeverRegistered(error.evidence, error.story) from error
            self.is_lost, self._why_lost = True, "it does not register"
            return self._for_all(verdict_of(error, FAIL))
        except PluginLost as error:
            self._lose(str(error), is_reported=was_suspect)
            return self._for_all(Verdict(Status.SKIP, self._why_lost))
        process = harness.process if check.phase is not Phase.PROCESS else None
        # If the process has ended before, this check is not the cause.
        was_running = process is not None and process.running
        began, changes = asyncio.get_running_loop().time(), harness.shared.changes.runs
        verdicts = await self._run(check)
        statuses = {verdict.status for verdict in verdicts.values()}
        tried = statuses != {Status.SKIP} or harness.spent(began) > SKIPPED_AT_ONCE
        # Some plugins exit later, within a second after the disturbance.
        if check.disturbs and tried:
            await harness.pause(harness.timing.linger)
        elif process and statuses & {Status.FAIL, Status.WARN}:
            # The end of a process is seen later than the end of its connections.
            await harness.until_ended(process, harness.timing.hold)
        if process and was_running and not process.running:
            verdicts = self._after_end(check, process, process.ended_at - began, verdicts)
        if process and check.id not in TRIGGER_CHECKS and harness.shared.changes.runs != changes:
            harness.shared.mark_during_change(process)
        harmful = {Status.FAIL, Status.WARN} if check.phase is Phase.RESTARTS else {Status.FAIL}
        if any(verdict.status in harmful for verdict in verdicts.values()):
            harness.is_suspect = True
        self._alive = process if process and process.running else None
        self._looked_at = asyncio.get_running_loop().time()
        return verdicts

    async def _prepare(self, check: PluginCheck) -> None:
        harness = self.harness
        if not harness.resources:
            await harness.start_first()
        self._record_late_end()
        if check.phase in (Phase.ARRIVAL, Phase.PROCESS):
            return
        has_ended = bool(harness.shared.unexpected_ends)
        if check.phase is Phase.RESTARTS and has_ended and harness.target.command:
            # The plugin has ended before. Start a new process: otherwise it could end in the next
            # check, which would not be the cause.
            harness.is_suspect = True
        await harness.ready()
        if check.disturbs:
            await harness.wait_after_register()

    def _lose(self, why: str, *, is_reported: bool) -> None:
        """Record that the plugin is lost: as a failure, unless a check has reported the loss."""
        harness = self.harness
        self.is_lost, self._why_lost = True, f"it does not register any more: {why}"
        # With a command, a new process was started and did not register. No check reported this.
        if harness.target.command or not is_reported:
            harness.shared.record_end(harness.process, self._why_lost, harness.last_words())

    def _after_end(
        self, check: PluginCheck, process: Process, after: float, verdicts: dict[str, Verdict]
    ) -> dict[str, Verdict]:
        """Record that the process ended, for `life.dies`; a check that made calls fails as well.

        A plugin that exits after a kubelet restart, and does not crash, is started again: the check
        of the restart warns of this, and `life.dies` does not count it.
        """
        how, words = process.end_text(), process.last_words()
        statuses = {verdict.status for verdict in verdicts.values()}
        passes = statuses == {Status.PASS}
        if check.phase is Phase.QUIET:
            self.harness.shared.record_end(process, _ended_between_calls(process), words)
            return self._for_all(
                Verdict(Status.SKIP, f"its process ended during the check ({how})")
            )
        if check.phase is not Phase.RESTARTS or passes or not process.exited_without_crash():
            when = f"its process ended ({how}) {after:.1f} s after {check.id} began"
            self.harness.shared.record_end(process, when, words)
        if check.phase is Phase.RESTARTS:
            return verdicts
        found = "; ".join({each.evidence for each in verdicts.values()} if not passes else ())
        text = f"its process ended ({how}) {after:.1f} s after the check began"
        text = f"{text}: {found}" if found and how not in found else text
        return self._for_all(Verdict(Status.FAIL, text, words, process.cause()))

    async def _run(self, check: PluginCheck) -> dict[str, Verdict]:
        if not check.per_resource:
            return await self._judge(check, self.harness)
        verdicts = {}
        for resource in self.harness.resources:
            blocked = self._collector.blocked(check, resource)
            if blocked:
                verdicts[resource] = blocked
            else:
                found = await self._judge(check, Plugin.of(self.harness, resource))
                verdicts[resource] = found[next(iter(found))]
        return verdicts

    def _without_directories(self, verdicts: dict[str, Verdict]) -> dict[str, Verdict]:
        """Remove the paths of the run's temporary directories from the texts of verdicts."""
        short = self.harness.without_directories
        return {
            name: Verdict(status, short(evidence), short(story), cause)
            for name, (status, evidence, story, cause) in verdicts.items()
        }

    async def _judge(self, check: PluginCheck, subject: object) -> dict[str, Verdict]:
        found = await judged(check, subject, CHECK_LIMIT)
        return found if isinstance(found, dict) else self._for_all(found)

    def _blocked_everywhere(self, check: PluginCheck) -> dict[str, Verdict]:
        """Return the verdicts if the check is blocked for every resource, else an empty dict."""
        resources = self.harness.resources if check.per_resource else (None,)
        blocked = [self._collector.blocked(check, resource) for resource in resources]
        if not blocked or None in blocked:
            return {}
        if not check.per_resource:
            return self._for_all(blocked[0]) if blocked[0] else {}
        return {
            name: each for name, each in zip(self.harness.resources, blocked, strict=True) if each
        }

    def _for_all(self, verdict: Verdict) -> dict[str, Verdict]:
        resources = self.harness.resources
        return {resources[0] if len(resources) == 1 else PLUGIN: verdict}


def _ended_between_calls(process: Process) -> str:
    return f"its process ended ({process.end_text()}) while nobody called the plugin"
