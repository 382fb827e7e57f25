"""Time limits for `async with` and for single waits, right also in the first versions of 3.11.

Up to 3.11.2, which Debian 12 has, a limit that expires in a task that is being cancelled raises
CancelledError instead of TimeoutError. So the end of a task, where the limits of a clean-up are,
skipped what was left of the clean-up.
"""

import asyncio
import contextlib
import sys
from collections.abc import Awaitable
from types import TracebackType


class _Timeout:
    """An `asyncio.Timeout` that counts only the requests to cancel that came inside it."""

    def __init__(self, inner: asyncio.Timeout) -> None:
        self._inner = inner

    async def __aenter__(self) -> asyncio.Timeout:
        self._task = asyncio.current_task()
        self._before = self._task.cancelling() if self._task is not None else 0
        return await self._inner.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)
        is_ours = self._task is not None and self._task.cancelling() <= self._before
        if self._inner.expired() and is_ours and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error


if sys.version_info >= (3, 12):
    timeout, timeout_at = asyncio.timeout, asyncio.timeout_at
else:

    def timeout(delay: float | None) -> _Timeout:
        """Raise TimeoutError in the body of `async with` after `delay` seconds."""
        return _Timeout(asyncio.timeout(delay))

    def timeout_at(when: float | None) -> _Timeout:
        """Raise TimeoutError in the body of `async with` at the time `when` of the loop."""
        return _Timeout(asyncio.timeout_at(when))


async def within(seconds: float | None, waiting: Awaitable[object]) -> bool:
    """Await `waiting` for at most `seconds`; return whether it ended in time."""
    loop = asyncio.get_running_loop()
    return await until(None if seconds is None else loop.time() + seconds, waiting)


async def until(when: float | None, waiting: Awaitable[object]) -> bool:
    """Await `waiting` until the time `when` of the loop; return whether it ended in time."""
    with contextlib.suppress(TimeoutError):
        async with timeout_at(when):
            await waiting
            return True
    return False
