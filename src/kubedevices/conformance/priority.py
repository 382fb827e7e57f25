"""Puts the check before other programs of a busy machine, as far as the system lets it.

The kubelet that it plays must not be late: a plugin that waits for its answer waits for no
processor, so nothing tells the check's delay from the plugin's.
"""

import contextlib
import os
from collections.abc import Iterator

NICE = -10
"""Ten times the share of a processor that a program of nice 0 gets."""

_USUAL = (os.SCHED_OTHER, 0)


@contextlib.contextmanager
def before_others() -> Iterator[None]:
    """Raise this thread for a while; never what it starts. Without the right to do so: nothing.

    A priority that somebody chose is left alone.
    """
    is_usual = (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)) == _USUAL
    raised = is_usual and _set(NICE, os.SCHED_RESET_ON_FORK)
    try:
        yield
    finally:
        if raised:
            _set(0, 0)


def _set(nice: int, flag: int) -> bool:
    """Set the priority of this thread, and what becomes of it in a child."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        os.sched_setscheduler(0, os.SCHED_OTHER | flag, os.sched_param(0))
        return True
    return False
