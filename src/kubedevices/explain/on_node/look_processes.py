"""Reads /proc: all processes, their pods, and which of them are kubelets.

Entries that may not be read are left out. `proc_root` is the path of the host's /proc. Any user may
start a process with any name and any arguments. So a process of another user than root is no
kubelet, and a path in the arguments may lead to a named pipe, a device or an endless file.
"""

import errno
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from kubedevices.explain.on_node.facts import SANDBOX, Kubelet, ProcessFacts
from kubedevices.host import listing
from kubedevices.host.untrusted_files import read_bytes

PROC_ROOT = Path("/proc")
HOST_ROOT = Path("/")

_POD = re.compile(
    r"pod([0-9a-f]{32}|[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?![0-9a-f])"
)
# The kubelet mounts the file for a container's termination message from here.
_CONTAINER = re.compile(r"/pods/[^/ ]+/containers/([^/ ]+)/")
_POLICY = re.compile(r'^\s*"?topologyManagerPolicy"?: *"?([a-z-]+)', re.MULTILINE)
# The Linux kernel follows so many links in a path.
_LINKS = 40
_LONGEST_PATH = 4095  # bytes, the limit of Linux
_MOST_FILES = 1000
_CONFIG_LIMIT = 2**20
_TABLE_LIMIT = 64 * 2**20  # /proc/net/unix has 100 bytes for each socket
_NO_NAMES: Mapping[str, str] = MappingProxyType({})
_PYTHON = re.compile(r"python[\d.]*")
_KUBELETS = {"kubelet", "kubelite", "k3s", "k3s-server", "k3s-agent", "k0s", "hyperkube", "rke2"}


def processes(proc_root: Path = PROC_ROOT) -> Iterator[ProcessFacts]:
    """Yield every process, in the order of process IDs."""
    try:
        names = [each.name for each in proc_root.iterdir()]
    except OSError:
        return
    for pid in sorted(int(name) for name in names if name.isdigit()):
        if found := process(pid, proc_root):
            yield found


def process(pid: int, proc_root: Path = PROC_ROOT) -> ProcessFacts | None:
    """Return the process with this ID; None if it cannot be seen."""
    name = read_text(proc_root / str(pid) / "comm")
    if pid <= 0 or name is None:
        return None
    name = name.strip()
    if _PYTHON.fullmatch(name):
        name = _script(proc_root / str(pid)) or name
    return ProcessFacts(pid, name)


def _script(place: Path) -> str:
    """Return the name of the script that Python runs; "" for `python -m` and `python -c`.

    The kernel names the process of a script after the script. But if the path of the interpreter
    has a space or more than 127 bytes, pip lets a shell start the interpreter, and the name of the
    process is `python`.
    """
    words = (read_text(place / "cmdline") or "").split("\0")
    return "" if words[1:2] == [] or words[1].startswith("-") else Path(words[1]).name


def described(
    found: ProcessFacts, proc_root: Path = PROC_ROOT, names: Mapping[str, str] = _NO_NAMES
) -> ProcessFacts:
    """Return the process with its pod, container and state; `names` maps uids to names of pods.

    A kubelet mounts the file for the termination message from a directory that has the name of the
    container. So the mounts of a process tell the name, and the runtime need not be asked. A
    process in a cgroup of the kubelet without this mount is the sandbox.
    """
    place = proc_root / str(found.pid)
    cgroup = read_text(place / "cgroup") or ""
    uid = pod_of(cgroup)
    state = re.search(r"^State:\s+(\S)", read_text(place / "status") or "", re.MULTILINE)
    mounts = read_text(place / "mountinfo") if uid else None
    container = _CONTAINER.search(mounts or "")
    unnamed = SANDBOX if mounts and "kubepods" in cgroup else ""
    return replace(
        found,
        pod=names.get(uid, uid),
        container=container[1] if container else unnamed,
        state=state[1] if state else "",
    )


def pod_of(cgroup: str) -> str:
    """Return the uid of the pod in the text of /proc/PID/cgroup; empty outside of pods."""
    found = _POD.search(cgroup)
    return found[1].replace("_", "-") if found else ""


def pod_names(logs: Path) -> dict[str, str]:
    """Return `namespace/name` of each pod, by its uid.

    A kubelet names the directories of logs NAMESPACE_NAME_UID.
    """
    try:
        names = [each.split("_") for each in listing.names(logs)]
    except OSError:
        return {}
    return {each[2]: f"{each[0]}/{each[1]}" for each in names if len(each) == 3}


