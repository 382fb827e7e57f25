"""What CDI edits name on this host and the host does not have. Blocking.

A CDI file is written once, and the host changes: after a reboot a device file has another number,
an update of a driver removes a library. The file stays valid, and no container with it starts.
"""

import stat
from collections.abc import Iterator
from pathlib import Path

from kubedevices.values.cdi import ContainerEdits


def missing_paths(edits: ContainerEdits) -> Iterator[tuple[str, str]]:
    """Yield where in the edits a path stands (a JSON pointer), and what is wrong with the path."""
    for number, node in enumerate(edits.device_nodes):
        path = node.host_path or node.path
        if node.major is not None and node.type:
            continue  # the engine creates the file in the container from these numbers
        if problem := _problem_of_device(path):
            yield f"/deviceNodes/{number}", problem
    for number, mount in enumerate(edits.mounts):
        # An engine binds what exists; other types, such as tmpfs, have no path on the host.
        if mount.host_path.startswith("/") and not _exists(mount.host_path):
            yield f"/mounts/{number}/hostPath", f"this host has no {mount.host_path}"
    for number, hook in enumerate(edits.hooks):
        if not _exists(hook.path):
            yield f"/hooks/{number}/path", f"this host has no {hook.path}"


def _problem_of_device(path: str) -> str:
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        return f"this host has no {path}" if _is_missing(error) else ""
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISFIFO(mode):
        return ""
    return f"{path} is no device file on this host"


def _exists(path: str) -> bool:
    try:
        Path(path).stat()
    except OSError as error:
        return not _is_missing(error)
    return True


def _is_missing(error: OSError) -> bool:
    """Whether there is no such file: without the right to look nobody can say so."""
    return isinstance(error, (FileNotFoundError, NotADirectoryError))
