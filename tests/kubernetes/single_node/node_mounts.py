"""The file systems of the node: those of this machine, with some of its own in their place."""

import json
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from tests.kubernetes.single_node.layout import NODE, Layout
from tests.kubernetes.single_node.processes import call
from tests.kubernetes.single_node.settings import NETWORK

_BIND, _RECURSIVE, _PRIVATE, _SHARED = 4096, 16384, 1 << 18, 1 << 20
"""MS_... of mount(2)."""

_OVERLAID = ("/etc", "/var/lib", "/var/log")
"""Directories of this machine that the node sees, and whose changes stay on the node."""

_OWN = {
    "kubelet": "/var/lib/kubelet",
    "containerd": "/var/lib/containerd",
    "cni": "/var/lib/cni",
    "etc-cdi": "/etc/cdi",
    "log/pods": "/var/log/pods",
    "log/containers": "/var/log/containers",
    "manifests": "/etc/kubernetes/manifests",
    "mnt/net.d": "/etc/cni/net.d",
}
"""Directories of `DIR`, and where the node has them."""

_SYSCTLS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
"""What the kubelet wants. It reads these values from files, and cannot change the machine's."""


def mount_node(layout: Layout) -> None:
    """Mount all this. For process 1 of the node, in new mount, UTS and process namespaces."""
    own = layout.mounts
    _mount("none", "/", flags=_RECURSIVE | _PRIVATE)
    _mount("node", own, "tmpfs", data="mode=755")
    _make_devices(own / "dev")
    for path in _OVERLAID:
        name = path[1:].replace("/", "-")
        upper, work = own / name, own / f"{name}.work"
        upper.mkdir()
        work.mkdir()
        _mount("overlay", path, "overlay", data=f"lowerdir={path},upperdir={upper},workdir={work}")
    for name, path in _OWN.items():
        (layout.directory / name).mkdir(parents=True, exist_ok=True)
        _bind(layout.directory / name, path)
    _bind(layout.cdi, own / "run/cdi")
    if layout.directory.is_relative_to("/run"):
        _bind(layout.directory, own / layout.directory.relative_to("/"))
    for name in ("containerd", "lock"):
        (own / "run" / name).mkdir(parents=True, exist_ok=True)
    Path("/etc/cni/net.d/10-test.conflist").write_text(json.dumps(NETWORK))
    _mount("proc", "/proc", "proc")
    for number, (name, value) in enumerate(_SYSCTLS.items()):
        file = own / f"sysctl{number}"
        file.write_text(f"{value}\n")
        _bind(file, f"/proc/sys/{name}")
    _bind(layout.boot_id, "/proc/sys/kernel/random/boot_id")
    socket.sethostname(NODE)
    for name in ("dev", "run"):
        _mount(own / name, f"/{name}", flags=_BIND | _RECURSIVE)
    _mount("none", "/", flags=_RECURSIVE | _SHARED)
    bury_orphans()


def bury_orphans() -> None:
    """Let the kernel bury the processes whose parents have ended. Stays so after `exec`."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def _make_devices(directory: Path) -> None:
    """Copy /dev, so that a test may remove and create device files."""
    subprocess.run(["cp", "-ax", "/dev/.", directory], check=True)
    for name, kind, data in (
        ("pts", "devpts", "newinstance,ptmxmode=0666,mode=620"),
        ("shm", "tmpfs", ""),
        ("mqueue", "mqueue", ""),
    ):
        _mount(kind, directory / name, kind, data=data)
    (directory / "ptmx").unlink(missing_ok=True)
    (directory / "ptmx").symlink_to("pts/ptmx")


def _bind(source: Path, target: Path | str) -> None:
    if source.is_dir():
        Path(target).mkdir(parents=True, exist_ok=True)
    _mount(source, target, flags=_BIND)


def _mount(
    source: Path | str, target: Path | str, kind: str = "", flags: int = 0, data: str = ""
) -> None:
    if kind:
        Path(target).mkdir(parents=True, exist_ok=True)
    call("mount", source, target, kind or None, flags, data or None)


def make_directories(layout: Layout) -> None:
    """Create what must be there before the node starts; a boot has an empty /var/run/cdi."""
    shutil.rmtree(layout.cdi, ignore_errors=True)
    for each in (
        *(layout.mounts, layout.cdi, layout.directory / "containerd"),
        *(layout.kubelet / "device-plugins", layout.kubelet / "plugins_registry"),
    ):
        each.mkdir(parents=True, exist_ok=True)
