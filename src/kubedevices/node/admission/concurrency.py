"""Which work on pods runs one after the other, and which at once.

`PodQueue`: one piece of work per pod at a time. `OngoingWork`: an admission that lacks devices
waits for the end of other admissions and releases. `concurrently`: several calls at once; if one
fails, the others are cancelled.
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
    """Runs one piece of work per key at a time, as a task of its own. The key is a pod uid."""

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
        """Wait until no other work runs on `key`, then run `work` and return its result.

        If the caller is cancelled, the work is cancelled. Raises `GivenUp` if `cancel_current` or
        `close` cancelled the work. If the work ends in spite of that, its result is returned.
        """
        while (before := self._running.get(key)) is not None:
            # A loop, because all waiting callers wake up together and only one of them can begin.
            # `asyncio.wait` does not cancel `before` when we are cancelled; `await before` would.
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
            # Wait for the end of the work: until then no other work may begin on the key.
            await _end_of(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                logger.info("failed after its caller was cancelled: %s", error)
            raise
        finally:
            self._can_be_cancelled.discard(task)
            if self._running.get(key) is task:
                del self._running[key]
        if task.cancelled():
            raise GivenUp
        return task.result()

    def cancel_current(self, key: str) -> None:
        """Cancel the work that runs on `key`, if it was started with `can_be_cancelled`."""
        task = self._running.get(key)
        if task in self._can_be_cancelled:
            task.cancel()

    def is_taken(self, key: str) -> bool:
        """Whether work runs on `key`."""
        return key in self._running

    def open(self) -> None:
        """Allow work to begin, also after `close`."""
        self._is_closed = False

    async def close(self) -> None:
        """Cancel all work and wait for its end; callers that wait for a turn get `GivenUp`."""
        self._is_closed = True
        tasks = [*self._running.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


class OngoingWork:
    """Admissions and releases that have begun and not ended, with the resources they concern.

    The kubelet admits pods one after the other. We admit them at once, so a pod that lacks devices
    waits for the ongoing admissions: if one fails, its devices become free. A pod that waits here
    has reserved nothing, so two pods never wait for each other.
    """

    def __init__(self) -> None:
        self._open: dict[object, frozenset[str]] = {}
        self._waiting: dict[asyncio.Future[None], frozenset[str]] = {}

    def __repr__(self) -> str:
        return f"<OngoingWork with {len(self._open)} open, {len(self._waiting)} waiting>"

    @contextmanager
    def admission(self, resources: Collection[str]) -> Iterator[None]:
        """Enter with devices of `resources` reserved. If the block raises, they are free."""
        with self._note(resources) as names:
            try:
                yield
            except BaseException:
                self._wake(names)
                raise

    @contextmanager
    def release(self, resources: Collection[str]) -> Iterator[None]:
        """Enter before a release. At the end of the block the devices of `resources` are free."""
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
        """Wait until devices of `resources` may be free; return False if no work on them is
        ongoing.

        Returns True when devices were released, or when the last ongoing work on `resources` has
        ended. Callers continue in the order in which they began to wait.
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
    """Return all results in order; raise the failure that is first in the order of `work`.

    After a failure the other pieces of work are cancelled, and their end is awaited.
    """
    if len(work) == 1:
        return [await work[0]]
    tasks: list[asyncio.Task[T]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks += [group.create_task(each) for each in work]
    # The first in order, so that the error does not depend on which plugin is faster.
    except BaseExceptionGroup:
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error from None
        raise
    return [task.result() for task in tasks]


async def to_its_end(work: Awaitable[T]) -> T:
    """Finish `work` even if the caller is cancelled; return its result or raise its error.

    The cancellation is ignored here. So use this only inside `PodQueue.take`, which cancels the
    caller afterwards.
    """
    done = asyncio.ensure_future(work)
    await _end_of(done)
    return done.result()


async def _end_of(task: asyncio.Future[Any]) -> None:
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):  # wait until the work has ended
            await asyncio.wait({task})
