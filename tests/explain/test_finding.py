"""Findings: their order, the worst of them, and how they look to a program."""

import pytest

from kubedevices.explain.finding import Finding, Outcome, Step, in_order, worst

FINE = Step.NAME.ok("n", "f")
MAYBE = Step.HELD.warning("n", "f", "wait")
WRONG = Step.HEALTH.problem("n", "f", "repair", "repair it")


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ([], Outcome.OK),
        ([FINE], Outcome.OK),
        ([FINE, Step.REGISTRATION.unknown("n", "f")], Outcome.UNKNOWN),
        ([FINE, Step.CGROUP.unknown("n", "f")], Outcome.OK),
        ([MAYBE, Step.REGISTRATION.unknown("n", "f"), FINE], Outcome.WARNING),
        ([WRONG, MAYBE], Outcome.PROBLEM),
    ],
)
def test_the_worst_finding_is_the_result(findings: list[Finding], expected: Outcome) -> None:
    """A problem before a warning; what is unknown late on the way says nothing about the device."""
    assert worst(findings) is expected


def test_findings_are_in_the_order_of_the_stations() -> None:
    """Findings of one station stay as they were."""
    second = Step.HELD.ok("m", "f")
    assert in_order([MAYBE, WRONG, second, FINE]) == (FINE, WRONG, MAYBE, second)


def test_a_finding_as_json() -> None:
    """Plain words under promised keys."""
    assert WRONG.as_dict() == {
        "step": "health",
        "result": "problem",
        "looked_at": "n",
        "found": "f",
        "advice": "repair",
        "command": "repair it",
    }
