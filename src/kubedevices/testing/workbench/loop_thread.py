"""An event loop in its own thread, whose clock can be moved. It does not depend on devices.

For synchronous callers, also in a test framework that has its own event loop.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from kubedevices.errors import UsageError
from kubedevices.plugin.author_errors import forget_our_frames

__tracebackhide__ = True  # a failing test shows its own lines, not ours

T = TypeVar("T")

_ROUNDS_AFTER_A_JUMP = 3  # of the loop, for callbacks that start further callbacks
_JOIN_LIMIT = 10.0


class ShiftedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock is `shift` seconds ahead."""

    shift = 0.0

    def time(self) -> float:
        """Return the monotonic clock plus `shift`."""
        return super().time() + self.shift


class LoopThread:
    """A running event loop; `call` runs a coroutine on it and waits for the result."""

    def __init__(self, name: str) -> None:
        self._loop = ShiftedLoop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<LoopThread {self._thread.name} {'running' if self.is_running else 'closed'}>"

    @property
    def is_running(self) -> bool:
        """Whether the loop is not closed."""
        return not self._loop.is_closed()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop; return its result or raise its error.

        If the caller is interrupted, `work` is cancelled. Raises `UsageError` on the loop's own
        thread and after `close`.
        """
        if not self.is_running or threading.current_thread() is self._thread:
            work.close()
            why = "from code that runs on its own loop" if self.is_running else "after its end"
            raise UsageError(f"{self._thread.name} was asked {why}")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException as error:
            future.cancel()
            forget_our_frames(error)
            raise

    def do(self, function: Callable[[], T]) -> T:
        """Call a function that waits for nothing on the loop, as `call` runs a coroutine."""

        async def work() -> T:
            return function()

        return self.call(work())

    def advance(self, seconds: float) -> None:
        """Move the clock forward by `seconds`: all timers that are then due run at once."""
        self.call(self._advance(seconds))

    async def _advance(self, seconds: float) -> None:
        self._loop.shift += seconds
        for _ in range(_ROUNDS_AFTER_A_JUMP):
            await asyncio.sleep(0)

    def close(self) -> None:
        """Cancel all tasks and end the thread; do nothing if it is closed already."""
        if self.is_running and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_JOIN_LIMIT)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()
