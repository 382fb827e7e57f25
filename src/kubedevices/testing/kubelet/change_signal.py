"""Waits for a condition: a waiting task evaluates it again each time somebody calls `notify`."""

import asyncio
from collections.abc import Callable

from kubedevices.host import deadlines


class ChangeSignal:
    """Wakes all tasks that wait for a condition; a condition is a function without arguments."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Event] = set()

    def notify(self) -> None:
        """Let all waiting tasks evaluate their conditions again."""
        for event in self._waiting:
            event.set()

    async def until(self, condition: Callable[[], object], timeout: float) -> bool:
        """Wait until `condition()` is true; return False if it is not within `timeout` seconds."""
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            async with deadlines.timeout(timeout):
                while not condition():
                    event.clear()
                    await event.wait()
        except TimeoutError:
            return bool(condition())
        else:
            return True
        finally:
            self._waiting.discard(event)
