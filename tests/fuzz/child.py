"""Searches targets in this process, one after the other, and repeats the corpus of each before.

    python -m tests.fuzz.child MODULE TARGET,TARGET SECONDS SEED FILE

Prints the number of inputs of each target when its SECONDS are over. FILE always has the current
input. So if a parser in C kills the process, the parent knows the input. The process ends with a
signal for an input that takes too long: SIGPROF by its processor time, SIGALRM by the clock. Exit
status 1: the last input in FILE raised the error on stderr.
"""

import faulthandler
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.target import Target

MEMORY = 512 * 2**20
"""Bytes of address space above those at the start, for the input and everything made of it."""

BATCH = 100

search = settings(
    max_examples=BATCH,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


def main(module: str, names: str, seconds: str, first_seed: str, file: str) -> None:
    """Search until the time is over; the first finding ends the process."""
    targets: dict[str, Target] = import_module(module).TARGETS
    logging.disable()
    _limit()
    current = os.open(file, os.O_RDWR | os.O_CREAT)
    for target in map(targets.__getitem__, names.split(",")):
        check = _watched(target, current)
        for path in target.corpus():
            check(path.read_bytes())
        for each in target.seeds:
            check(each)
        count = _search(target, check, time.monotonic() + float(seconds), int(first_seed))
        print(count, flush=True)


def _limit() -> None:
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
        faulthandler.register(number, chain=True)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _watched(target: Target, current: int) -> Callable[[bytes], None]:
    def check(data: bytes) -> None:
        os.ftruncate(current, 0)
        os.pwrite(current, data, 0)
        signal.setitimer(signal.ITIMER_PROF, target.cpu_seconds)
        signal.setitimer(signal.ITIMER_REAL, target.clock_seconds)
        try:
            target.check(data)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)

    return check


def _search(target: Target, check: Callable[[bytes], None], end: float, number: int) -> int:
    inputs, count = target.inputs(), 0
    failed = False
    while time.monotonic() < end:

        @seed(number)
        @search
        @given(inputs)
        def batch(data: bytes) -> None:
            nonlocal count, failed
            if time.monotonic() < end or failed:
                count += 1
                try:
                    check(data)
                except BaseException:
                    failed = True  # shrink the input, however late it is
                    raise

        batch()
        number += 1
    return count


if __name__ == "__main__":
    main(*sys.argv[1:])
