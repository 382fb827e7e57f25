"""Health that does not flap."""

import pytest

from kubedevices.errors import UsageError
from kubedevices.rules.health_gate import HealthGate
from kubedevices.values.device import Health


def observe(gate: HealthGate, looks: str, device: str = "card0") -> str:
    """Return one letter per look: H or U, as reported."""
    return "".join(gate.observe(device, look == "+")[0] for look in looks)


@pytest.mark.parametrize(
    ("fail_after", "ok_after", "looks", "reported"),
    [
        (1, 1, "+-+-", "HUHU"),
        (1, 3, "+-++-+++", "HUUUUUUH"),
        (2, 3, "+-+-+--++-+++", "HHHHHHUUUUUUH"),
        (1, 3, "---+++", "UUUUUH"),
        (3, 1, "-+", "UH"),
        (3, 1, "+--+---", "HHHHHHU"),
    ],
)
def test_only_looks_in_a_row_count(
    fail_after: int, ok_after: int, looks: str, reported: str
) -> None:
    """The first decides at once, and recovery is always possible."""
    assert observe(HealthGate(fail_after, ok_after), looks) == reported


def test_flapping_gives_one_transition() -> None:
    """A device that is well every second time is broken, and stays so."""
    reported = observe(HealthGate(), "+" + "-+" * 50)
    assert reported == "H" + "U" * 100


def test_a_smaller_limit_counts_from_the_next_look_on() -> None:
    """More looks than it allows may have failed by then."""
    gate = HealthGate(fail_after=9)
    assert observe(gate, "+----") == "HHHHH"
    gate.fail_after = 2
    assert observe(gate, "-") == "U"


def test_devices_are_apart_and_can_be_forgotten() -> None:
    """Its first look decides again when a device comes back."""
    gate = HealthGate()
    observe(gate, "-", "a")
    observe(gate, "+", "b")
    assert (gate.health("a"), gate.health("b"), gate.health("c")) == (
        Health.UNHEALTHY,
        Health.HEALTHY,
        None,
    )
    gate.keep_only({"b"})
    assert gate.health("a") is None
    assert gate.health("b") is Health.HEALTHY
    assert observe(gate, "+", "a") == "H"


def test_counts_below_one_are_refused() -> None:
    """Zero looks in a row would be always."""
    with pytest.raises(UsageError, match="fail_after: must be from 1 to 1000, not 0"):
        HealthGate(0)
    with pytest.raises(UsageError, match="ok_after: must be from 1 to 1000, not 0"):
        HealthGate(ok_after=0)
