"""Measures a plugin's time without the time in which its threads waited for a processor.

A limit is a plugin's own time. On a busy machine, and on one that stands still for a moment, every
plugin looks slow. So a stage looks twice a second how long the threads that it started waited for a
processor (`/proc/PID/task/TID/schedstat`), and how late it is itself. A wait ends when the plugin
had its time, not when the clock says so. A plugin that sleeps waits for no processor: for it, the
clock counts, whatever other copies and we waited. Our own lateness delays what is seen once.
"""

import asyncio
import contextlib
import os
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TypeVar

from kubedevices.errors import WireError

T = TypeVar("T")

Waited = Mapping[int, int]
"""Nanoseconds by thread."""

NOTHING: Waited = {}

LOOK_EVERY = 0.5
"""Seconds."""

SHORT = 0.1
"""Seconds that nothing is judged by: not worth a look."""

ENOUGH = 0.95
"""Which part of a limit a plugin must have had."""

MOST = 10
"""How often the time of a clock may be a plugin's own: a machine busier than that is too busy."""


class LostTime:
    """What the machine took from the descendants of one process: from one copy of a plugin."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._waited: Waited = NOTHING
        # One entry for each look: its time, the seconds lost until then in all, and how late it
        # came.
        self._times, self._lost, self._late = [0.0], [0.0], [0.0]

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY)

    def look(self) -> None:
        """Note what was lost since the last look."""
        self.note(asyncio.get_running_loop().time(), waited_below(self._root))

    def note(self, now: float, waited: Waited) -> None:
        """Note how long each thread had waited at `now`, and how late this look comes."""
        last, before = self._times[-1], self._waited
        # Never below 0: the number of a thread that ended may belong to a new one.
        more = sum(max(ns - before.get(thread, 0), 0) for thread, ns in waited.items())
        self._waited = waited
        self._times.append(now)
        # Many threads can wait at once, but no more is lost than the clock says.
        self._lost.append(self._lost[-1] + min(now - last, more / 1e9))
        self._late.append(max(now - last - LOOK_EVERY, 0) if last else 0)

    def spent(self, since: float, until: float | None = None) -> float:
        """Return the plugin's own seconds between two times of the loop, until now by default."""
        if until is None:
            until = asyncio.get_running_loop().time()
        wall = max(until - since, 0)
        if wall < SHORT:
            return wall
        if until > self._times[-1] + LOOK_EVERY:
            self.look()
        lost = self._lost_until(until) - self._lost_until(since) + self._latest(since, until)
        # A plugin whose threads wait all the time would otherwise never come to the end of a limit.
        return max(wall - lost, wall / MOST)

    def _latest(self, since: float, until: float) -> float:
        """Return by how much we were late at most, once: so late something may have been seen."""
        times, late = self._times, self._late
        looks = range(max(bisect_right(times, since), 1), len(times))
        parts = (
            late[look]
            * (min(until, times[look]) - max(since, times[look - 1]))
            / (times[look] - times[look - 1])
            for look in looks
            if late[look] and times[look - 1] < until
        )
        return max(parts, default=0.0)

    def _lost_until(self, moment: float) -> float:
        """Return what was lost until a time of the loop, evenly between two looks."""
        after = bisect_right(self._times, moment)
        if after in (0, len(self._times)):
            return self._lost[after - 1 if after else 0]
        (t0, t1), (l0, l1) = self._times[after - 1 : after + 1], self._lost[after - 1 : after + 1]
        return l0 + (l1 - l0) * (moment - t0) / (t1 - t0)

    async def ask(self, attempt: Callable[[float], Awaitable[T]], limit: float) -> T:
        """Let `attempt` ask a plugin; again where only the clock says that it had its `limit`."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            asked = loop.time()
            try:
                return await attempt(limit)
            except WireError:
                self.look()
                # An error before the limit is an answer of the plugin; an error at the limit may be
                # the machine's.
                if loop.time() - asked < limit or self.spent(began) > limit * ENOUGH:
                    raise

    async def wait(self, attempt: Callable[[float], Awaitable[bool]], limit: float) -> bool:
        """Let `attempt` wait until it succeeds or the plugin had its `limit` of seconds."""
        began, left = asyncio.get_running_loop().time(), limit
        while not (came := await attempt(left)):
            self.look()
            left = limit - self.spent(began)
            if left < limit * (1 - ENOUGH):
                break
        return came


async def until_set(event: asyncio.Event, timeout: float) -> bool:
    """Wait for an event by the clock; return whether it came."""
    try:
        async with asyncio.timeout(timeout):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True


def waited_below(root: int) -> dict[int, int]:
    """Return how many nanoseconds each thread waited so far: a process's and its descendants'."""
    return {thread: waited for _, thread, _, waited in _threads_below(root)}


def worked_below(root: int) -> float:
    """Return how many seconds the descendants of a process have worked so far, without itself."""
    return sum(ran for process, _, ran, _ in _threads_below(root) if process != root) / 1e9


def _threads_below(root: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield process, thread, and the nanoseconds for which it ran, and waited for a processor."""
    processes = [root]
    for process in processes:
        # Where the kernel does not count, or the process is gone: nothing is known.
        with contextlib.suppress(OSError, ValueError, IndexError):
            for thread in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208  only names
                of = f"/proc/{process}/task/{thread}"
                ran, waited = map(int, _read(f"{of}/schedstat").split()[:2])
                yield process, int(thread), ran, waited
                processes += map(int, _read(f"{of}/children").split())


def _read(path: str) -> bytes:
    """Return what a file of /proc says: thousands a minute, so without layers in between."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)
