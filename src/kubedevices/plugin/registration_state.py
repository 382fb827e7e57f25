"""Says when one registration is lost and when to register again. Pure; it calls nothing itself.

A kubelet opens one ListAndWatch stream per registration. The registration holds while this stream
is open. When the stream ends although kubelet.sock still exists, the plugin must register again: a
kubelet never reconnects by itself. Two plugins with one resource name end each other's streams, so
the pauses grow as long as no stream lasts. The first pauses are short: a kubelet that cleans up
after another instance may end our stream more than once.
"""

from kubedevices.plugin.timing import Timing, back_off


class RegistrationState:
    """One registration, which the kubelet accepted at the time `since` (seconds, loop's clock).

    `losses` is the number of earlier registrations in a row without a lasting stream.
    """

    def __init__(self, timing: Timing, since: float, losses: int = 0) -> None:
        self._timing, self._since, self._losses = timing, since, losses
        self._opened_at: float | None = None
        self._ended_at: float | None = None

    def observe(self, opened: int, open_now: int, now: float) -> None:
        """Record how many streams this registration ever had, and how many are open.

        Both numbers are needed: a stream may open and end between two calls.
        """
        if opened and self._opened_at is None:
            self._opened_at = now
        if open_now:
            # A kubelet may go on with a Register call that we gave up, and open one more stream
            # for this registration: then nothing is lost.
            self._ended_at = None
        elif opened and self._ended_at is None:
            self._ended_at = now

    @property
    def has_stream(self) -> bool:
        """Whether a stream was open at the last call of `observe`."""
        return self._opened_at is not None and self._ended_at is None

    @property
    def had_stream(self) -> bool:
        """Whether a stream was ever open."""
        return self._opened_at is not None

    @property
    def is_lost(self) -> bool:
        """Whether a stream was open and no stream is open now."""
        return self._ended_at is not None

    @property
    def lasted(self) -> bool:
        """Whether the stream was open for so long that its end starts a new count of losses."""
        if self._opened_at is None or self._ended_at is None:
            return False
        return self._ended_at - self._opened_at >= self._timing.stream_lasted

    @property
    def again_at(self) -> float | None:
        """The time to register again if nothing changes until then; None while a stream is open."""
        if self.has_stream:
            return None
        timing = self._timing
        if self._ended_at is None:
            return self._since + back_off(timing.again_first, timing.again_last, self._losses)
        # back_off doubles at each step: three steps make the factor eight of `again_soon`.
        losses = 0 if self.lasted else self._losses
        return self._ended_at + back_off(timing.again_soon, timing.again_last, 3 * losses)

    @property
    def losses(self) -> int:
        """The value of `losses` for the next registration."""
        # Never 0: this registration is lost, too.
        return 1 if self.lasted else self._losses + 1
