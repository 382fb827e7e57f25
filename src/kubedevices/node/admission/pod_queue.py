"""Work on one pod runs one piece after the other, work on different pods at the same time.

More than a lock per pod: what runs can be cancelled for what comes next.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from kubedevices.errors import GivenUp

logger = logging.getLogger(__name__)

T = TypeVar("T")


class PodQueue:
    """Runs each piece of work as a task of its own, when the piece before on its key has ended."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._can_be_cancelled: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    async def take(
        self,
        key: str,
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        can_be_cancelled: bool = False,
    ) -> T:
        """Wait for the turn, do the work, return its result.

        Cancelling the caller cancels the work. Raises `GivenUp` when the work was cancelled from
        elsewhere, by `cancel_current` or `close`; work that ends all the same is answered.
        """
        while (before := self._running.get(key)) is not None:
            await asyncio.wait({before})
        if self._is_closed:
            raise GivenUp
        task = asyncio.create_task(work(), name=f"turn of {key}")
        self._running[key] = task
        if can_be_cancelled:
            self._can_be_cancelled.add(task)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await _end_of(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                logger.info("given up, and failed anyway: %s", error)
            raise
        finally:
            self._can_be_cancelled.discard(task)
            if self._running.get(key) is task:
                del self._running[key]
        if task.cancelled():
            raise GivenUp
        return task.result()

    def cancel_current(self, key: str) -> None:
        """Cancel what runs on `key`, if it was said to be cancellable."""
        task = self._running.get(key)
        if task in self._can_be_cancelled:
            task.cancel()

    def is_taken(self, key: str) -> bool:
        """Whether something runs on `key`."""
        return key in self._running

    def open(self) -> None:
        """Let work begin again after `close`."""
        self._is_closed = False

    async def close(self) -> None:
        """Cancel everything and wait for its end; what waits for its turn is given up."""
        self._is_closed = True
        tasks = [*self._running.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def to_its_end(work: Awaitable[T]) -> T:
    """Do `work` as a whole, also when cancelled meanwhile, and return or raise what came of it.

    The cancellation is gone then: for the work of a turn, whose caller is told by `PodQueue.take`.
    """
    done = asyncio.ensure_future(work)
    await _end_of(done)
    return done.result()


async def _end_of(task: asyncio.Future[Any]) -> None:
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):  # impatience changes nothing
            await asyncio.wait({task})
