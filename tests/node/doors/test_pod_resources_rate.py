"""kubedevices.node.doors.pod_resources"""

from kubedevices.node.doors.pod_resources import TokenBucket


def test_a_burst_is_let_through_and_no_more() -> None:
    """A full bucket of ten lets ten calls in at once, and not the eleventh."""
    bucket = TokenBucket(rate=100, burst=10)
    assert [bucket.take(1.0) for _ in range(11)] == [True] * 10 + [False]


def test_time_fills_the_bucket_up_to_its_size() -> None:
    """At a hundred a second one more is let in after 10 ms, and never more than the burst."""
    bucket = TokenBucket(rate=100, burst=2)
    assert [bucket.take(0.0) for _ in range(3)] == [True, True, False]
    assert [bucket.take(0.011) for _ in range(2)] == [True, False]
    assert [bucket.take(99.0) for _ in range(3)] == [True, True, False]


def test_a_clock_that_goes_back_takes_nothing_away() -> None:
    """An earlier `now` neither fills nor empties the bucket."""
    bucket = TokenBucket(rate=100, burst=2)
    assert [bucket.take(now) for now in (5.0, 4.0, 4.0)] == [True, True, False]
