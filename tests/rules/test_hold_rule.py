"""What a node gets of a plugin that is away, by the seconds since it left."""

import pytest

from kubedevices.errors import UsageError
from kubedevices.rules.hold_rule import AwayOffer, HoldRule

RULE = HoldRule(hold=300.0, allocate_wait=10.0)


@pytest.mark.parametrize(
    ("now", "offer", "until"),
    [
        (100.0, AwayOffer.ALL, 110.0),
        (109.9, AwayOffer.ALL, 110.0),
        (110.0, AwayOffer.HELD, 400.0),
        (399.9, AwayOffer.HELD, 400.0),
        (400.0, AwayOffer.UNHEALTHY, None),
    ],
)
def test_free_devices_are_offered_while_calls_wait_and_held_devices_for_hold(
    now: float, offer: AwayOffer, until: float | None
) -> None:
    """A plugin that left at 100 s keeps its list; free devices are offered until calls fail."""
    assert RULE.offer(100.0, now) == (offer, until)
    assert RULE.calls_wait_until(100.0) == 110.0


def test_calls_do_not_wait_longer_than_the_list_stays() -> None:
    """With a hold shorter than the wait, calls fail when the devices turn Unhealthy."""
    rule = HoldRule(hold=3.0, allocate_wait=10.0)
    assert rule.calls_wait_until(0.0) == 3.0
    assert rule.offer(0.0, 2.0) == (AwayOffer.ALL, 3.0)
    assert rule.offer(0.0, 3.0) == (AwayOffer.UNHEALTHY, None)


def test_without_hold_the_resource_is_withdrawn_at_once() -> None:
    """A rule without `hold` offers nothing while the plugin is away, and calls do not wait."""
    assert HoldRule().offer(5.0, 5.0) == (AwayOffer.NOTHING, None)
    assert HoldRule().calls_wait_until(5.0) == 5.0


def test_hold_of_zero_seconds_keeps_the_resource_with_unhealthy_devices() -> None:
    """`hold: 0s` keeps the capacity but no healthy device."""
    assert HoldRule(hold=0.0).offer(5.0, 5.0) == (AwayOffer.UNHEALTHY, None)


@pytest.mark.parametrize("times", [{"hold": -1.0}, {"allocate_wait": -0.1}])
def test_negative_times_are_refused(times: dict[str, float]) -> None:
    """A rule with a negative time raises `UsageError`."""
    with pytest.raises(UsageError, match="must be from 0 s to a year"):
        HoldRule(**times)
