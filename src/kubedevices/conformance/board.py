"""What the checks of a run have found so far, and what that says about the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kubedevices.conformance.check import PluginCheck, Status, Verdict
from kubedevices.words import counted

PLUGIN = "*"
"""Stands for a resource where a verdict is about the whole plugin of several resources."""


@dataclass(frozen=True)
class CheckResult:
    """What one check found about one resource, and how long it took in all."""

    check: PluginCheck
    resource: str
    verdict: Verdict
    seconds: float

    @property
    def status(self) -> Status:
        """Shortcut to the verdict's."""
        return self.verdict.status


Progress = Callable[[PluginCheck, Sequence[CheckResult]], None]
"""Called before a check with no results, and with its results when they are sure."""


def silence(check: PluginCheck, results: Sequence[CheckResult]) -> None:
    """A progress that tells nobody."""


_BLOCKED = "says nothing while"


class ResultCollector:
    """Collects results. One is final when those of the checks it needs are."""

    def __init__(self, chosen: Sequence[PluginCheck], progress: Progress) -> None:
        self.results: list[CheckResult] = []
        self._chosen = {check.id: check for check in chosen}
        self._progress = progress
        self._waiting: list[tuple[PluginCheck, list[CheckResult]]] = []
        self._final: set[str] = set()

    def begin(self, check: PluginCheck) -> None:
        """Note that a check is tried from now on."""
        self._progress(check, ())

    def end(self, check: PluginCheck, results: Sequence[CheckResult]) -> None:
        """Take what a check found; a second time for resources that came late."""
        self._waiting.append((check, [*results]))
        self._settle()

    def finish(self) -> list[CheckResult]:
        """Return everything in the order of the checks; nothing comes any more."""
        self._final |= self._chosen.keys()
        self._settle()
        order = {name: number for number, name in enumerate(self._chosen)}
        last = len(order)
        return sorted(
            self.results, key=lambda each: (order.get(each.check.id, last), each.resource)
        )

    def died(
        self, check: PluginCheck, resource: str, evidence: str, story: str, count: int
    ) -> None:
        """Let `check` be the only failure that tells of unexpected ends of the plugin."""
        known = [each for each in self.results if each.check.id == check.id]
        self.results = [each for each in self.results if each.check.id != check.id]
        more = f", and {counted(count - 1, 'time')} more" if count > 1 else ""
        verdict = Verdict(Status.FAIL, evidence + more, story)
        seconds = known[0].seconds if known else 0.0
        self.results.append(CheckResult(check, resource, verdict, seconds))
        self._progress(check, self.results[-1:])

    def _settle(self) -> None:
        moved = True
        # A result that becomes final may be what others wait for.
        while moved:
            moved = False
            for entry in [*self._waiting]:
                check, found = entry
                if any(n in self._chosen and n not in self._final for n in check.needs):
                    continue
                self._waiting.remove(entry)
                sure = [
                    replace(each, verdict=self.blocked(check, each.resource) or each.verdict)
                    for each in found
                ]
                self.results += sure
                self._final.add(check.id)
                self._progress(check, sure)
                moved = True

    def blocked(self, check: PluginCheck, resource: str | None) -> Verdict | None:
        """Return why a check says nothing after what others found."""
        for result in self.results:
            if result.check.id not in check.needs:
                continue
            if resource not in (None, PLUGIN, result.resource) and result.resource != PLUGIN:
                continue
            if result.status is Status.FAIL:
                return Verdict(Status.SKIP, f"{_BLOCKED} {result.check.id} fails")
            if result.verdict.evidence.startswith(_BLOCKED):
                return result.verdict
        return None
