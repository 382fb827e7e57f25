"""All durations of a run in one frozen value, in seconds.

`--timeout-scale` multiplies all durations; the tests of the checks shorten some of them.
"""

import math
from dataclasses import dataclass, fields, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class Durations:
    """Fields in seconds, and counts."""

    def scaled(self, factor: float) -> Self:
        """Return a copy with all durations multiplied by `factor`; counts stay."""
        durations = {
            each.name: getattr(self, each.name) * factor
            for each in fields(self)
            if each.type == "float" or each.type is float
        }
        return replace(self, **durations)


@dataclass(frozen=True, slots=True)
class CheckTiming(Durations):
    """Limits for the plugin, and pauses of the check, in own seconds of the plugin.

    `busy_machine` says what own seconds are. Plugins have timers of 5, 10, 30 and 60 s. A limit
    with such a value makes the verdict depend on chance, so the limits lie between these values.

    The first group are limits for the plugin. The second group are pauses and times that the check
    takes. The last group are counts, which `scaled` does not change.
    """

    start: float = 40  # from the start of the process to Register
    dial: float = 10
    call: float = 14
    first_list: float = 2
    late_list: float = 20  # other checks wait so long for a first list
    registered_soon: float = 8  # after a kubelet restart; later is a warning
    registered_at_all: float = 40  # after a kubelet restart; later is a failure
    noticed_soon: float = 15  # as registered_soon, if only a stream ended and no file changed
    change: float = 15
    pre_start: float = 40
    stop: float = 8

    settle: float = 2  # without a new resource, then the checks begin
    quiet: float = 12  # two rounds of the slowest usual scan
    slow_register: float = 7.5
    absent: float = 7
    refusing: float = 8
    overlap: float = 3
    away: float = 20
    after_register: float = 1.1  # nothing is disturbed before: some plugins begin to watch late
    linger: float = 1  # after a disturbance, before the check looks if the plugin still runs
    watch: float = 16  # the same after a kubelet restart: some plugins end much later
    often: float = 40  # for many restarts in a row
    hold: float = 0.5  # for which a connection is idle or unread
    last_begin: float = math.inf  # since the first check; later no check begins

    rounds: int = 12
    changes: int = 6
    calls_at_once: int = 16
    streams_beside: int = 12


QUICK = CheckTiming(
    start=9,
    dial=8,
    call=7,
    late_list=7,
    registered_at_all=7,
    change=7,
    pre_start=7,
    stop=7,
    settle=1,
    linger=1 / 3,
    watch=1.1,
    last_begin=8,
)
"""The times of `--quick`. Seven seconds lie between the timers of 5 and of 10 s. All copies of a
plugin run at the same time, so a plugin that never answers costs little more than one limit.
"""
