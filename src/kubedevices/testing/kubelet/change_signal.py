"""Waits for a condition: a waiting task evaluates it again each time somebody calls `notify`."""

import asyncio
import math
from collections.abc import Callable

from kubedevices.host import deadlines


class ChangeSignal:
    """Wakes all tasks that wait for a condition; a condition is a function without arguments.

    `look_every` is for conditions that can change without `notify`, in seconds.
    """

    def __init__(self, look_every: float = math.inf) -> None:
        self._look_every = look_every
        self._waiting: set[asyncio.Event] = set()

    def notify(self) -> None:
        """Let all waiting tasks evaluate their conditions again."""
        for event in self._waiting:
            event.set()

    async def until(self, condition: Callable[[], object], timeout: float) -> bool:
        """Wait until `condition()` is true; return False if it is not within `timeout` seconds."""
        event, end = asyncio.Event(), asyncio.get_running_loop().time() + timeout
        self._waiting.add(event)
        try:
            while not condition():
                if (left := end - asyncio.get_running_loop().time()) <= 0:
                    return False
                event.clear()
                await deadlines.within(min(left, self._look_every), event.wait())
            return True
        finally:
            self._waiting.discard(event)
