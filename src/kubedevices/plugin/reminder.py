"""When to say again in the log that something is still waited for. Pure; for the registrar."""

from kubedevices.plugin.timing import Timing, back_off


class Reminder:
    """Says that we are still waiting: at once, and then ever more rarely."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self.reset()

    def reset(self) -> None:
        """Begin anew: what comes next is said at once."""
        self._told = 0
        self.due: float | None = None

    def is_due(self, now: float) -> bool:
        """Whether to tell at `now`; if so, sets the next time."""
        if self.due is not None and now < self.due:
            return False
        timing = self._timing
        self.due = now + back_off(timing.waiting_reminder, timing.waiting_reminder_last, self._told)
        self._told += 1
        return True
