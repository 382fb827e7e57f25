"""The nodes of a cluster do not call at the same time, and none calls too often or too rarely."""

from kubedevices.dra.pauses import at_random


def test_pauses_differ_within_the_second_half_of_the_longest() -> None:
    """They use all of it."""
    found = [at_random(60.0) for _ in range(1000)]
    assert 30.0 <= min(found) < 33.0
    assert 57.0 < max(found) <= 60.0
