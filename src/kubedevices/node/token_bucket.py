"""How often something may be done: a bucket of tokens that fills up with time. Pure."""


class TokenBucket:
    """Holds at most `burst` tokens and gains `rate` of them a second; begins full."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._tokens = float(burst)
        self._since: float | None = None

    def take(self, now: float) -> bool:
        """Take a token, if there is one; `now` is in seconds and never goes back."""
        if self._since is not None:
            gained = max(0.0, now - self._since) * self._rate
            self._tokens = min(self._burst, self._tokens + gained)
        self._since = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
