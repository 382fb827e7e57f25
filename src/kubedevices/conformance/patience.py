"""Counts a plugin's time without what the machine took from it: ready to run, and no processor.

A limit is a plugin's own time. On a busy machine, and on one that stands still for a moment, every
plugin looks slow. So a run looks twice a second how long its own threads and those that it started
waited for a processor (`/proc/PID/task/TID/schedstat`), and how late it is. A wait ends when the
plugin had its time, not when the clock says so. Copies of a plugin may wait for each other, by a
lock for instance: what the one that waited most lost, all have lost.
"""

import asyncio
import contextlib
import os
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping
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


class Patience:
    """What the machine took, from the beginning of a run; shared by everything that waits in it."""

    def __init__(self) -> None:
        self.roots: set[int] = set()  # processes whose descendants are plugins
        self._waited: dict[int, int] = {}  # by thread, nanoseconds
        self._times, self._lost = [0.0], [0.0]

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY)

    def look(self) -> None:
        """Note what was lost since the last look."""
        found = {root: waited_below(root) for root in self.roots}
        self.note(asyncio.get_running_loop().time(), found, waited_below(os.getpid(), deep=False))

    def note(self, now: float, found: Mapping[int, Waited], own: Waited = NOTHING) -> None:
        """Note how long the threads below each root and our own had waited at `now`."""
        last = self._times[-1]
        worst = max((self._more(each) for each in found.values()), default=0) + self._more(own)
        self._waited = {
            thread: ns for each in (own, *found.values()) for thread, ns in each.items()
        }
        late = max(now - last - LOOK_EVERY, 0) if last else 0
        self._times.append(now)
        self._lost.append(self._lost[-1] + min(now - last, late + worst / 1e9))

    def _more(self, waited: Waited) -> int:
        return sum(max(ns - self._waited.get(thread, 0), 0) for thread, ns in waited.items())

    def spent(self, since: float, until: float | None = None) -> float:
        """Return the plugin's own seconds between two times of the loop, until now by default."""
        if until is None:
            until = asyncio.get_running_loop().time()
        wall = max(until - since, 0)
        if wall < SHORT:
            return wall
        if until > self._times[-1] + LOOK_EVERY:
            self.look()
        return max(wall - self._lost_until(until) + self._lost_until(since), wall / MOST)

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


def waited_below(root: int, *, deep: bool = True) -> dict[int, int]:
    """Return how many nanoseconds each thread waited so far: a process's and its descendants'."""
    found: dict[int, int] = {}
    processes = [root]
    for process in processes:
        # Where the kernel does not count, or the process is gone: nothing is known to be lost.
        with contextlib.suppress(OSError, ValueError, IndexError):
            for thread in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208  only names
                of = f"/proc/{process}/task/{thread}"
                found[int(thread)] = int(_read(f"{of}/schedstat").split()[1])
                processes += map(int, _read(f"{of}/children").split() if deep else ())
    return found


def _read(path: str) -> bytes:
    """Return what a file of /proc says: thousands a minute, so without layers in between."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)
