"""How long a plugin may be away: when its devices turn Unhealthy, how long calls wait. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class HoldRule:
    """What holds while a plugin is away; times in seconds."""

    hold: float = 0.0
    """The list stays as it was for so long, then its devices are Unhealthy."""

    allocate_wait: float = 10.0
    """All calls of one absence together wait for so long for the plugin's return."""

    over_reboot: bool = False
    """The last list is kept on disk, and offered before the plugin is back."""

    def __post_init__(self) -> None:
        """Refuse times that cannot be."""
        if not (self.hold >= 0 and self.allocate_wait >= 0):
            raise ValueError("hold and allocate_wait are seconds, 0 or more")


class Absence:
    """One plugin's absences; every method takes the time."""

    def __init__(self, rule: HoldRule) -> None:
        self.rule = rule
        self.since: float | None = None
        """When the plugin left; None while it is there."""

        self._waited = 0.0
        self._waiting = 0
        self._waiting_since = 0.0

    def begin(self, now: float) -> None:
        """The plugin left. A call that still waits has not noticed that it was back meanwhile."""
        if self.since is None:
            # A call that waits since the absence before begins its wait anew.
            self.since = self._waiting_since = now
            self._waited = 0.0

    def end(self) -> None:
        """The plugin is there."""
        self.since = None

    def holds_until(self) -> float | None:
        """Return until when the list stays, None while the plugin is there."""
        since = self.since  # read once: another thread may ask
        return None if since is None else since + self.rule.hold

    def is_held(self, now: float) -> bool:
        """Whether the list stays as it was."""
        until = self.holds_until()
        return until is not None and now < until

    def begin_wait(self, now: float) -> float:
        """Begin to wait; return until when. The time in which several wait counts once."""
        if self._waiting == 0:
            self._waiting_since = now
        self._waiting += 1
        # Who finds the list no longer held comes too late for a wait.
        left = self.rule.allocate_wait - self._waited if self.is_held(now) else 0.0
        return self._waiting_since + max(0.0, left)

    def end_wait(self, now: float) -> None:
        """End what `begin_wait` began, however it ended."""
        self._waiting -= 1
        if self._waiting == 0:
            self._waited += now - self._waiting_since
