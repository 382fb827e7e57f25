"""The rate limit of kubedevices.node.services.pod_resources."""

from kubedevices.node.services.pod_resources import TokenBucket


def test_a_burst_is_allowed_up_to_its_size() -> None:
    """A full bucket allows ten calls at once, and not the eleventh."""
    bucket = TokenBucket(rate=100, burst=10)
    assert [bucket.take(1.0) for _ in range(11)] == [True] * 10 + [False]


def test_time_fills_the_bucket_up_to_its_size() -> None:
    """At 100 calls a second, one more is allowed after 10 ms, and never more than the burst."""
    bucket = TokenBucket(rate=100, burst=2)
    assert [bucket.take(0.0) for _ in range(3)] == [True, True, False]
    assert [bucket.take(0.011) for _ in range(2)] == [True, False]
    assert [bucket.take(99.0) for _ in range(3)] == [True, True, False]


def test_a_clock_that_goes_back_changes_nothing() -> None:
    """An earlier `now` neither fills nor empties the bucket."""
    bucket = TokenBucket(rate=100, burst=2)
    assert [bucket.take(now) for now in (5.0, 4.0, 4.0)] == [True, True, False]
