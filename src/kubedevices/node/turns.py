"""One thing after the other per key, different keys at the same time. For what is done to a pod.

Not a lock: what is under way can be made to give way to what comes next.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class Turns:
    """Runs each piece of work as a task of its own when the one before on its key has ended."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._gives_way: set[asyncio.Task[Any]] = set()

    async def take(
        self,
        key: str,
        work: Callable[[], Coroutine[Any, Any, Result]],
        *,
        gives_way: bool = False,
    ) -> Result:
        """Wait for the turn, do the work, return its result.

        Cancelling the caller cancels the work. Work that was made to give way raises
        `CancelledError` in a caller that was not cancelled itself (`Task.cancelling()` is 0).
        """
        while (before := self._running.get(key)) is not None:
            await asyncio.wait({before})
        task = asyncio.create_task(work(), name=f"turn of {key}")
        self._running[key] = task
        if gives_way:
            self._gives_way.add(task)
        try:
            return await task
        finally:
            self._gives_way.discard(task)
            if self._running.get(key) is task:
                del self._running[key]

    def make_way(self, key: str) -> None:
        """Cancel what is under way on `key`, if it gives way."""
        task = self._running.get(key)
        if task in self._gives_way:
            task.cancel()

    def is_taken(self, key: str) -> bool:
        """Whether something is under way on `key`."""
        return key in self._running

    async def cancel_all(self) -> None:
        """Cancel everything and wait for its end."""
        tasks = [*self._running.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
