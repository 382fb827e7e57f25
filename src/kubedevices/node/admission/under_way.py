"""What is about to be given or given back right now, and who waits for how it ends.

For admissions that lack devices: those that another admission holds while its plugins are asked may
be free a moment later. A serial kubelet would have waited for the other one, so the final no does.
Who waits here holds nothing, so two can never wait for each other.
"""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager


class UnderWay:
    """Work on the devices of some resources that has begun and not ended."""

    def __init__(self) -> None:
        self._open: dict[object, frozenset[str]] = {}
        self._waiting: dict[asyncio.Future[None], frozenset[str]] = {}

    def __repr__(self) -> str:
        return f"<UnderWay with {len(self._open)} open, {len(self._waiting)} waiting>"

    @contextmanager
    def admission(self, resources: Collection[str]) -> Iterator[None]:
        """Devices of `resources` are reserved during the block; when it raises they are free."""
        with self._note(resources) as names:
            try:
                yield
            except BaseException:
                self._wake(names)
                raise

    @contextmanager
    def release(self, resources: Collection[str]) -> Iterator[None]:
        """Devices of `resources` become free at the end of the block."""
        with self._note(resources) as names:
            yield
            self._wake(names)

    @contextmanager
    def _note(self, resources: Collection[str]) -> Iterator[frozenset[str]]:
        key, names = object(), frozenset(resources)
        self._open[key] = names
        try:
            yield names
        finally:
            del self._open[key]
            for waiter, wanted in self._waiting.items():
                if not self._concerns(wanted):
                    _set(waiter)

    def _wake(self, names: frozenset[str]) -> None:
        for waiter, wanted in self._waiting.items():
            if wanted & names:
                _set(waiter)

    def _concerns(self, wanted: frozenset[str]) -> bool:
        return any(wanted & names for names in self._open.values())

    async def may_free(self, resources: Collection[str]) -> bool:
        """Wait until devices of `resources` may have become free; False when nobody is at them.

        Returns when some were given back, or nothing is under way any more; those who waited
        longest go on first.
        """
        wanted = frozenset(resources)
        if not self._concerns(wanted):
            return False
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = wanted
        try:
            await waiter
        finally:
            del self._waiting[waiter]
        return True


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
