"""The report for programs: one JSON object. Its keys are a promise."""

from typing import Any

from kubedevices import __version__
from kubedevices.conformance.check import Check
from kubedevices.conformance.report.summary import Run


def as_document(run: Run) -> dict[str, Any]:
    """Return the run: `checks` has one object per check and resource."""
    return {
        "plugin": run.plugin,
        "kubedevices": __version__,
        "seconds": round(run.seconds, 1),
        "summary": run.counts,
        "checks": [
            {
                "id": result.check.id,
                "theme": result.check.theme,
                "resource": result.resource,
                "status": result.status.value,
                "evidence": result.verdict.evidence,
                "story": result.verdict.story,
                "seconds": round(result.seconds, 3),
                **words_of(result.check),
            }
            for result in run.results
        ],
    }


def words_of(check: Check) -> dict[str, str]:
    """Return what is to be said of a check, whatever it found."""
    return {
        "severity": check.severity.value,
        "rule": check.rule,
        "suffers": check.suffers,
        "source": check.source,
        "mend": check.mend,
        "seen": check.seen,
    }
