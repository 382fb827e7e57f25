"""Lets steps that change the checkpoint share one write of the file. asyncio.

A write costs two or three waits for the disk, whatever it contains. So while a write runs, the next
steps collect, and the next write has all of them: the model of a ledger with one transaction per
group. A step ends when its write is on disk.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from kubedevices.plugin import hook_threads

T = TypeVar("T")


class WriteStep(Generic[T]):
    """One blocking function to call, and then its result or its error."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._result: list[T] = []
        self.error: Exception | None = None

    @property
    def is_done(self) -> bool:
        """Whether the function was called, and its changes are on disk or have failed."""
        return bool(self._result) or self.error is not None

    def run(self) -> None:
        """Call the function; keep what it returns or raises."""
        self._result, self.error = [], None
        try:
            self._result = [self._function()]
        except Exception as error:  # belongs to the caller of this step, not to the others
            self.error = error

    def result(self) -> T:
        """Return what the function returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self._result[0]


class SharedWrites:
    """Passes steps to `together`, which runs them in their order, blocking, with one write."""

    def __init__(self, together: Callable[[Sequence[WriteStep[Any]]], None]) -> None:
        self._together = together
        self._waiting: list[WriteStep[Any]] = []
        self._writing = asyncio.Lock()

    async def do(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a blocking function in the next write; return when the write is on disk."""
        step = WriteStep(partial(function, *arguments))
        self._waiting.append(step)
        try:
            async with self._writing:
                if not step.is_done:  # otherwise the caller before has run this step too
                    batch, self._waiting = self._waiting, []
                    await hook_threads.call(self._together, batch)
        finally:
            if step in self._waiting:  # cancelled before its write
                self._waiting.remove(step)
        return step.result()
