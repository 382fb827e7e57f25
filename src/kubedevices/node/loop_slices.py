"""Long work on the event loop in slices: everybody else has a turn between two of them.

For what must not be done in a thread, which would hold the interpreter for longer than a slice.
"""

import asyncio
import time
from collections.abc import Callable, Generator
from typing import TypeVar

Result = TypeVar("Result")


class LoopSlices:
    """Runs generators that yield often; `seconds` says how long the loop was theirs in all."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self.seconds = clock, 0.0

    async def run(self, work: Generator[None, None, Result]) -> Result:
        """Run `work` to its end and return what it returns; others are let in at each `yield`."""
        while True:
            began = self._clock()
            try:
                next(work)
            except StopIteration as end:
                result: Result = end.value
                return result
            finally:
                self.seconds += self._clock() - began
            await asyncio.sleep(0)


def at_once(work: Generator[None, None, Result]) -> Result:
    """Run `work` to its end without a pause."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: Result = end.value
            return result
