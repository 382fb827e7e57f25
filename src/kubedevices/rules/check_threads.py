"""The threads in which health checks run: at most eight checks at once in a process.

A plugin chooses how many devices it lists. A thread and a process for each of them would be more
than a node can bear.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

_log = logging.getLogger(__name__)

AT_ONCE = 8
"""Most checks that run at the same time; further checks wait in their order."""

HANGING_LIMIT = 56
"""Most threads whose checks nobody waits for any more."""


@dataclass(eq=False)
class CheckJob:
    """One run of a check; `has_waited` says whether all threads were busy when it was due."""

    name: str
    work: Callable[[], None]
    has_waited: bool = False
    is_running: bool = False
    is_abandoned: bool = False


class CheckThreads:
    """Runs jobs in daemon threads, which end when there is nothing more to do."""

    def __init__(self, at_once: int = AT_ONCE, hanging_limit: int = HANGING_LIMIT) -> None:
        self._at_once, self._hanging_limit = at_once, hanging_limit
        self._lock = threading.Lock()
        self._waiting: deque[CheckJob] = deque()
        self._running = self._hanging = 0

    def start(self, name: str, work: Callable[[], None]) -> CheckJob:
        """Run `work`, as soon as a thread is free."""
        job = CheckJob(name, work)
        with self._lock:
            job.has_waited = self._running >= self._at_once
            self._waiting.append(job)
            self._fill_up()
        return job

    def abandon(self, job: CheckJob) -> None:
        """Let another check run in place of a job that hangs.

        With `HANGING_LIMIT` such jobs, the place is free only when a job ends.
        """
        with self._lock:
            if job.is_running and not job.is_abandoned and self._hanging < self._hanging_limit:
                job.is_abandoned = True
                self._hanging += 1
                self._running -= 1
                self._fill_up()

    def _fill_up(self) -> None:
        if self._waiting and self._running < self._at_once:
            self._running += 1
            name = self._waiting[0].name
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        thread = threading.current_thread()
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                job = self._waiting.popleft()
                job.is_running = True
                self._fill_up()
            thread.name = job.name
            try:
                job.work()
            except Exception:  # a defect of ours: the other checks go on
                _log.exception("%s failed", job.name)
            with self._lock:
                job.is_running = False
                if job.is_abandoned:  # another thread has its place
                    self._hanging -= 1
                    return


CHECKS = CheckThreads()
"""The threads of all health checks of this process."""
