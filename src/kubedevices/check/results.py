"""The results of a run so far. A check that needs a failed check is skipped."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kubedevices.check.check import PluginCheck, Status, Verdict
from kubedevices.check.shared_state import Log, SharedState
from kubedevices.errors.words import counted

PLUGIN = "*"
"""The resource of a verdict about the whole plugin, if the plugin has several resources."""


@dataclass(frozen=True)
class CheckResult:
    """The verdict of one check about one resource. `seconds` is the time for all resources."""

    check: PluginCheck
    resource: str
    verdict: Verdict
    seconds: float

    @property
    def status(self) -> Status:
        """The status of the verdict."""
        return self.verdict.status


@dataclass(frozen=True)
class RunResult:
    """A complete run: the results in the order of the checks, and the output of the plugin.

    `trigger_problem` says how the trigger or its undo failed, `""` if it did not. `role` has the
    rules of the smallest ClusterRole that would do for a DRA driver; `requests` says how often the
    driver asked the API server what.
    """

    results: list[CheckResult]
    logs: Sequence[Log] = ()
    trigger_problem: str = ""
    role: Sequence[Mapping[str, Sequence[str]]] = ()
    requests: Mapping[str, int] = field(default_factory=dict)


Progress = Callable[[PluginCheck, Sequence[CheckResult]], None]
"""Called with no results when a check begins, and with its results when they are final."""


def silence(check: PluginCheck, results: Sequence[CheckResult]) -> None:
    """Report no progress."""


BLOCKED = "says nothing while"


class ResultCollector:
    """Collects results. A result is final when the results of all checks that it needs are."""

    def __init__(self, chosen: Sequence[PluginCheck], progress: Progress) -> None:
        self.results: list[CheckResult] = []
        self._chosen = {check.id: check for check in chosen}
        self._progress = progress
        self._waiting: list[tuple[PluginCheck, list[CheckResult]]] = []
        self._final: set[str] = set()

    def begin(self, check: PluginCheck) -> None:
        """Report that a check begins."""
        self._progress(check, ())

    def end(self, check: PluginCheck, results: Sequence[CheckResult]) -> None:
        """Add the results of a check. Called again for resources that registered late."""
        self._waiting.append((check, [*results]))
        self._settle()

    def finish(self, shared: SharedState, dies: PluginCheck) -> list[CheckResult]:
        """Return all results in the order of the checks. No result may be added afterwards.

        All unexpected ends are one failure of the check `dies`.
        """
        self._final |= self._chosen.keys()
        self._settle()
        if shared.unexpected_ends:
            self._report_ends(dies, shared)
        order = {name: number for number, name in enumerate(self._chosen)}
        last = len(order)
        return sorted(
            self.results, key=lambda each: (order.get(each.check.id, last), each.resource)
        )

    def _report_ends(self, check: PluginCheck, shared: SharedState) -> None:
        known = [each for each in self.results if each.check.id == check.id]
        self.results = [each for each in self.results if each.check.id != check.id]
        (first, *others), names = shared.unexpected_ends, shared.resources
        resource = names[0] if len(names) == 1 else PLUGIN
        more = f", and {counted(len(others), 'time')} more" if others else ""
        verdict = Verdict(Status.FAIL, first.when + more, first.words, first.cause)
        seconds = known[0].seconds if known else 0.0
        self.results.append(CheckResult(check, resource, verdict, seconds))
        self._progress(check, self.results[-1:])

    def _settle(self) -> None:
        moved = True
        # Again after each result that becomes final: other results may have waited for it.
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
        """Return a verdict `skip` if a check that `check` needs fails or is blocked, else None.

        A check that warns, or that is skipped for another reason, blocks nothing. `resource` None
        is for a check of the whole plugin: a failure of any resource blocks this check.
        """
        for result in self.results:
            if result.check.id not in check.needs:
                continue
            if resource not in (None, PLUGIN, result.resource) and result.resource != PLUGIN:
                continue
            if result.status is Status.FAIL:
                return Verdict(Status.SKIP, f"{BLOCKED} {result.check.id} fails")
            if result.verdict.evidence.startswith(BLOCKED):
                return result.verdict
        return None
