"""What runs after what, and what runs at once, when pods get devices and give them back.

`PodQueue`: work on one pod runs one piece after the other. `UnderWay`: an admission that lacks
devices waits for the end of others. `concurrently`: several calls at once, all or nothing.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager
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
            # A loop, because all who wait wake together and one of them is first. `asyncio.wait`
            # leaves `before` alone when we are cancelled.
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
            # The key is free when the work has ended, not when its caller lost patience.
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


class UnderWay:
    """Work on the devices of some resources that has begun and not ended.

    A kubelet admits pods one by one. So a pod is refused only after the admissions before it have
    ended: devices that they hold may become free. A pod that waits here holds nothing, so two pods
    never wait for each other.
    """

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
        """Wait until devices of `resources` may be free; False if no work on them is under way.

        Returns when devices were given back, or when no work is under way any more. Callers go on
        in the order in which they came.
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


async def concurrently(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return all results in order; raise the failure that comes first in order of `work`.

    The others are cancelled and waited for, so nothing of them happens after the return.
    """
    if len(work) == 1:
        return [await work[0]]
    tasks: list[asyncio.Task[T]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks += [group.create_task(each) for each in work]
    # Which of several failures is told must not depend on which plugin is faster.
    except BaseExceptionGroup:
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error from None
        raise
    return [task.result() for task in tasks]


async def to_its_end(work: Awaitable[T]) -> T:
    """Finish `work` even if cancelled meanwhile; return its result or raise its error.

    The cancellation is swallowed: only for work inside `PodQueue.take`, which tells the caller.
    """
    done = asyncio.ensure_future(work)
    await _end_of(done)
    return done.result()


async def _end_of(task: asyncio.Future[Any]) -> None:
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):  # impatience changes nothing
            await asyncio.wait({task})
