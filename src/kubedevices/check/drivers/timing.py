"""Limits and pauses of a check of a DRA driver. Pure."""

from dataclasses import dataclass

from kubedevices.check.timing import Durations

SLOWEST_HELPER = 95.0
"""Seconds until a driver on k8s.io/dynamic-resource-allocation has published deleted slices again.

The helper waits 30 s after the last event, and 60 s after its own last write (the life of an entry
in its cache), in which it does not see that a slice is gone. So a shorter limit says nothing.
"""


@dataclass(frozen=True, slots=True)
class DriverTiming(Durations):
    """Limits and pauses of the check, in own seconds of the driver (`check.busy_machine`)."""

    start: float = 40  # from the start of the process until it is registered and has published
    call: float = 45  # deadline of the kubelet for Prepare and Unprepare
    again: float = 10  # until it is registered again after the kubelet's restart
    published: float = SLOWEST_HELPER  # until slices are back after somebody deleted them
    repaired: float = SLOWEST_HELPER + 5  # until it has recovered from errors of the API server
    stop: float = 10
    wiped: float = 60  # until it is registered again, or ends, after its sockets are gone
    first_health: float = 5
    change: float = 15  # until a change of a device is published

    settle: float = 1  # nothing new is published for so long: the driver is ready
    quiet: float = 60  # in which a driver without changes may not write
    compared: float = 35  # after an event; upstream's helper compares 30 s later
    absent: float = 3  # for which the kubelet is away
    before_kubelet: float = 65  # for which the driver runs before its kubelet
    api_away: float = 12
    refusing: float = 6  # for which the API server refuses
    hold: float = 0.5
    idle: float = 35 * 60  # without a call, only in a long run


QUICK = DriverTiming(
    start=15, call=20, again=8, published=7, repaired=8, stop=8, wiped=12, quiet=5, compared=3,
    before_kubelet=12, api_away=3, refusing=3, change=8, absent=1,
)  # fmt: skip
"""The times of `--quick`."""

LONG = DriverTiming(before_kubelet=120, api_away=60)
"""The times of `--long`."""
