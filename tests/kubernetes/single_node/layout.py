"""The paths of a cluster, its addresses, and the programs that it needs."""

import os
import sys
from pathlib import Path
from typing import NoReturn

NODE = "node1"
NODE_ADDRESS, SERVICE_ADDRESS = "10.136.0.1", "10.137.0.1"
"""Addresses that exist only in the cluster's network namespace. Pods have 10.138.0.0/24."""

BINARIES = "KUBEDEVICES_KUBERNETES"
"""The environment variable that names the folder of the release binaries."""

PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""The services that run beside the node and survive its reboot."""
ON_NODE = ("containerd", "kubelet")
SERVICES = (*PLANE, *ON_NODE)
PROGRAMS = (*SERVICES, "kubectl", "containerd-shim-runc-v2", "ctr")
PACKAGES = {
    "runc": "runc",
    "ip": "iproute2",
    "openssl": "openssl",
    "busybox": "busybox-static",
    "iptables": "iptables",
}
"""By program: the Debian package that brings it."""

REGISTRY = "docker.io"
"""What a kubelet puts before the name of an image without a host. The node pulls nothing."""
CNI_PROGRAMS = Path("/usr/lib/cni")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LONGEST_DIRECTORY = 60
"""Characters; the paths of sockets below a longer directory would not fit into an address."""
HIDDEN = ("/etc", "/var/lib", "/var/log", "/dev", "/proc", "/sys")
"""Where `DIR` cannot be: the node has its own directories there."""


def program(folder: Path) -> list[str]:
    """Return the words that start the program for the cluster of a folder.

    The folder has its own program `cluster`, or the release binaries for this one.
    """
    own = folder.resolve() / "cluster"
    return [str(own)] if own.is_file() else [sys.executable, str(Path(__file__).parent)]


def find_programs() -> dict[str, Path]:
    """Return the release binaries by name; end the program if one is missing."""
    folder = Path(os.environ.get(BINARIES) or "/nonexistent").resolve()
    missing = [name for name in PROGRAMS if not (folder / name).is_file()]
    if missing:
        fail(f"set {BINARIES} to a folder that has the programs {', '.join(missing)}")
    return {name: folder / name for name in PROGRAMS}


class Layout:
    """The files of a cluster, below `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.programs = self.directory / "bin"
        self.credentials = self.directory / "pki"
        self.images = self.directory / "images"
        self.logs = self.directory / "log"
        self.pids = self.directory / "pid"
        self.mounts = self.directory / "mnt"
        self.kubelet = self.directory / "kubelet"
        self.cdi = self.directory / "cdi"
        self.boot_id = self.directory / "boot_id"
        self.options = self.directory / "options.json"

    def log(self, name: str) -> Path:
        """Return the file with the output of a service."""
        return self.logs / f"{name}.log"


def fail(message: str, log: Path | None = None) -> NoReturn:
    """End the program with a message and the last lines of a log."""
    if log is not None and log.exists():
        lines = log.read_text(errors="replace").splitlines()[-8:]
        message += f"; its log {log} ends:\n" + "\n".join(lines)
    sys.exit(f"cluster: {message}")
