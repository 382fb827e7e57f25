"""Which processes there are, of which pod, and which of them are kubelets: reads /proc.

What may not be read is left out. `proc_root` is where /proc is for us.
"""

import errno
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from kubedevices.explain.facts import SANDBOX, Kubelet, ProcessFacts

PROC_ROOT = Path("/proc")
HOST_ROOT = Path("/")

_POD = re.compile(
    r"pod([0-9a-f]{32}|[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?![0-9a-f])"
)
# The kubelet mounts the container's termination log from here.
_CONTAINER = re.compile(r"/pods/[^/ ]+/containers/([^/ ]+)/")
_POLICY = re.compile(r'^\s*"?topologyManagerPolicy"?: *"?([a-z-]+)', re.MULTILINE)
# The limit of the Linux kernel.
_LINKS = 40
_NO_NAMES: Mapping[str, str] = MappingProxyType({})
_KUBELETS = {"kubelet", "kubelite", "k3s", "k3s-server", "k3s-agent", "k0s", "hyperkube", "rke2"}


def processes(proc_root: Path = PROC_ROOT) -> Iterator[ProcessFacts]:
    """Yield every process, in the order of their numbers."""
    try:
        names = [each.name for each in proc_root.iterdir()]
    except OSError:
        return
    for pid in sorted(int(name) for name in names if name.isdigit()):
        if found := process(pid, proc_root):
            yield found


def process(pid: int, proc_root: Path = PROC_ROOT) -> ProcessFacts | None:
    """Return the process with this number; None if we do not see it."""
    name = read_text(proc_root / str(pid) / "comm")
    return ProcessFacts(pid, name.strip()) if pid > 0 and name is not None else None


def described(
    found: ProcessFacts, proc_root: Path = PROC_ROOT, names: Mapping[str, str] = _NO_NAMES
) -> ProcessFacts:
    """Return the process with its pod, container and state; `names` are those of pods by uid.

    A kubelet mounts a file for the last words of a container from a directory that has the name of
    the container: so it is told by the mounts, without asking the runtime. What has none in a
    cgroup of a kubelet is the sandbox.
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
    """Return the uid of the pod that /proc/PID/cgroup names, empty outside of pods."""
    found = _POD.search(cgroup)
    return found[1].replace("_", "-") if found else ""


def pod_names(logs: Path) -> dict[str, str]:
    """Return `namespace/name` of each pod by its uid: so a kubelet names directories of logs."""
    try:
        names = [each.name.split("_") for each in logs.iterdir()]
    except OSError:
        return {}
    return {each[2]: f"{each[0]}/{each[1]}" for each in names if len(each) == 3}


def in_root(root: Path, path: Path) -> Path:
    """Return where the absolute `path` of a process or container is for us, below its `root`.

    Links are followed as there: an absolute one begins at `root` again. Raises `OSError` for a
    circle; what does not exist is not looked for.
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
    """Return the kubelets that run here, where their files are, and their topology policy.

    Their files are looked for as they see them, or else below `host_root`: who is not allowed to
    look into another process may have the host's files mounted there. A kubelet in a process
    namespace below ours is left out: it serves a node inside a container, such as those of kind.
    """
    found = []
    for each in processes(proc_root):
        if each.name not in _KUBELETS or _is_nested(proc_root / str(each.pid)):
            continue
        words = (read_text(proc_root / str(each.pid) / "cmdline") or "").split("\0")
        root_dir = Path(_option(words, "--root-dir") or "/var/lib/kubelet")
        roots = (proc_root / str(each.pid) / "root", host_root)
        policy = _option(words, "--topology-manager-policy") or _policy_of(words, roots)
        found.append(Kubelet(each, root_dir, policy))
    return tuple(found)


def _is_nested(process: Path) -> bool:
    ids = re.search(r"^NSpid:(.*)$", read_text(process / "status") or "", re.MULTILINE)
    # NSpid has one number for each process namespace that the process is in, below ours.
    return ids is not None and len(ids[1].split()) > 1


def _option(words: list[str], name: str) -> str:
    """Return the value of an option, `--name value` or `--name=value`."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == name:
            return following
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return ""


def _policy_of(words: list[str], roots: Iterable[Path]) -> str | None:
    """Return the topology policy of a kubelet's configuration; `none` where it names none.

    None where that is not known: a kubelet that is part of another program, such as k3s, gets its
    configuration inside. Files of --config-dir add to that of --config, in order of their names.
    """
    if not words[0].endswith("kubelet"):
        return None
    file, folder = (_option(words, name) for name in ("--config", "--config-dir"))
    texts: list[str | None] = []
    for given in filter(None, (file, folder)):
        if not (place := _readable(Path(given), roots)):
            return None
        files = sorted(place.glob("*.conf")) if given == folder else [place]
        texts += map(read_text, files)
    policy = "none"
    for text in texts:
        if text is None:
            return None
        found = _POLICY.search(text)
        policy = found[1] if found else policy
    return policy


def _readable(path: Path, roots: Iterable[Path]) -> Path | None:
    """Return where `path` is for us, below the first of `roots` that lets us read it."""
    for root in roots:
        with suppress(OSError):
            place = in_root(root, path)
            if os.access(place, os.R_OK):
                return place
    return None


def read_text(path: Path) -> str | None:
    """Return what a file says; None when it may not or can not be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None
