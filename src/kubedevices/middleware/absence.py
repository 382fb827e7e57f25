"""Decides how long a plugin may be away: until its devices turn Unhealthy, and calls fail. Pure.

`presence` knows whether the plugin is away; `hold` acts.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class HoldRule:
    """What happens while a plugin is away; times in seconds."""

    hold: float = 0.0
    """So long the list stays unchanged; then its devices are Unhealthy."""

    allocate_wait: float = 10.0
    """So long all calls of one absence together wait for the plugin's return."""

    over_reboot: bool = False
    """The last list is saved on disk, and offered after a reboot before the plugin is back."""

    def __post_init__(self) -> None:
        """Refuse negative times."""
        if not (self.hold >= 0 and self.allocate_wait >= 0):
            raise ValueError("hold and allocate_wait are seconds, 0 or more")


class Absence:
    """The absences of one plugin; `now` is the loop's time in seconds."""

    def __init__(self, rule: HoldRule) -> None:
        self.rule = rule
        self.since: float | None = None
        """When the plugin left; None while it is connected."""

        self._waited = 0.0
        self._waiting = 0
        self._waiting_since = 0.0

    def begin(self, now: float) -> None:
        """Record that the plugin left."""
        if self.since is None:
            # A call may still wait since the last absence, if the plugin was back only shortly. Its
            # wait begins again.
            self.since = self._waiting_since = now
            self._waited = 0.0

    def end(self) -> None:
        """Record that the plugin is connected."""
        self.since = None

    def holds_until(self) -> float | None:
        """Return until when the list stays; None while the plugin is connected."""
        since = self.since  # read once: another thread may ask
        return None if since is None else since + self.rule.hold

    def is_held(self, now: float) -> bool:
        """Whether the list still stays unchanged."""
        until = self.holds_until()
        return until is not None and now < until

    def begin_wait(self, now: float) -> float:
        """Begin a wait; return until when. Time in which several calls wait counts once."""
        if self._waiting == 0:
            self._waiting_since = now
        self._waiting += 1
        # When the list is not held any more, a new call does not wait.
        left = self.rule.allocate_wait - self._waited if self.is_held(now) else 0.0
        return self._waiting_since + max(0.0, left)

    def end_wait(self, now: float) -> None:
        """End a wait that `begin_wait` began, with or without success."""
        self._waiting -= 1
        if self._waiting == 0:
            self._waited += now - self._waiting_since
