"""Findings: their order, the worst of them, and how they look to a program."""

import pytest

from kubedevices.explain.finding import (
    Finding,
    Result,
    Step,
    in_order,
    ok,
    problem,
    unknown,
    warning,
    worst,
)

FINE = ok(Step.NAME, "n", "f")
MAYBE = warning(Step.HELD, "n", "f", "wait")
WRONG = problem(Step.HEALTH, "n", "f", "mend", "mend it")


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ([], Result.OK),
        ([FINE], Result.OK),
        ([FINE, unknown(Step.REGISTRATION, "n", "f")], Result.UNKNOWN),
        ([FINE, unknown(Step.CGROUP, "n", "f")], Result.OK),
        ([MAYBE, unknown(Step.REGISTRATION, "n", "f"), FINE], Result.WARNING),
        ([WRONG, MAYBE], Result.PROBLEM),
    ],
)
def test_the_worst(findings: list[Finding], expected: Result) -> None:
    """A problem before a warning; what is unknown late on the way says nothing about the device."""
    assert worst(findings) is expected


def test_the_order_is_that_of_the_way() -> None:
    """Findings of one station stay as they were."""
    second = ok(Step.HELD, "m", "f")
    assert in_order([MAYBE, WRONG, second, FINE]) == (FINE, WRONG, MAYBE, second)


def test_a_finding_for_programs() -> None:
    """Plain words under promised keys."""
    assert WRONG.as_dict() == {
        "step": "health",
        "result": "problem",
        "looked_at": "n",
        "found": "f",
        "advice": "mend",
        "command": "mend it",
    }
