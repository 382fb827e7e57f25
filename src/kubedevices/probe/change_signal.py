"""Waiting for something a probe notices: whoever notices rings, whoever waits looks again."""

import asyncio
from collections.abc import Callable


class ChangeSignal:
    """Wakes everybody who waits for a condition; conditions are plain functions."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Event] = set()

    def notify(self) -> None:
        """Something changed."""
        for event in self._waiting:
            event.set()

    async def until(self, condition: Callable[[], object], timeout: float) -> bool:
        """Return whether `condition()` came true within `timeout` seconds."""
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            async with asyncio.timeout(timeout):
                while not condition():
                    event.clear()
                    await event.wait()
        except TimeoutError:
            return bool(condition())
        else:
            return True
        finally:
            self._waiting.discard(event)
