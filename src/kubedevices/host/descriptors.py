"""Lets a process open as many files as the system allows it. For many nodes in one process."""

import contextlib
import resource


def allow_all_descriptors() -> None:
    """Raise the soft limit of open files, mostly 1024, to the hard limit.

    The soft limit is for programs that use `select`, which cannot wait for higher descriptors.
    Call this before the first server starts: the servers derive their limits from it.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # a sandbox may refuse it
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
