"""Whether a process listens on a socket, for plugins of the tests."""

import contextlib
import socket
from pathlib import Path


def accepts(path: Path) -> bool:
    """Whether a process listens on `path`."""
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        probe.settimeout(1)
        probe.connect(str(path))
        return True
    return False
