"""What a node gets of a plugin that is away: its whole list, or only what pods hold. Pure.

`presence` knows since when the plugin is away; `hold` acts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kubedevices.config.durations import duration
from kubedevices.config.keys import Complain, Declared


class AwayOffer(Enum):
    """What a node gets of the last list of a plugin that is away."""

    ALL = "the list as it was"
    HELD = "the list; devices that no pod holds are Unhealthy"
    UNHEALTHY = "the list; all devices are Unhealthy"
    NOTHING = "no list: the resource is withdrawn"


@dataclass(frozen=True, kw_only=True)
class HoldRule(Declared):
    """What happens while a plugin is away; times since it left.

    Without `hold` the resource is withdrawn. After `hold` its devices are Unhealthy; after
    `allocate_wait` only devices that pods hold stay Healthy.
    """

    hold: float | None = duration(
        "how long the last list stays in force while the plugin is disconnected", default=None
    )
    allocate_wait: float = duration(
        "how long calls wait for a disconnected plugin, all calls of one absence together",
        default=10.0,
    )

    @classmethod
    def validate(cls, values: Mapping[str, Any], complain: Complain) -> None:
        """Check that calls wait only for a list that stays."""
        if values.get("hold") is None and "allocate_wait" in values:
            complain(("allocateWait",), "no effect without hold", "add 'hold: 5m'")

    def calls_wait_until(self, since: float) -> float:
        """Return until when calls wait for a plugin that is away since `since`."""
        return since + min(self.hold or 0.0, self.allocate_wait)

    def offer(self, since: float, now: float) -> tuple[AwayOffer, float | None]:
        """Return what a node gets at `now`, and when that changes next.

        There are four cases. Without `hold` the absence of the plugin is the end of its resource,
        as for a kubelet. With `hold`, a pod that comes soon waits in Allocate and starts when the
        plugin is back: everything stays. When calls wait no longer, each pod that the scheduler
        sends to a free device would fail for good, while a pod that stays Pending would start
        later: free devices turn Unhealthy, and the capacity and the devices of running pods stay.
        After `hold` the plugin counts as lost, with all its devices.
        """
        if self.hold is None:
            return AwayOffer.NOTHING, None
        held_until = since + self.hold
        if now >= held_until:
            return AwayOffer.UNHEALTHY, None
        if now >= (wait_until := self.calls_wait_until(since)):
            return AwayOffer.HELD, held_until
        return AwayOffer.ALL, wait_until
