"""Wait for a condition with a deadline: tests use this instead of sleeping."""

import asyncio
import time
from collections.abc import Callable

POLL = 0.005


async def until(predicate: Callable[[], object], timeout: float = 60, what: str = "") -> None:
    """Return once `predicate()` is true; raise AssertionError after `timeout` seconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while not predicate():
        if loop.time() > deadline:
            raise AssertionError(f"not within {timeout} s: {what or predicate}")
        await asyncio.sleep(POLL)


def until_sync(predicate: Callable[[], object], timeout: float = 60, what: str = "") -> None:
    """Do the same for code without a loop."""
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what or predicate}")
        time.sleep(POLL)
