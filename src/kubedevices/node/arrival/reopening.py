"""When the lost stream of a plugin is opened again. For an endpoint; time comes in as `now`."""

FIRST_REOPEN, LAST_REOPEN = 0.1, 10.0

LASTING = 30.0
"""A stream that was opened again and lasted so many seconds counts as a success."""


class Reopening:
    """The pauses before each try: they double, and start afresh after a stream that lasted.

    Tries end `limit` seconds after the loss.
    """

    def __init__(self, limit: float) -> None:
        self._limit, self._lost_at, self._pause = limit, 0.0, 0.0
        self._was_reopened = False

    def lost(self, opened_at: float, now: float) -> None:
        """Take note that a stream which had brought a list ended."""
        self._lost_at = now
        if now - opened_at > LAST_REOPEN:
            self._pause = 0.0

    def ended_early(self, opened_at: float, now: float) -> bool:
        """Whether a stream that ended had been opened again and did not last.

        It is left to the plugin then, which has to register: its devices would come and go.
        """
        in_vain = self._was_reopened and now - opened_at < LASTING
        self._was_reopened = True
        return in_vain

    def pause(self, now: float) -> float | None:
        """Return the seconds before the next try, None when there is to be none."""
        # 0 after a stream that lasted, which `or` makes the first pause.
        self._pause = min(self._pause * 2, LAST_REOPEN) or FIRST_REOPEN
        return self._pause if now + self._pause - self._lost_at <= self._limit else None
