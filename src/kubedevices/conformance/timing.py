"""Every duration of a check run in one frozen value, in seconds, as a node would measure them.

`--timeout-scale` stretches all of them; tests of the checks themselves shrink them one by one.
"""

from dataclasses import dataclass, fields, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class Timing:
    """What a plugin gets time for, and how long we watch it.

    The first group are limits of a plugin, the second one are pauses it has to live through, the
    last one are counts, which never scale.
    """

    start: float = 30  # from the start of the process to Register
    dial: float = 10
    call: float = 10
    first_list: float = 2
    late_list: float = 20  # when a missing list ends the wait of the other checks
    registered_soon: float = 5  # later than this after a kubelet's return is a warning
    registered_at_all: float = 30
    noticed_soon: float = 15  # the same where only a stream ended and no file changed
    change: float = 15
    pre_start: float = 30
    stop: float = 5

    settle: float = 2  # silence after which we go on; a resource that comes later is taken in
    quiet: float = 11  # two rounds of the slowest usual scan
    slow_register: float = 9
    absent: float = 4
    refusing: float = 8
    overlap: float = 3
    away: float = 30
    hold: float = 0.5  # how long a connection is left idle or unread

    rounds: int = 20
    changes: int = 10
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
