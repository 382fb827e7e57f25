"""An event loop in a thread of its own, whose clock can be moved. Knows nothing about devices.

For synchronous callers; also under a test framework that has a loop of its own.
"""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from kubedevices.errors import UsageError
from kubedevices.plugin.author_code import forget_our_frames

__tracebackhide__ = True  # a failing test shows its own lines, not ours

T = TypeVar("T")

_ROUNDS_AFTER_A_JUMP = 3
_JOIN_LIMIT = 10.0


class ShiftedLoop(asyncio.SelectorEventLoop):
    """A loop that believes it is later than it is."""

    shift = 0.0

    def time(self) -> float:
        """Return the monotonic clock, moved."""
        return super().time() + self.shift


class LoopThread:
    """A running loop; `call` does something on it and waits for the result."""

    def __init__(self, name: str) -> None:
        self._loop = ShiftedLoop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<LoopThread {self._thread.name} {'running' if self.is_running else 'closed'}>"

    @property
    def is_running(self) -> bool:
        """Whether it was not closed yet."""
        return not self._loop.is_closed()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work` on the loop; return or raise what it does. Interrupted: `work` is cancelled."""
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

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass at once: every timer of the loop that is due by then goes off."""
        self.call(self._advance(seconds))

    async def _advance(self, seconds: float) -> None:
        self._loop.shift += seconds
        for _ in range(_ROUNDS_AFTER_A_JUMP):
            await asyncio.sleep(0)

    def close(self) -> None:
        """Cancel what is left, and end the thread; harmless when repeated."""
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
