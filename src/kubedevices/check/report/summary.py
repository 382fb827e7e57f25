"""The run for all reports: counts, the verdict in one sentence, and the texts about a finding."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kubedevices.check.catalogue import DRIVER_THEMES, PLUGIN_THEMES
from kubedevices.check.check import PluginCheck, Status
from kubedevices.check.drivers.rights import CLAIMS
from kubedevices.check.report.expected import LEVELS, Expected
from kubedevices.check.results import PLUGIN, CheckResult, RunResult
from kubedevices.errors.words import counted, some_of

FAILED, TRIGGER_FAILED, NOTHING_TRIED = 1, 4, 5
"""Exit codes of a run: a failure, a trigger that failed, no check that was tried."""


class CheckFinding(NamedTuple):
    """The failure or the warning of one check, for all resources with the same status."""

    check: PluginCheck
    status: Status
    resources: Sequence[str]
    results: Sequence[CheckResult]

    @property
    def cause(self) -> str:
        """The cause, if all results have the same, else `""`."""
        causes = {result.verdict.cause for result in self.results}
        return causes.pop() if len(causes) == 1 else ""

    @property
    def key(self) -> str:
        """What tells this finding from all others."""
        return f"{self.check.id} {self.status}"


class FindingGroup(NamedTuple):
    """Findings with one cause, the most harmful first."""

    cause: str
    findings: Sequence[CheckFinding]

    @property
    def title(self) -> str:
        """The line above the findings, `""` if there is only one."""
        if len(self.findings) < 2:
            return ""
        return f"{self.cause}: {counted(len(self.findings), 'finding')}, begin here"


@dataclass(frozen=True, kw_only=True)
class Run(RunResult):
    """All data of a report.

    plugin    the command of the program, or its directory
    about     what a reader needs to repeat the run, by title
    left_out  the IDs of checks that `--quick` left out
    expected  the known findings
    fail_on   which new findings make the run fail, a key of `LEVELS`
    kind      what was checked: a plugin or a driver
    """

    plugin: str
    seconds: float
    about: Mapping[str, str] = field(default_factory=dict)
    left_out: Sequence[str] = ()
    expected: Sequence[Expected] = ()
    fail_on: str = "fail"
    kind: str = "plugin"

    @property
    def counts(self) -> dict[str, int]:
        """The number of results with each status."""
        counted = Counter(result.status for result in self.results)
        return {status.value: counted[status] for status in Status}

    @property
    def findings(self) -> list[CheckFinding]:
        """All findings: failures by harm, then warnings by harm; those with one cause together."""
        return [finding for group in self.groups for finding in group.findings]

    @property
    def groups(self) -> list["FindingGroup"]:
        """The findings by cause. A finding without a known cause is a group of its own."""
        grouped: dict[str, list[CheckFinding]] = {}
        by_harm = sorted(self._by_check(), key=lambda each: each.check.harm)
        for finding in sorted(by_harm, key=lambda each: each.status is not Status.FAIL):
            grouped.setdefault(finding.cause or finding.key, []).append(finding)
        return [FindingGroup(each[0].cause, each) for each in grouped.values()]

    def _by_check(self) -> list[CheckFinding]:
        """Return one finding per check and status, in the order of the results."""
        found: dict[tuple[str, Status], list[CheckResult]] = {}
        for result in self.results:
            if result.status in (Status.FAIL, Status.WARN):
                found.setdefault((result.check.id, result.status), []).append(result)
        return [
            CheckFinding(each[0].check, status, [result.resource for result in each], each)
            for (_, status), each in found.items()
        ]

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
        """Whether a finding fails the run."""
        return bool(self.new)

    @property
    def tried(self) -> set[str]:
        """The IDs of the checks that were tried on at least one resource."""
        return {each.check.id for each in self.results if each.status is not Status.SKIP}

    @property
    def exit_code(self) -> int:
        """The exit code of `kubedevices check`: the worst that happened."""
        if self.fails:
            return FAILED
        if self.trigger_problem:
            return TRIGGER_FAILED
        return 0 if self.tried else NOTHING_TRIED

    @property
    def vanished(self) -> list[Expected]:
        """The known findings whose checks ran and did not find them."""
        return [each for each in self.expected if each.is_gone(self.results)]

    def reason(self, result: CheckResult) -> str:
        """Return the reason of the known finding that covers a result, `""` if none does."""
        return next((each.reason for each in self.expected if each.covers(result)), "")

    def is_known(self, finding: CheckFinding) -> bool:
        """Whether a finding is known for all its resources."""
        return all(self.reason(result) for result in finding.results)

    def words_about(self, finding: CheckFinding) -> list["FindingDetail"]:
        """Return the texts about a finding; a known finding begins with its reasons."""
        reasons = dict.fromkeys(filter(None, map(self.reason, finding.results)))
        known = [FindingDetail("known", "\n".join(reasons))] if reasons else []
        return [*known, *words_about(finding)]

    def words_in(self, group: FindingGroup, finding: CheckFinding) -> list["FindingDetail"]:
        """Return the texts about a finding of a group, without those that its first has told."""
        words = self.words_about(finding)
        if finding is group.findings[0]:
            return words
        told = {each for each in self.words_about(group.findings[0]) if each.title != "happened"}
        return [each for each in words if each not in told]

    @property
    def resources(self) -> list[str]:
        """All resources that have a result."""
        return sorted({result.resource for result in self.results})

    def by_theme(self) -> list[tuple[str, list[CheckResult]]]:
        """Return the titles of the themes that have results, each with its results."""
        themes = [
            (title, [result for result in self.results if result.check.theme == theme])
            for theme, title in ({**PLUGIN_THEMES, **DRIVER_THEMES}).items()
        ]
        return [(title, results) for title, results in themes if results]

    def legend(self) -> str:
        """Return the explanation of the resource `*`, `""` if the report does not use it."""
        if PLUGIN in self.resources and len(self.resources) > 1:
            return f"{PLUGIN} is the whole plugin, with all its resources."
        return ""

    def remarks(self) -> list[str]:
        """Return the lines above the verdict."""
        left_out = some_of(self.left_out, limit=len(self.left_out))
        left_out = f"left out by --quick: {left_out}" if left_out else ""
        lines = (
            self.trigger_problem,
            self.notes_line(),
            left_out,
            self.legend(),
            self.role_line(),
            *self.known_lines(),
        )
        return [line for line in lines if line]

    def known_lines(self) -> list[str]:
        """Return the known, vanished and new findings, if `--expect` or `--fail-on` was given."""
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

    def role_line(self) -> str:
        """Return the rights that a driver used in one line, `""` for a plugin."""
        rights = [f"{rule['resources'][0]} ({', '.join(rule['verbs'])})" for rule in self.role]
        if not rights:
            return ""
        has_claims = any(CLAIMS in rule["resources"] for rule in self.role)
        little = "" if has_claims else " (it has read no claim: choose more checks)"
        return f"it used, and its ClusterRole needs at least: {', '.join(rights)}{little}"

    def notes_line(self) -> str:
        """Return one line with the IDs of all results with status `note`, `""` for none."""
        ids = sorted({each.check.id for each in self.results if each.status is Status.NOTE})
        if not ids:
            return ""
        number = counted(len(ids), "note")
        return f"{number}, as for most plugins: {some_of(ids, limit=len(ids))}"

    def verdict(self) -> str:
        """Return the verdict in one sentence, with the number of checks that were tried."""
        counts = self.counts
        every = {result.check.id for result in self.results}
        tried = self.tried
        if counts["fail"] == len(tried) == 1 and len(every) > 1:
            what = f"the first failed, so nothing else about this {self.kind} was judged"
        elif counts["fail"]:
            what = f"this {self.kind} loses devices, updates or pods on a node, or breaks the API"
        elif self.trigger_problem:
            what = "changes of the devices were not judged, because the trigger failed"
        elif counts["warn"]:
            what = f"nothing breaks a node, but the {self.kind} is fragile"
        elif tried:
            what = f"a well-behaved {self.kind} as far as it was tried"
        else:
            what = "nothing was tried"
        return (
            f"{counts['pass']} passed, {counts['warn']} warned, {counts['fail']} failed, "
            f"{counts['skip']} skipped in {self.seconds:.0f} s, "
            f"{len(tried)} of {counted(len(every), 'check')} tried: {what}"
        )


class FindingDetail(NamedTuple):
    """One text about a finding, with its title."""

    title: str
    text: str


def happened(finding: CheckFinding) -> str:
    """Return the evidence; resources with the same evidence share a line."""
    resources: dict[str, list[str]] = {}
    for result in finding.results:
        resources.setdefault(result.verdict.evidence, []).append(result.resource)
    if len(finding.results) == 1:
        return finding.results[0].verdict.evidence
    return "\n".join(f"{', '.join(names)}: {evidence}" for evidence, names in resources.items())


def words_about(finding: CheckFinding) -> list[FindingDetail]:
    """Return what happened, the output, the rule, the harm, the source, and how to correct it."""
    check = finding.check
    stories = dict.fromkeys(result.verdict.story for result in finding.results)
    lines = [
        FindingDetail("happened", happened(finding)),
        FindingDetail("said", "\n".join(filter(None, stories))),
        FindingDetail("rule", check.rule),
        FindingDetail("on a node", check.suffers),
        FindingDetail("source", check.source),
        FindingDetail("repair", check.mend),
        FindingDetail("seen in", check.seen),
    ]
    return [line for line in lines if line.text]


def as_finding(result: CheckResult) -> CheckFinding:
    """Return one result as a finding, for reports that show each resource separately."""
    return CheckFinding(result.check, result.status, [result.resource], [result])
