"""Counts of a run, the sentence they make, and the words about one finding. For every report."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kubedevices.conformance.check import Status
from kubedevices.conformance.checks import THEMES
from kubedevices.conformance.runner import Result


@dataclass(frozen=True)
class Run:
    """Everything a report is made of."""

    plugin: str
    results: Sequence[Result]
    seconds: float

    @property
    def counts(self) -> dict[str, int]:
        """How many results have which status."""
        counted = Counter(result.status for result in self.results)
        return {status.value: counted[status] for status in Status}

    @property
    def findings(self) -> list[Result]:
        """Failures first, then warnings."""
        return [
            result
            for status in (Status.FAIL, Status.WARN)
            for result in self.results
            if result.status is status
        ]

    @property
    def resources(self) -> list[str]:
        """Every resource there is a result for."""
        return sorted({result.resource for result in self.results})

    def by_theme(self) -> list[tuple[str, list[Result]]]:
        """Return the themes' titles and their results, without themes that have none."""
        themes = [
            (title, [result for result in self.results if result.check.theme == theme])
            for theme, title in THEMES.items()
        ]
        return [(title, results) for title, results in themes if results]

    def verdict(self) -> str:
        """Return the run in one sentence."""
        counts = self.counts
        if counts["fail"]:
            what = "this plugin loses devices, updates or pods on a node, or breaks the API"
        elif counts["warn"]:
            what = "nothing breaks a node, some of it is fragile"
        elif counts["pass"]:
            what = "a well-behaved plugin"
        else:
            what = "nothing was tried"
        return (
            f"{counts['pass']} passed, {counts['warn']} warned, {counts['fail']} failed, "
            f"{counts['skip']} skipped in {self.seconds:.0f} s: {what}"
        )


class Line(NamedTuple):
    """One thing to know about a finding."""

    title: str
    text: str


def words_about(result: Result) -> list[Line]:
    """Return what happened, what a node would suffer, the rule and its source, how to mend it."""
    check = result.check
    lines = [
        Line("happened", result.verdict.evidence),
        Line("said", result.verdict.story),
        Line("rule", check.rule),
        Line("on a node", check.suffers),
        Line("source", check.source),
        Line("mend", check.mend),
        Line("seen in", check.seen),
    ]
    return [line for line in lines if line.text]
