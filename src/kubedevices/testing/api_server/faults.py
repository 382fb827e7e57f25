"""The answer of a call that a test breaks."""

from typing import NamedTuple


class ApiFault(NamedTuple):
    """The answer of a broken call; `status` 0 closes the connection, -1 never answers.

    `retry_after` is the header Retry-After in seconds. `raw` is sent instead, byte for byte, before
    the connection is closed: HTTP or not. `delay` is the time before any of that, in seconds; a
    `status` of 200 with a delay is a right answer that comes late.
    """

    status: int
    message: str = ""
    reason: str = ""
    retry_after: int | None = None
    raw: bytes = b""
    delay: float = 0


HANG_UP = ApiFault(0)
SILENCE = ApiFault(-1)
