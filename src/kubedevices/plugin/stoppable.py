"""The method `stop` of everything that runs until it is stopped, and calls from other threads."""

import asyncio
import contextlib
from collections.abc import Callable


def call_on(
    loop: asyncio.AbstractEventLoop | None, function: Callable[..., object], *args: object
) -> None:
    """Let `loop` call `function` soon; do nothing before its start (None) and after its end.

    From any thread or signal handler.
    """
    if loop is not None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(function, *args)


class Stoppable:
    """The base of classes with a method `run` that ends after a call of `stop`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._is_stopped = False

    def stop(self) -> None:
        """End `run`. From any thread, any number of times, also before `run`."""
        self._is_stopped = True
        # `run` sets `_loop` and then reads `_is_stopped`. Here the order is reversed. So in every
        # order of the threads, at least one of the two methods sees the value of the other.
        call_on(self._loop, self._stopped.set)

    def _begin(self) -> bool:
        """Begin `run` on the running loop; return False if `stop` was called before."""
        self._loop = asyncio.get_running_loop()
        return not self._is_stopped

    async def _wait_stopped(self, then: Callable[[], None]) -> None:
        """Wait for a call of `stop`, and call `then`."""
        await self._stopped.wait()
        then()
