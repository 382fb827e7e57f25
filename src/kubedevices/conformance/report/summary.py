"""Counts of a run, the sentence they make, and the words about one finding. For every report."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kubedevices.conformance.check import PluginCheck, Status
from kubedevices.conformance.checks import THEMES
from kubedevices.conformance.report.expected import LEVELS, Expected, vanished
from kubedevices.conformance.results import PLUGIN, CheckResult
from kubedevices.conformance.shared_state import Log
from kubedevices.words import counted, some_of


class FindingOf(NamedTuple):
    """What one check found, for every resource it says the same of."""

    check: PluginCheck
    status: Status
    resources: Sequence[str]
    results: Sequence[CheckResult]


@dataclass(frozen=True)
class Run:
    """Everything a report is made of.

    `about` is what one must know to repeat the run, by title; `logs` are what the plugin printed;
    `left_out` are the IDs of checks that a quick run does not try; `expected` are the findings that
    are known; `fail_on` says which new findings make the run fail, a key of `LEVELS`.
    """

    plugin: str
    results: Sequence[CheckResult]
    seconds: float
    about: Mapping[str, str] = field(default_factory=dict)
    logs: Sequence[Log] = ()
    left_out: Sequence[str] = ()
    expected: Sequence[Expected] = ()
    fail_on: str = "fail"

    @property
    def counts(self) -> dict[str, int]:
        """How many results have which status."""
        counted = Counter(result.status for result in self.results)
        return {status.value: counted[status] for status in Status}

    @property
    def findings(self) -> list[FindingOf]:
        """Failures first, then warnings; one per check, for however many resources."""
        found = []
        for status in (Status.FAIL, Status.WARN):
            checks: dict[str, list[CheckResult]] = {}
            for result in self.results:
                if result.status is status:
                    checks.setdefault(result.check.id, []).append(result)
            found += [
                FindingOf(each[0].check, status, [result.resource for result in each], each)
                for each in checks.values()
            ]
        return found

    @property
    def new(self) -> list[str]:
        """The IDs of the checks whose findings fail the run."""
        failing = LEVELS[self.fail_on]
        return list(
            dict.fromkeys(
                finding.check.id
                for finding in self.findings
                if finding.status in failing and not self.is_known(finding)
            )
        )

    @property
    def fails(self) -> bool:
        """Whether there is a finding that fails the run."""
        return bool(self.new)

    @property
    def vanished(self) -> list[Expected]:
        """The known findings that were looked for and not found."""
        return vanished(self.expected, self.results)

    def reason(self, result: CheckResult) -> str:
        """Return why a result was to be expected, an empty text where it was not."""
        return next((each.reason for each in self.expected if each.covers(result)), "")

    def is_known(self, finding: FindingOf) -> bool:
        """Whether a finding is known of every resource that has it."""
        return all(self.reason(result) for result in finding.results)

    def words_about(self, finding: FindingOf) -> list["FindingDetail"]:
        """Return all there is to know about a finding of this run."""
        reasons = dict.fromkeys(filter(None, map(self.reason, finding.results)))
        known = [FindingDetail("known", "\n".join(reasons))] if reasons else []
        return [*known, *words_about(finding)]

    @property
    def resources(self) -> list[str]:
        """Every resource there is a result for."""
        return sorted({result.resource for result in self.results})

    def by_theme(self) -> list[tuple[str, list[CheckResult]]]:
        """Return the themes' titles and their results, without themes that have none."""
        themes = [
            (title, [result for result in self.results if result.check.theme == theme])
            for theme, title in THEMES.items()
        ]
        return [(title, results) for title, results in themes if results]

    def legend(self) -> str:
        """Explain the name that stands for no resource, where it is used."""
        if PLUGIN in self.resources and len(self.resources) > 1:
            return f"{PLUGIN} is the plugin as a whole, with all of its resources."
        return ""

    def remarks(self) -> list[str]:
        """Return the lines that stand above the verdict."""
        left_out = some_of(self.left_out, limit=len(self.left_out))
        left_out = f"left out by --quick: {left_out}" if left_out else ""
        return [line for line in (self.noted(), left_out, self.legend(), *self.judged()) if line]

    def judged(self) -> list[str]:
        """Return which findings decide, where that is not every failure."""
        if not self.expected and self.fail_on == "fail":
            return []
        known = list(dict.fromkeys(f.check.id for f in self.findings if self.is_known(f)))
        lines = [f"known: {some_of(known, limit=len(known))}"] if known else []
        gone = "no longer found: {}; remove it from the known findings"
        lines += [gone.format(each) for each in self.vanished]
        new = some_of(self.new, limit=len(self.new))
        decides = f"--fail-on {self.fail_on}"
        lines.append(f"{decides}: new: {new}" if new else f"{decides}: nothing new")
        return lines

    def noted(self) -> str:
        """Return what most plugins do in one line, an empty one where this one does not."""
        ids = sorted({each.check.id for each in self.results if each.status is Status.NOTE})
        if not ids:
            return ""
        number = counted(len(ids), "note")
        return f"{number}, of what most plugins do: {some_of(ids, limit=len(ids))}"

    def verdict(self) -> str:
        """Return the run in one sentence, with how much it rests on."""
        counts = self.counts
        every = {result.check.id for result in self.results}
        tried = {result.check.id for result in self.results if result.status is not Status.SKIP}
        if counts["fail"]:
            what = "this plugin loses devices, updates or pods on a node, or breaks the API"
        elif counts["warn"]:
            what = "nothing breaks a node, some of it is fragile"
        elif tried:
            what = "a well-behaved plugin as far as it was tried"
        else:
            what = "nothing was tried"
        return (
            f"{counts['pass']} passed, {counts['warn']} warned, {counts['fail']} failed, "
            f"{counts['skip']} skipped in {self.seconds:.0f} s, "
            f"{len(tried)} of {counted(len(every), 'check')} tried: {what}"
        )


class FindingDetail(NamedTuple):
    """One thing to know about a finding."""

    title: str
    text: str


def happened(finding: FindingOf) -> str:
    """Return the evidence, once for all resources that share it."""
    said: dict[str, list[str]] = {}
    for result in finding.results:
        said.setdefault(result.verdict.evidence, []).append(result.resource)
    if len(finding.results) == 1:
        return finding.results[0].verdict.evidence
    return "\n".join(f"{', '.join(names)}: {evidence}" for evidence, names in said.items())


def words_about(finding: FindingOf) -> list[FindingDetail]:
    """Return what happened, what a node would suffer, the rule and its source, how to mend it."""
    check = finding.check
    stories = dict.fromkeys(result.verdict.story for result in finding.results)
    lines = [
        FindingDetail("happened", happened(finding)),
        FindingDetail("said", "\n".join(filter(None, stories))),
        FindingDetail("rule", check.rule),
        FindingDetail("on a node", check.suffers),
        FindingDetail("source", check.source),
        FindingDetail("mend", check.mend),
        FindingDetail("seen in", check.seen),
    ]
    return [line for line in lines if line.text]


def alone(result: CheckResult) -> FindingOf:
    """Return one result as a finding, where each has a place of its own."""
    return FindingOf(result.check, result.status, [result.resource], [result])
