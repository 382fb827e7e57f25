"""When an endpoint opens the lost stream of a plugin again. The time is the argument `now`."""

FIRST_REOPEN, LAST_REOPEN = 0.1, 10.0

LASTING = 30.0
"""Seconds. A stream that was opened again and lasted for this time counts as a success."""


class Reopening:
    """The pauses before the attempts to open a stream again.

    A pause is twice the last pause. After a stream that lasted, the first pause is short again.
    There are no more attempts `limit` seconds after the loss.
    """

    def __init__(self, limit: float) -> None:
        self._limit, self._lost_at, self._pause = limit, 0.0, 0.0
        self._was_reopened = False

    def lost(self, opened_at: float, now: float) -> None:
        """Record the end of a stream that had brought a list."""
        self._lost_at = now
        if now - opened_at > LAST_REOPEN:
            self._pause = 0.0

    def ended_early(self, opened_at: float, now: float) -> bool:
        """Whether the ended stream had been opened again and did not last; then do not try again.

        The plugin has to register. Otherwise its devices would appear and vanish again and again.
        """
        in_vain = self._was_reopened and now - opened_at < LASTING
        self._was_reopened = True
        return in_vain

    def pause(self, now: float) -> float | None:
        """Return the seconds before the next attempt, None if there is no next attempt."""
        # `_pause` is 0 after a stream that lasted; then `or` gives the first pause.
        self._pause = min(self._pause * 2, LAST_REOPEN) or FIRST_REOPEN
        return self._pause if now + self._pause - self._lost_at <= self._limit else None
