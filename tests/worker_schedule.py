"""Which process runs which test: the order, without any process."""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

_TOGETHER = {
    "tests/deploy/test_image": "image",
    "tests/kubernetes/": "cluster",
}


class Planned(NamedTuple):
    """A test: its ID, and its own deadline in seconds, 0 where it has none."""

    nodeid: str
    deadline: float = 0


class WorkerSchedule:
    """Gives workers tests, each when it has nothing to do.

    All tests that need our image, or a cluster, run in one worker, which makes it once. Tests with
    a deadline of their own take long: the longest is begun first, in half of the workers, because
    these tests mostly wait. A worker stays in its file as long as there are tests in it, so what
    a file prepares is mostly prepared once. At the end workers help others.
    """

    def __init__(self, tests: Iterable[Planned], workers: int) -> None:
        self._groups: dict[str, deque[int]] = {}
        self._files: dict[str, deque[int]] = {}
        self._places: dict[int, deque[int]] = {}
        """By worker: the group or the file in which it is."""
        self._in_long: set[int] = set()
        self._half = (workers + 1) // 2
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
        """Return the number of the next test of a worker, None if there is nothing left for it."""
        self._in_long.discard(worker)
        place = self._places.get(worker) or self._free(self._groups)
        if not place:
            if self._long and len(self._in_long) < self._half:
                return self._begin_long(worker)
            place = self._free(self._files)
        if place:
            self._places[worker] = place
            return place.popleft()
        if self._long:
            return self._begin_long(worker)
        most = max(self._files.values(), key=len, default=None)
        return most.pop() if most else None

    def leave(self, worker: int) -> None:
        """Take out a worker that has died: its group or file is for another worker."""
        self._places.pop(worker, None)
        self._in_long.discard(worker)

    def _begin_long(self, worker: int) -> int:
        self._in_long.add(worker)
        return self._long.popleft()

    def _free(self, places: dict[str, deque[int]]) -> deque[int] | None:
        """Return a place with tests in which nobody is."""
        taken = {id(place) for place in self._places.values()}
        return next((each for each in places.values() if each and id(each) not in taken), None)


def _group_of(nodeid: str) -> str:
    return next((name for path, name in _TOGETHER.items() if nodeid.startswith(path)), "")
