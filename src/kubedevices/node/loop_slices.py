"""Long work on the event loop in slices of time: between two slices, other tasks have a turn.

For work that must not run in a thread: a thread would hold the interpreter for longer than a slice.
"""

import asyncio
import time
from collections.abc import Callable, Generator
from typing import TypeVar

SLICE = 0.0005
"""Seconds that work has the loop for, if it yields often enough."""

T = TypeVar("T")


class LoopSlices:
    """Runs generators that yield often; `seconds` says how long the loop was theirs in all."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self.seconds = clock, 0.0

    async def run(self, work: Generator[None, None, T]) -> T:
        """Run `work` to its end and return what it returns; others are let in at its yields."""
        began = self._clock()
        try:
            while True:
                next(work)
                taken = self._clock() - began
                if taken >= SLICE:
                    self.seconds += taken
                    await asyncio.sleep(0)
                    began = self._clock()
        except StopIteration as end:
            self.seconds += self._clock() - began
            result: T = end.value
            return result


def at_once(work: Generator[None, None, T]) -> T:
    """Run `work` to its end without a pause."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
