"""Runs long work on the event loop in slices of time. Between two slices, other tasks run.

A thread would not help: a thread holds the interpreter lock for longer than a slice.
"""

import asyncio
import time
from collections.abc import Callable, Generator
from typing import TypeVar

SLICE = 0.0005
"""Seconds after which other tasks run, at the next `yield` of the work."""

_FOR_THREADS = 1e-6
"""Seconds that other threads may take the interpreter lock; with the timer's slack some 60 µs."""

T = TypeVar("T")


class LoopSlices:
    """Runs generators that yield often; `seconds` is the time that they used in all."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self.seconds = clock, 0.0

    async def run(self, work: Generator[None, None, T]) -> T:
        """Run `work` to its end and return its result; other tasks may run at each `yield`."""
        began = self._clock()
        try:
            while True:
                next(work)
                taken = self._clock() - began
                if taken >= SLICE:
                    self.seconds += taken
                    # `sleep(0)` gives the interpreter lock back and takes it before a thread that
                    # waits for it is awake: without a real pause the ledger's thread starves until
                    # the end of the work, and with it each admission.
                    time.sleep(_FOR_THREADS)  # noqa: ASYNC251 - a tenth of a slice
                    await asyncio.sleep(0)
                    began = self._clock()
        except StopIteration as end:
            self.seconds += self._clock() - began
            result: T = end.value
            return result


def at_once(work: Generator[None, None, T]) -> T:
    """Run `work` to its end in one slice."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
