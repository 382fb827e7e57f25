"""What CDI edits name on this host and the host does not have. Blocking.

A CDI file is written once, and the host changes: after a reboot a device file has another number,
an update of a driver removes a library. The file stays valid, and no container with it starts, or
one gets another device.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from kubedevices.values.cdi import ContainerEdits, DeviceNode

_TYPES = {stat.S_IFCHR: "c", stat.S_IFBLK: "b", stat.S_IFIFO: "p"}


def missing_paths(edits: ContainerEdits) -> Iterator[tuple[str, str]]:
    """Yield where in the edits a path stands (a JSON pointer), and what is wrong with the path."""
    for number, node in enumerate(edits.device_nodes):
        if problem := _problem_of_device(node):
            yield f"/deviceNodes/{number}", problem
    for number, mount in enumerate(edits.mounts):
        # An engine binds what exists; other types, such as tmpfs, have no path on the host.
        if mount.host_path.startswith("/") and _mode_of(mount.host_path) == 0:
            yield f"/mounts/{number}/hostPath", f"this host has no {mount.host_path}"
    for number, hook in enumerate(edits.hooks):
        mode = _mode_of(hook.path)
        if mode == 0:
            yield f"/hooks/{number}/path", f"this host has no {hook.path}"
        elif mode is not None and not (stat.S_ISREG(mode) and mode & 0o111):
            yield f"/hooks/{number}/path", f"{hook.path} is no program on this host"


def _problem_of_device(node: DeviceNode) -> str:
    """Compare a node with the host, as an engine does.

    There are two cases. With type and numbers, the engine creates the file in the container from
    these: they must still be those of this host, because a driver may get others at each boot.
    Otherwise it takes them from the file of the host, which must be there, and of that type.
    """
    path = node.host_path or node.path
    has_numbers = bool(node.type) and node.major is not None
    try:
        found = Path(path).stat()
    except OSError as error:
        is_missing = _is_missing(error) and not has_numbers
        return f"this host has no {path}" if is_missing else ""
    type_here = _TYPES.get(stat.S_IFMT(found.st_mode))
    if type_here is None:
        return "" if has_numbers else f"{path} is no device file on this host"
    if node.type and ("c" if node.type == "u" else node.type) != type_here:
        return f"{path} has the type {type_here} on this host, not {node.type}"
    here = os.major(found.st_rdev), os.minor(found.st_rdev)
    if has_numbers and (named := (node.major, node.minor or 0)) != here:
        return f"{path} is {here[0]}:{here[1]} on this host, not {named[0]}:{named[1]}"
    return ""


def _mode_of(path: str) -> int | None:
    """Return the mode of a file, 0 if it does not exist, None if nobody can say so."""
    try:
        return Path(path).stat().st_mode
    except OSError as error:
        return 0 if _is_missing(error) else None


def _is_missing(error: OSError) -> bool:
    """Whether there is no such file: without the right to look nobody can say so."""
    return isinstance(error, (FileNotFoundError, NotADirectoryError))
