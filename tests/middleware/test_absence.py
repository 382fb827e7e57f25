"""How long a plugin may be away, and how long calls wait for it, in virtual time."""

import pytest

from kubedevices.middleware.absence import Absence, HoldRule


def away(hold: float = 300.0, wait: float = 30.0, since: float = 0.0) -> Absence:
    absence = Absence(HoldRule(hold=hold, allocate_wait=wait))
    absence.begin(since)
    return absence


def call(absence: Absence, at: float, back: float | None = None) -> float:
    """Let one call wait, alone, until the plugin is `back` or in vain; return when it ends."""
    until = absence.begin_wait(at)
    end = max(at, until if back is None else min(until, back))
    absence.end_wait(end)
    return end


def test_a_list_stays_for_hold() -> None:
    """To the moment; a second `begin` is the same absence, a return ends it."""
    absence = away(hold=300.0, since=10.0)
    absence.begin(200.0)
    assert [absence.is_held(at) for at in (10.0, 309.9, 310.0)] == [True, True, False]
    absence.end()
    assert not absence.is_held(20.0)
    assert absence.holds_until() is None
    absence.begin(400.0)
    assert absence.holds_until() == 700.0


def test_fifty_pods_wait_one_after_the_other_and_none_is_refused() -> None:
    """A kubelet asks for the next when it has the answer; the plugin is 20 s late."""
    absence, now = away(), 0.0
    for _ in range(50):
        now = call(absence, now, back=20.0)
        assert now <= 20.0
    assert now == 20.0


def test_all_pods_together_wait_once_for_a_plugin_that_never_comes() -> None:
    """The 51st is answered within 31 s of the first, also where a kubelet pauses in between."""
    absence, now, waited = away(), 0.0, []
    for _ in range(51):
        end = call(absence, now)
        waited.append(end - now)
        now = end
    assert now == 30.0
    assert waited == [30.0] + [0.0] * 50


def test_time_counts_while_somebody_waits_and_once_for_many() -> None:
    """A wait that was cancelled leaves the rest for others; several at once share."""
    absence = away(wait=10.0)
    assert absence.begin_wait(0.0) == 10.0
    absence.end_wait(4.0)
    assert absence.begin_wait(100.0) == 106.0
    assert absence.begin_wait(103.0) == 106.0
    absence.end_wait(106.0)
    absence.end_wait(106.0)
    assert absence.begin_wait(107.0) == 107.0


def test_each_absence_has_its_own_time_limit() -> None:
    """Even if a call of the one before has not noticed its end yet."""
    absence = away(wait=10.0)
    absence.begin_wait(0.0)
    absence.end()
    absence.begin(50.0)
    assert absence.begin_wait(50.0) == 60.0
    absence.end_wait(50.0)
    absence.end_wait(50.0)
    assert call(absence, 55.0) == 65.0
    assert call(absence, 70.0) == 70.0  # used up
    absence.end()
    absence.begin(80.0)
    assert call(absence, 80.0) == 90.0


@pytest.mark.parametrize("hold", [0.0, 5.0])
def test_calls_do_not_wait_when_the_devices_are_unhealthy(hold: float) -> None:
    """Such a call comes too late."""
    assert call(away(hold=hold), hold) == hold


def test_times_are_not_negative() -> None:
    """The rule says so."""
    with pytest.raises(ValueError, match="0 or more"):
        HoldRule(hold=-1.0)