def in_root(root: Path, path: Path) -> Path:
    """Return the path below `root` of the absolute `path` of a process or container.

    Links are followed as in that container: an absolute link begins at `root` again. The path need
    not exist. Raises `OSError` for links in a circle.
    """
    place, parts, links = root, deque(path.parts[1:]), 0
    while parts:
        part = parts.popleft()
        if part == "..":
            place = place if place == root else place.parent
            continue
        place /= part
        if not place.is_symlink():
            continue
        links += 1
        if links > _LINKS:
            raise OSError(errno.ELOOP, "too many levels of symbolic links", str(path))
        target = place.readlink()
        parts.extendleft(reversed(target.parts[target.is_absolute() :]))
        place = root if target.is_absolute() else place.parent
    return place


# ---------------------------------------------------------------- kubelets


def kubelets(proc_root: Path = PROC_ROOT, host_root: Path = HOST_ROOT) -> tuple[Kubelet, ...]:
    """Return the kubelets of this host, their root directories and their topology policies.

    Configuration files are read through the kubelet's own root, /proc/PID/root, or else below
    `host_root`: a user who may not look into other processes may have the host's files mounted
    there. A kubelet in a process namespace below ours is left out: it serves a node inside a
    container, such as a node of kind. A process of another user than root and the user of this
    process is left out too: it only has the name.
    """
    found = []
    for each in processes(proc_root):
        place = proc_root / str(each.pid)
        if each.name not in _KUBELETS or _is_nested(place) or not _is_trusted(place):
            continue
        words = (read_text(proc_root / str(each.pid) / "cmdline") or "").split("\0")
        root_dir = Path(_option(words, "--root-dir") or "/var/lib/kubelet")
        roots = (proc_root / str(each.pid) / "root", host_root)
        policy = _option(words, "--topology-manager-policy") or _policy_of(words, roots)
        found.append(Kubelet(each, root_dir, policy))
    return tuple(found)


def _is_nested(process: Path) -> bool:
    ids = re.search(r"^NSpid:(.*)$", read_text(process / "status") or "", re.MULTILINE)
    # NSpid has one number for each process namespace of the process, from ours inwards.
    return ids is not None and len(ids[1].split()) > 1


def _is_trusted(process: Path) -> bool:
    """Whether a process runs as root, or as the user of this process."""
    # Not the owner of /proc/PID: a process that is not dumpable belongs to root there.
    ids = re.search(r"^Uid:\s+(\d+)\s+(\d+)", read_text(process / "status") or "", re.MULTILINE)
    return ids is not None and {int(ids[1]), int(ids[2])} <= {0, os.geteuid()}


def _option(words: list[str], name: str) -> str:
    """Return the value of an option, `--name value` or `--name=value`."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == name:
            return following
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return ""


def _policy_of(words: list[str], roots: Iterable[Path]) -> str | None:
    """Return the topology policy in a kubelet's configuration; `none` if it names no policy.

    Return None if the policy is not known: a kubelet that is part of another program, such as k3s,
    has its configuration in that program. The files of --config-dir replace values of --config, in
    the order of their names.
    """
    if not words[0].endswith("kubelet"):
        return None
    file, folder = (_option(words, name) for name in ("--config", "--config-dir"))
    policy = "none"
    for given in filter(None, (file, folder)):
        place = _readable(Path(given), roots) if len(given) <= _LONGEST_PATH else None
        files = _config_files(place) if place and given == folder else [place]
        for each in files:
            text = _config_text(each)
            if text is None:
                return None
            found = _POLICY.search(text)
            policy = found[1] if found else policy
    return policy


def _config_files(directory: Path) -> Sequence[Path | None]:
    """Return the files that a kubelet reads in its --config-dir; `[None]` if there are too many."""
    try:
        with os.scandir(directory) as entries:
            names = [each.name for each in islice(entries, _MOST_FILES + 1)]
    except OSError:
        return [None]
    if len(names) > _MOST_FILES:
        return [None]
    return [directory / name for name in sorted(names) if name.endswith(".conf")]


def _config_text(file: Path | None) -> str | None:
    """Return the text of a regular file of at most 1 MiB; None for anything else."""
    if file is None:
        return None
    try:
        return read_bytes(file, limit=_CONFIG_LIMIT).decode(errors="replace")
    except OSError:
        return None


def _readable(path: Path, roots: Iterable[Path]) -> Path | None:
    """Return `path` below the first of `roots` where it can be read."""
    for root in roots:
        with suppress(OSError):
            place = in_root(root, path)
            if os.access(place, os.R_OK):
                return place
    return None


def read_text(path: Path) -> str | None:
    """Return the text of a file of the kernel, in /proc or /sys; None if it cannot be read.

    Reads only regular files, up to 64 MiB, and never waits for another process.
    """
    try:
        return read_bytes(path, limit=_TABLE_LIMIT, follow_links=True).decode(errors="replace")
    except OSError:
        return None
