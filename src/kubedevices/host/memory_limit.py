"""How much memory this process may use: the smallest limit of its control groups.

Without a control group that limits it, the soft limit RLIMIT_RSS (`ulimit -m`) counts. Linux does
not enforce that one, so it is only what the user tells us.
"""

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

_PROC, _CGROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_LEAST = 2**20
_MOST = 2**50  # version 1 says 2**63 without a limit
_READ = 4096


def memory_limit(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int | None:
    """Return the limit in bytes; None if there is none, or if it cannot be read."""
    found = [*_limits(proc, cgroups)]
    soft, _ = resource.getrlimit(resource.RLIMIT_RSS)
    if soft != resource.RLIM_INFINITY:
        found.append(soft)
    return min((each for each in found if _LEAST <= each < _MOST), default=None)


def _limits(proc: Path, cgroups: Path) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for line in proc.read_text(errors="replace")[:_READ].splitlines():
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if not controllers:  # version 2
                yield from _on_the_way(cgroups, path, "memory.max")
            elif "memory" in controllers.split(","):
                yield from _on_the_way(cgroups / "memory", path, "memory.limit_in_bytes")


def _on_the_way(root: Path, path: str, name: str) -> Iterator[int]:
    """Yield the limits of the group and of all groups that contain it.

    In a container, `root` may be the group itself, and `path` may be that of the host.
    """
    names = [each for each in path.split("/") if each]
    for length in range(len(names) + 1):
        with contextlib.suppress(OSError, ValueError):  # `max` is no number
            yield int(root.joinpath(*names[:length], name).read_text().strip())
