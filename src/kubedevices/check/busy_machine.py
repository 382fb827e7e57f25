"""Keeps the load of the machine out of the verdicts: measures lost time, and raises our priority.

A limit of a check is the plugin's own time: the time in which no thread of the plugin waited for a
processor. On a busy machine, or on a machine that was suspended, every plugin looks slow by the
clock. So each harness reads every 0.5 s how long the threads that it started waited for a processor
(`/proc/PID/task/TID/schedstat`), and how late this reading is. A wait for the plugin ends when the
plugin had its own time, even if the clock shows more.

A plugin that sleeps waits for no processor, so for this plugin the time of the clock counts. Our
own delay can make one event look late, so each measured time is shortened by one such delay.
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
"""Nanoseconds by thread ID."""

SAMPLE_EVERY = 0.5
"""Seconds between two readings."""

NEGLIGIBLE = 0.1
"""Seconds. No check judges so short a time, so such a time needs no new reading."""

ENOUGH = 0.95
"""The part of a limit after which the plugin counts as having had its whole limit."""

LONGEST_STRETCH = 10
"""A wait takes at most this many times its limit by the clock, however busy the machine is."""

RAISED_NICE = -10
"""A thread with this nice value gets ten times the processor share of a thread with nice 0."""

_USUAL = (os.SCHED_OTHER, 0)


class LostTime:
    """How long the descendants of one process waited for a processor: one copy of a plugin."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._waited: Waited = {}
        # One entry for each reading: its time, the sum of the seconds lost until then, and the
        # seconds by which the reading was late.
        self._times, self._lost, self._late = [0.0], [0.0], [0.0]

    async def watch(self) -> None:
        """Read every `SAMPLE_EVERY` seconds, until cancelled."""
        while True:
            self.sample()
            await asyncio.sleep(SAMPLE_EVERY)

    def sample(self) -> None:
        """Read /proc and record the time lost since the last reading."""
        self.record(asyncio.get_running_loop().time(), waited_below(self._root))

    def record(self, now: float, waited: Waited) -> None:
        """Record a reading: how long each thread had waited until `now`."""
        last, before = self._times[-1], self._waited
        # Never below 0: the kernel may give the ID of a thread that ended to a new thread.
        more = sum(max(ns - before.get(thread, 0), 0) for thread, ns in waited.items())
        self._waited = waited
        self._times.append(now)
        # Many threads can wait at once, but the lost time is at most the time that passed.
        self._lost.append(self._lost[-1] + min(now - last, more / 1e9))
        self._late.append(max(now - last - SAMPLE_EVERY, 0) if last else 0)

    def spent(self, since: float, until: float | None = None) -> float:
        """Return the plugin's own seconds between two times of the loop; `until` is now if None."""
        if until is None:
            until = asyncio.get_running_loop().time()
        wall = max(until - since, 0)
        if wall < NEGLIGIBLE:
            return wall
        if until > self._times[-1] + SAMPLE_EVERY:
            self.sample()
        lost = self._lost_until(until) - self._lost_until(since) + self._longest_delay(since, until)
        # Without the second value, a limit never ends if the plugin's threads wait all the time.
        return max(wall - lost, wall / LONGEST_STRETCH)

    def _longest_delay(self, since: float, until: float) -> float:
        """Return our longest delay in this time: an event may have been noticed so late."""
        times, late = self._times, self._late
        readings = range(max(bisect_right(times, since), 1), len(times))
        parts = (
            late[reading]
            * (min(until, times[reading]) - max(since, times[reading - 1]))
            / (times[reading] - times[reading - 1])
            for reading in readings
            if late[reading] and times[reading - 1] < until
        )
        return max(parts, default=0.0)

    def _lost_until(self, moment: float) -> float:
        """Return the seconds lost until a time of the loop, interpolated between two readings."""
        after = bisect_right(self._times, moment)
        if after in (0, len(self._times)):
            return self._lost[after - 1 if after else 0]
        (t0, t1), (l0, l1) = self._times[after - 1 : after + 1], self._lost[after - 1 : after + 1]
        return l0 + (l1 - l0) * (moment - t0) / (t1 - t0)

    async def ask(self, attempt: Callable[[float], Awaitable[T]], limit: float) -> T:
        """Return the result of `attempt`; repeat it if its limit passed only by the clock."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            asked = loop.time()
            try:
                return await attempt(limit)
            except WireError:
                self.sample()
                # An error before the limit is the plugin's answer. An error at the limit may be
                # caused by the busy machine.
                if loop.time() - asked < limit or self.spent(began) > limit * ENOUGH:
                    raise

    async def wait(self, attempt: Callable[[float], Awaitable[bool]], limit: float) -> bool:
        """Repeat `attempt` until it returns True, or until the plugin had `limit` own seconds."""
        began, left = asyncio.get_running_loop().time(), limit
        while not (came := await attempt(left)):
            self.sample()
            left = limit - self.spent(began)
            if left < limit * (1 - ENOUGH):
                break
        return came


def waited_below(root: int) -> dict[int, int]:
    """Return the nanoseconds that each thread of `root` and of its descendants waited so far."""
    return {thread: waited for _, thread, _, waited in _threads_below(root)}


def worked_below(root: int) -> float:
    """Return the processor seconds that the descendants of `root`, without `root`, have used."""
    return sum(ran for process, _, ran, _ in _threads_below(root) if process != root) / 1e9


def _threads_below(root: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield process ID, thread ID, nanoseconds on a processor, nanoseconds waiting for one."""
    processes = [root]
    for process in processes:
        # A kernel without schedstat, or a process that has ended: nothing is known.
        with contextlib.suppress(OSError, ValueError, IndexError):
            for thread in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208  only names
                of = f"/proc/{process}/task/{thread}"
                ran, waited = map(int, _read(f"{of}/schedstat").split()[:2])
                yield process, int(thread), ran, waited
                processes += map(int, _read(f"{of}/children").split())


def _read(path: str) -> bytes:
    """Return the content of a file in /proc. Fast, because it is called thousands of times."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)


# ---------------------------------------------------------------- our own priority


@contextlib.contextmanager
def raised_priority() -> Iterator[None]:
    """Raise the priority of this thread, not of its children; do nothing without the permission.

    The check acts as the kubelet. A plugin that waits for the kubelet's answer waits for no
    processor, so nothing can tell a delay of the check from a delay of the plugin. A priority
    that the user has chosen, for example with `nice`, does not change.
    """
    is_usual = (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)) == _USUAL
    raised = is_usual and _set_priority(RAISED_NICE, os.SCHED_RESET_ON_FORK)
    try:
        yield
    finally:
        if raised:
            _set_priority(0, 0)


def _set_priority(nice: int, flag: int) -> bool:
    """Set the priority of this thread; `flag` SCHED_RESET_ON_FORK gives children nice 0."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        os.sched_setscheduler(0, os.SCHED_OTHER | flag, os.sched_param(0))
        return True
    return False
