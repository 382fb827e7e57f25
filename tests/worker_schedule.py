"""Decides which worker runs which test. Starts no process."""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

_GROUPS = {
    "tests/deploy/test_image": "image",
    "tests/kubernetes/": "cluster",
}


class PlannedTest(NamedTuple):
    """A test: its ID, and its own deadline in seconds, 0 without one."""

    nodeid: str
    deadline: float = 0


class WorkerSchedule:
    """Chooses the next test for a worker.

    All tests that need our image run in one worker, so that the image is built once; so do all
    tests that need a cluster. Tests with their own deadline take long: the longest starts first, in
    half of the workers, because these tests mostly wait. A worker runs all tests of a file before
    it takes another file, so that fixtures of the module are mostly set up once. At the end, idle
    workers take tests from the file with the most tests left.
    """

    def __init__(self, tests: Iterable[PlannedTest], workers: int) -> None:
        self._groups: dict[str, deque[int]] = {}
        self._files: dict[str, deque[int]] = {}
        self._current: dict[int, deque[int]] = {}
        """Worker → the remaining tests of its group or file."""
        self._workers_in_long: set[int] = set()
        self._long_limit = (workers + 1) // 2
        long: list[tuple[float, int]] = []
        for number, test in enumerate(tests):
            if name := _group_of(test.nodeid):
                self._groups.setdefault(name, deque()).append(number)
            elif test.deadline:
                long.append((-test.deadline, number))
            else:
                self._files.setdefault(test.nodeid.partition("::")[0], deque()).append(number)
        self._long = deque(number for _, number in sorted(long))

    def next_for(self, worker: int) -> int | None:
        """Return the number of the next test of a worker, None if no test is left for it."""
        self._workers_in_long.discard(worker)
        tests = self._current.get(worker) or self._first_unassigned(self._groups)
        if not tests:
            if self._long and len(self._workers_in_long) < self._long_limit:
                return self._start_long(worker)
            tests = self._first_unassigned(self._files)
        if tests:
            self._current[worker] = tests
            return tests.popleft()
        if self._long:
            return self._start_long(worker)
        most = max(self._files.values(), key=len, default=None)
        return most.pop() if most else None

    def remove_worker(self, worker: int) -> None:
        """Remove a worker that has died, so that another worker can take its group or file."""
        self._current.pop(worker, None)
        self._workers_in_long.discard(worker)

    def _start_long(self, worker: int) -> int:
        self._workers_in_long.add(worker)
        return self._long.popleft()

    def _first_unassigned(self, candidates: dict[str, deque[int]]) -> deque[int] | None:
        """Return the first group or file with tests that no worker has."""
        taken = {id(tests) for tests in self._current.values()}
        return next((each for each in candidates.values() if each and id(each) not in taken), None)


def _group_of(nodeid: str) -> str:
    return next((name for path, name in _GROUPS.items() if nodeid.startswith(path)), "")
