"""The report for programs: one JSON object. Its keys are a stable interface."""

from typing import Any

from kubedevices import __version__
from kubedevices.check.check import PluginCheck
from kubedevices.check.report.summary import Run


def as_document(run: Run) -> dict[str, Any]:
    """Return the run as a document. `checks` has one object per check and resource.

    `logs` has one object per plugin process with output: the ID of the check that started the
    process, how the process ended, and its output. `known` is the reason in the file of `--expect`.
    `new` has the IDs of the findings that fail the run.
    `role` has the rules of the smallest ClusterRole that would do for a DRA driver, `requests` the
    number of its calls of the API server with `--show-requests`.
    """
    return {
        "plugin": run.plugin,
        "kubedevices": __version__,
        "seconds": round(run.seconds, 1),
        "about": dict(run.about),
        "left_out": [*run.left_out],
        "summary": run.counts,
        "verdict": run.verdict(),
        "fails": run.fails,
        "exit_code": run.exit_code,
        "trigger_problem": run.trigger_problem,
        "new": run.new,
        "vanished": [
            {"check": each.check, "resource": each.resource, "reason": each.reason}
            for each in run.vanished
        ],
        "checks": [
            {
                "id": result.check.id,
                "theme": result.check.theme,
                "resource": result.resource,
                "status": result.status.value,
                "evidence": result.verdict.evidence,
                "story": result.verdict.story,
                "cause": result.verdict.cause,
                "seconds": round(result.seconds, 3),
                "known": run.reason(result),
                **words_of(result.check),
            }
            for result in run.results
        ],
        "role": [dict(rule) for rule in run.role],
        "requests": dict(run.requests),
        "logs": [{"check": log.check, "ended": log.ended, "text": log.text} for log in run.logs],
    }


def words_of(check: PluginCheck) -> dict[str, str]:
    """Return the texts of a check, which do not depend on the result."""
    return {
        "severity": check.severity.value,
        "harm": check.harm.name.lower().replace("_", " "),
        "rule": check.rule,
        "suffers": check.suffers,
        "source": check.source,
        "repair": check.mend,
        "seen": check.seen,
        "since": check.since,
        "until": check.until,
    }
