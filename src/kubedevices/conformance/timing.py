"""Every duration of a check run in one frozen value, in seconds, as a node would measure them.

`--timeout-scale` stretches all of them; tests of the checks themselves shrink them one by one.
"""

from dataclasses import dataclass, fields, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class CheckTiming:
    """What a plugin gets time for, and how long we watch it: in its own time, see `lost_time`.

    Plugins have timers of 5, 10, 30 and 60 s; a limit that sits on one makes a verdict a lottery.

    The first group are limits of a plugin, the second one are pauses it has to live through, the
    last one are counts, which never scale.
    """

    start: float = 40  # from the start of the process to Register
    dial: float = 10
    call: float = 14
    first_list: float = 2
    late_list: float = 20  # when a missing list ends the wait of the other checks
    registered_soon: float = 8  # later than this after a kubelet's return is a warning
    registered_at_all: float = 40
    noticed_soon: float = 15  # the same where only a stream ended and no file changed
    change: float = 15
    pre_start: float = 40
    stop: float = 8

    settle: float = 2  # silence after which we go on; a resource that comes later is taken in
    quiet: float = 12  # two rounds of the slowest usual scan
    slow_register: float = 7.5
    absent: float = 7
    refusing: float = 8
    overlap: float = 3
    away: float = 20
    after_register: float = (
        1.1  # after Register, before anything is disturbed: some begin to watch late
    )
    linger: float = 1  # after a disturbance, until a plugin that died of it is gone
    watch: float = 16  # after a kubelet restart or a lost stream: some die of it much later
    often: float = 40  # what many restarts in a row may take
    hold: float = 0.5  # how long a connection is left idle or unread

    rounds: int = 12
    changes: int = 6
    calls_at_once: int = 16
    streams_beside: int = 12

    def scaled(self, factor: float) -> Self:
        """Return the same with all durations times `factor`."""
        durations = {
            each.name: getattr(self, each.name) * factor
            for each in fields(self)
            if each.type == "float" or each.type is float
        }
        return replace(self, **durations)
