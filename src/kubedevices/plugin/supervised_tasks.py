"""Tasks that run as long as their process: each error is logged, and the task begins again.

An error of a task that nobody awaits stays unseen until the process ends: its part is dead, and the
process looks healthy. So long-lived tasks start here, or are awaited by the function that starts
them (`served_type.run_together`).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from kubedevices.errors import KubedevicesError
from kubedevices.host import deadlines
from kubedevices.plugin.timing import back_off

Work: TypeAlias = Callable[[], Coroutine[Any, Any, object]]

FIRST_PAUSE, LAST_PAUSE = 1.0, 60.0
"""Seconds until a failed task begins again: doubled with each failure."""

STEADY = 10.0
"""Seconds after which a task that has begun again no longer counts as failed."""

_log = logging.getLogger(__name__)


class SupervisedTasks:
    """The tasks of one owner, by name. `failed` has the last error of each task that fails.

    A process with failed tasks is not ready.
    """

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def start(self, name: str, work: Work, *, hurry: asyncio.Event | None = None) -> None:
        """Run `work()`, and again after each error, until it returns; `hurry` ends a pause."""
        assert name not in self._tasks, f"{name} runs already"
        self._tasks[name] = asyncio.create_task(self._keep(name, work, hurry), name=name)

    def end(self, name: str) -> None:
        """Cancel one task; another task may begin under its name at once."""
        task = self._tasks.pop(name)
        self.failed.pop(name, None)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        task.cancel()

    async def stop(self) -> None:
        """Cancel all tasks and wait for their ends."""
        tasks = [*self._tasks.values(), *self._ending]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, name: str, work: Work, hurry: asyncio.Event | None) -> None:
        loop, failures = asyncio.get_running_loop(), 0
        while True:
            recovery = loop.call_later(STEADY, self.failed.pop, name, None)
            began = loop.time()
            try:
                await work()
            except Exception as error:
                if loop.time() >= began + STEADY:
                    failures = 0
                pause = back_off(FIRST_PAUSE, LAST_PAUSE, failures)
                failures += 1
                self._log_error(name, error, pause)
            else:
                self.failed.pop(name, None)
                return
            finally:
                recovery.cancel()
            await deadlines.within(pause, (hurry or asyncio.Event()).wait())

    def _log_error(self, name: str, error: Exception, pause: float) -> None:
        if isinstance(error, KubedevicesError):
            self.failed[name] = str(error)
            _log.error("%s: %s (again in %g s)", name, error, pause)  # no traceback: for operators
        else:
            self.failed[name] = f"internal error: {error!r}"
            _log.exception("%s failed, please report this (again in %g s)", name, pause)
