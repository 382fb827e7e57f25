"""When the lost stream of a plugin is opened again."""

import pytest

from kubedevices.node.arrival.reopening import FIRST_REOPEN, LAST_REOPEN, LASTING, Reopening


def pauses(reopening: Reopening, count: int, now: float = 0) -> list[float | None]:
    return [reopening.pause(now) for _ in range(count)]


def test_the_pauses_double_up_to_a_maximum() -> None:
    """From the first loss on, also through streams that end soon."""
    reopening = Reopening(1000)
    reopening.lost(0, 100)
    assert pauses(reopening, 9, 100) == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]
    assert (FIRST_REOPEN, LAST_REOPEN) == (0.1, 10)


@pytest.mark.parametrize(("lasted", "next_pause"), [(1, 0.4), (10, 0.4), (10.1, 0.1), (99, 0.1)])
def test_a_lasting_stream_resets_the_pauses(lasted: float, next_pause: float) -> None:
    """A plugin that ends its stream once a minute is reconnected at once; frequent ends are
    delayed.
    """
    reopening = Reopening(1000)
    reopening.lost(0, 50)
    assert pauses(reopening, 2, 50) == [0.1, 0.2]
    reopening.lost(60, 60 + lasted)
    assert reopening.pause(60 + lasted) == next_pause


def test_the_tries_end_with_the_grace_period() -> None:
    """No try begins after the grace period. The next loss has its own period."""
    reopening = Reopening(0.5)
    reopening.lost(0, 100)
    assert pauses(reopening, 2, 100.1) == [0.1, 0.2]
    assert reopening.pause(100.1) == 0.4
    assert reopening.pause(100.1) is None
    reopening.lost(200, 300)
    assert reopening.pause(300) == 0.1
    assert Reopening(0).pause(0) is None


def test_a_stream_is_opened_again_once_unless_it_lasts() -> None:
    """The first stream may end at any time. Only a stream that was opened again has to last."""
    reopening = Reopening(1000)
    assert not reopening.ended_early(0, 0.1)
    assert not reopening.ended_early(1, 1 + LASTING)
    assert not reopening.ended_early(100, 100 + LASTING)
    assert reopening.ended_early(200, 199.9 + LASTING)
