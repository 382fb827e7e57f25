"""Which processes there are and which Unix sockets they have: reads /proc, never more than that.

What may not be read is left out. `proc_root` is where /proc is for us. The sockets of a process are
those of its network namespace: a plugin in a pod has one of its own, and is not in ours.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kubedevices.explain.facts import Kubelet, Process

PROC_ROOT = Path("/proc")

_LISTENS = 0x10000  # __SO_ACCEPTCON
_KUBELETS = {"kubelet", "kubelite", "k3s", "k3s-server", "k3s-agent", "k0s", "hyperkube", "rke2"}


class UnixSocket(NamedTuple):
    """A line of /proc/net/unix that has a path."""

    inode: int
    listens: bool
    path: str


def processes(proc_root: Path = PROC_ROOT) -> Iterator[Process]:
    """Yield every process, in the order of their numbers."""
    try:
        names = [each.name for each in proc_root.iterdir()]
    except OSError:
        return
    for pid in sorted(int(name) for name in names if name.isdigit()):
        if found := process(pid, proc_root):
            yield found


def process(pid: int, proc_root: Path = PROC_ROOT) -> Process | None:
    """Return the process with this number; None for one that is not there for us."""
    name = read_text(proc_root / str(pid) / "comm")
    return Process(pid, name.strip()) if pid > 0 and name is not None else None


def unix_sockets(pid: int, proc_root: Path = PROC_ROOT) -> list[UnixSocket] | None:
    """Return the Unix sockets in the network namespace of a process, None when it is not told."""
    text = read_text(proc_root / str(pid) / "net" / "unix")
    if text is None:
        return None
    found = []
    for line in text.splitlines()[1:]:
        fields = line.split(maxsplit=7)
        if len(fields) == 8:
            found.append(UnixSocket(int(fields[6]), bool(int(fields[3], 16) & _LISTENS), fields[7]))
    return found


def all_listening(proc_root: Path = PROC_ROOT) -> dict[int, str]:
    """Return inode and path of every listening socket, of all network namespaces."""
    seen: set[str] = set()
    found: dict[int, str] = {}
    for each in processes(proc_root):
        try:
            namespace = str((proc_root / str(each.pid) / "ns" / "net").readlink())
        except OSError:
            continue
        if namespace not in seen:
            seen.add(namespace)
            sockets = unix_sockets(each.pid, proc_root) or ()
            found.update((socket.inode, socket.path) for socket in sockets if socket.listens)
    return found


def owner_of(inode: int, proc_root: Path = PROC_ROOT) -> Process | None:
    """Return a process that has the socket open, if we may see that."""
    wanted = f"socket:[{inode}]"
    for each in processes(proc_root):
        folder = proc_root / str(each.pid) / "fd"
        try:
            if any(str(file.readlink()) == wanted for file in folder.iterdir()):
                return each
        except OSError:
            continue
    return None


# ---------------------------------------------------------------- kubelets


def kubelets(proc_root: Path = PROC_ROOT) -> tuple[Kubelet, ...]:
    """Return the kubelets that run here, where their files are, and their topology policy."""
    found = []
    for each in processes(proc_root):
        if each.name not in _KUBELETS:
            continue
        words = (read_text(proc_root / str(each.pid) / "cmdline") or "").split("\0")
        root_dir = Path(_option(words, "--root-dir") or "/var/lib/kubelet")
        config = Path(_option(words, "--config") or root_dir / "config.yaml")
        policy = _option(words, "--topology-manager-policy") or _policy_of(config)
        found.append(Kubelet(each, root_dir, policy))
    return tuple(found)


def _option(words: list[str], name: str) -> str:
    """Return the value of an option, `--name value` or `--name=value`."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == name:
            return following
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return ""


def _policy_of(config: Path) -> str | None:
    """Return the topology policy of a KubeletConfiguration; `none` where it names none."""
    text = read_text(config)
    if text is None:
        return None
    found = re.search(r'^"?topologyManagerPolicy"?: *"?([a-z-]+)', text, re.MULTILINE)
    return found[1] if found else "none"


def read_text(path: Path) -> str | None:
    """Return what a file says; None when it may not or can not be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None
