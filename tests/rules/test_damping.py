"""Health that does not bounce, in virtual time."""

import pytest

from kubedevices.errors import UsageError
from kubedevices.rules.damping import Damper
from kubedevices.rules.health_rule import DampingRule


def report(damper: Damper, words: str, start: float = 0.0, step: float = 1.0) -> str:
    """Return H or U for each word, + or -, one every `step` seconds."""
    return "".join(
        "H" if damper.observe("a", word == "+", start + step * i) else "U"
        for i, word in enumerate(words)
    )


@pytest.mark.parametrize(
    ("unhealthy_after", "healthy_after", "words", "reported"),
    [
        (0, 0, "+-+-", "HUHU"),
        (2, 0, "+--+---", "HHHHHHU"),
        (0, 3, "+-+++++", "HUUUUHH"),
        (0, 3, "-+++-++++", "UUUUUUUUH"),
        (2, 2, "---+-++++", "UUUUUUUHH"),
        (2, 2, "+-+-+-+-", "HHHHHHHH"),
    ],
)
def test_a_health_report_takes_effect_after_the_damping_time(
    unhealthy_after: int, healthy_after: int, words: str, reported: str
) -> None:
    """Without a break; the first decides at once."""
    rule = DampingRule(unhealthy_after=unhealthy_after, healthy_after=healthy_after)
    assert report(Damper(rule), words) == reported


def test_the_damper_says_when_to_look_again() -> None:
    """A word that nobody contradicts comes into force without another word."""
    damper = Damper(DampingRule(unhealthy_after=5, healthy_after=30))
    assert damper.observe("a", True, 0.0)
    assert damper.observe("b", True, 0.0)
    assert damper.next_at() is None
    damper.observe("a", False, 10.0)
    damper.observe("b", False, 8.0)
    assert damper.next_at() == 13.0
    assert not damper.observe("b", False, 13.0)
    assert damper.next_at() == 15.0
    assert damper.observe("a", True, 14.0)
    assert damper.next_at() is None


def test_a_device_that_flaps_goes_out_and_stays_out() -> None:
    """It may turn twice an hour; the third is too much, however well it is then."""
    damper = Damper(DampingRule(max_flaps=2))
    assert report(damper, "+-+-+-" + "+" * 5) == "HUHUHUUUUUU"
    assert damper.is_out("a")
    assert damper.next_at() is None
    assert not damper.observe("a", True, 1e9)
    damper.put_back("a")
    assert damper.observe("a", True, 1e9 + 1)
    assert report(damper, "-+-+", start=1e9 + 2) == "UHUH"


@pytest.mark.parametrize(("max_flaps", "reported"), [(3, "HHHHHHHHUUUU"), (4, "HHHHHHHHHHHH")])
def test_turns_that_are_too_short_to_be_reported_count_too(max_flaps: int, reported: str) -> None:
    """Somebody who sets both keys wants to see no short break, and no device that has many."""
    damper = Damper(DampingRule(unhealthy_after=60, healthy_after=30, max_flaps=max_flaps))
    assert report(damper, "+-+-+--+-+++") == reported[:12]
    assert damper.is_out("a") is (max_flaps == 3)


def test_turns_of_more_than_an_hour_ago_do_not_count() -> None:
    """Twice within an hour is allowed for ever."""
    damper = Damper(DampingRule(max_flaps=2))
    assert report(damper, "+-" * 100, step=900.0) == "HU" * 100
    assert not damper.is_out("a")
    assert report(damper, "+-" * 3, start=1e6, step=600.0) == "HUHUHU"
    assert damper.is_out("a")


def test_a_device_that_is_out_comes_back_after_its_time() -> None:
    """Healthy if it is then, and has been for long enough; with its flaps forgotten."""
    rule = DampingRule(max_flaps=0, recover_after=100, healthy_after=10)
    damper = Damper(rule)
    assert report(damper, "+-") == "HU"
    assert damper.is_out("a")
    assert damper.next_at() == 101.0
    assert not damper.observe("a", True, 95.0)
    assert not damper.observe("a", True, 101.0)
    assert not damper.is_out("a")
    assert damper.next_at() == 105.0
    assert damper.observe("a", True, 105.0)
    damper = Damper(DampingRule(max_flaps=1, recover_after=100))
    for start in (0.0, 200.0, 400.0):
        assert report(damper, "+-+-", start=start) == "HUHU"
        assert damper.is_out("a")


def test_unplugging_does_not_end_that_a_device_is_out() -> None:
    """A device that is gone is forgotten, unless it was out."""
    damper = Damper(DampingRule(max_flaps=0, healthy_after=50))
    for device_id in ("out", "gone"):
        damper.observe(device_id, device_id == "out", 0.0)
    damper.observe("out", False, 1.0)
    damper.keep_only([])
    assert damper.observe("gone", True, 2.0)
    assert not damper.observe("out", True, 2.0)


def test_negative_values_are_refused() -> None:
    """Negative times."""
    with pytest.raises(UsageError, match="must be from 0 s to a year"):
        DampingRule(healthy_after=-1)
