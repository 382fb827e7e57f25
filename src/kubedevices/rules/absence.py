"""What a node gets of a plugin that is away: its whole list, or only what pods hold. Pure.

`presence` knows since when the plugin is away; `hold` acts.
"""

from dataclasses import dataclass
from enum import Enum


class AwayOffer(Enum):
    """What a node gets of the last list of a plugin that is away."""

    ALL = "the list as it was"
    HELD = "the list; devices that no pod holds are Unhealthy"
    UNHEALTHY = "the list; all devices are Unhealthy"
    NOTHING = "no list: the resource is withdrawn"


@dataclass(frozen=True, kw_only=True)
class HoldRule:
    """What happens while a plugin is away; times in seconds since it left."""

    hold: float | None = None
    """So long the list stays; then its devices are Unhealthy. None: the resource is withdrawn."""

    allocate_wait: float = 10.0
    """So long calls wait for the plugin's return; then only devices that pods hold stay Healthy."""

    def __post_init__(self) -> None:
        """Refuse negative times."""
        if not (self.allocate_wait >= 0 and (self.hold is None or self.hold >= 0)):
            raise ValueError("hold and allocate_wait are seconds, 0 or more")

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
