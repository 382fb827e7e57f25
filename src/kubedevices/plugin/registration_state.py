"""How long one registration holds, and when to register again. Pure; for the registrar.

A kubelet opens one ListAndWatch stream per registration. While it is open all is well. When it
ends although kubelet.sock is still there, only the plugin can repair this: a kubelet never
reconnects by itself. Registering again at once, for ever, would be a storm when two plugins push
each other out, so the pauses grow as long as no stream lasts. The first ones are short: a kubelet
that clears up after another instance may hang up on us more than once.
"""

from kubedevices.plugin.timing import Timing, back_off


class RegistrationState:
    """One registration, from the kubelet's OK at `since`.

    `losses` is the number of registrations in a row before this one that brought no lasting stream.
    """

    def __init__(self, timing: Timing, since: float, losses: int = 0) -> None:
        self._timing, self._since, self._losses = timing, since, losses
        self._opened_at: float | None = None
        self._ended_at: float | None = None

    def observe(self, opened: int, open_now: int, now: float) -> None:
        """Note how many streams this registration ever had and how many are open.

        Both, because a stream may open and end between two observations.
        """
        if opened and self._opened_at is None:
            self._opened_at = now
        if open_now:
            # A kubelet may open one more stream for this registration, when it goes on with a
            # Register call that we gave up: then nothing is lost.
            self._ended_at = None
        elif opened and self._ended_at is None:
            self._ended_at = now

    @property
    def has_stream(self) -> bool:
        """Whether a stream is open, as last observed."""
        return self._opened_at is not None and self._ended_at is None

    @property
    def had_stream(self) -> bool:
        """Whether a stream was ever open."""
        return self._opened_at is not None

    @property
    def is_lost(self) -> bool:
        """Whether there was a stream and there is none now."""
        return self._ended_at is not None

    @property
    def lasted(self) -> bool:
        """Whether the stream was open for so long that its end is an event of its own."""
        if self._opened_at is None or self._ended_at is None:
            return False
        return self._ended_at - self._opened_at >= self._timing.stream_lasted

    @property
    def again_at(self) -> float | None:
        """When to register again if nothing changes until then; None while a stream is open."""
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
        """The `losses` of the registration that follows this one."""
        # Never 0: this registration has come to its end too.
        return 1 if self.lasted else self._losses + 1
