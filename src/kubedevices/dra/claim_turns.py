"""Lets this process work on many claims at the same time, while no other process does. asyncio.

`claim_lock` is for one process. Within the process, the calls for one claim come one after the
other, in their order; calls for different claims run together and share the lock. After
`TURN_LIMIT` seconds new calls wait until the calls of this turn have ended, so that another
instance of the driver gets the lock.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

from kubedevices.dra.claim_lock import ClaimLock

TURN_LIMIT = 2.0
"""Seconds after which a turn of this process takes no more calls."""

_PAUSE = 0.1
"""Seconds between two turns after `TURN_LIMIT`: longer than another instance's pause."""


class ClaimTurns:
    """Turns of this process at `lock`. `begin` is called when this process has got the lock."""

    def __init__(self, lock: ClaimLock, begin: Callable[[], Awaitable[None]]) -> None:
        self._lock, self._begin = lock, begin
        # Those who enter pass this door one after the other, in their order.
        self._door = asyncio.Lock()
        self._users, self._since = 0, 0.0
        self._is_free = asyncio.Event()
        self._is_free.set()
        # The lock of each claim, and the number of calls that use it or wait for it.
        self._locks: dict[str, asyncio.Lock] = {}
        self._calls: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def of(self, uid: str) -> AsyncIterator[None]:
        """Work on one claim. Raises `PreparedUnwritable`."""
        lock = self._locks.setdefault(uid, asyncio.Lock())
        self._calls[uid] += 1
        try:
            async with lock, self.of_process():
                yield
        finally:
            self._calls[uid] -= 1
            if not self._calls[uid]:
                del self._calls[uid], self._locks[uid]

    @contextlib.asynccontextmanager
    async def of_process(self) -> AsyncIterator[None]:
        """Hold the lock of the process. Raises `PreparedUnwritable`."""
        async with self._door:
            await self._enter()
        try:
            yield
        finally:
            self._leave()

    async def _enter(self) -> None:
        now = asyncio.get_running_loop().time
        if self._users and now() - self._since > TURN_LIMIT:
            await self._is_free.wait()
            await asyncio.sleep(_PAUSE)
        if not self._users:
            await self._lock.__aenter__()
            self._since = now()
            try:
                await self._begin()
            except BaseException:
                self._lock.release()
                raise
        self._users += 1
        self._is_free.clear()

    def _leave(self) -> None:
        self._users -= 1
        if not self._users:
            self._lock.release()
            self._is_free.set()
