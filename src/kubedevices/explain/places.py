"""Where to look on a host: the usual places, or the same below a directory where its files are."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kubedevices.explain.look_processes import HOST_ROOT, PROC_ROOT, in_root, kubelets
from kubedevices.host.cdi_specs import DIRECTORIES
from kubedevices.host.sysfs import DEV_ROOT, SYSFS_ROOT
from kubedevices.socket_paths import DEVICE_PLUGIN_DIR, STATE_DIR

KUBELET_ROOTS = (
    Path("/var/lib/kubelet"),
    Path("/var/lib/k0s/kubelet"),
    Path("/var/lib/rancher/k3s/agent/kubelet"),
    Path("/var/snap/microk8s/common/var/lib/kubelet"),
)
"""Where distributions keep, or kept, what a kubelet keeps in the first of them."""


POD_LOGS = Path("/var/log/pods")
POD_RESOURCES = "pod-resources/kubelet.sock"


@dataclass(frozen=True, slots=True)
class Places:
    """Where to look; every one of them may be somewhere else in a test or a container.

    `pod_resources` and `plugin_registry` are by default those of the kubelet's root directory.
    A proxy keeps its state in `proxy_state_dir`, by default in `state_dir`.
    `host_root` is where the host's files are, for what is known by its path there.
    """

    socket_dir: Path
    state_dir: Path
    pod_resources: Path | None = None
    plugin_registry: Path | None = None
    dev_root: Path = DEV_ROOT
    sysfs_root: Path = SYSFS_ROOT
    proc_root: Path = PROC_ROOT
    cdi_dirs: tuple[Path, ...] = DIRECTORIES
    kubelet_roots: tuple[Path, ...] = KUBELET_ROOTS
    pod_logs: Path = POD_LOGS
    host_root: Path = HOST_ROOT
    proxy_state_dir: Path | None = None

    @classmethod
    def below(cls, host_root: Path, **given: Any) -> Self:
        """Return the usual places of a host whose files are below `host_root`, but `given` ones."""

        def there(path: Path) -> Path:
            return _below(host_root, path)

        usual: dict[str, Any] = {
            "socket_dir": there(DEVICE_PLUGIN_DIR),
            "state_dir": there(STATE_DIR),
            "dev_root": host_root / "dev",
            "sysfs_root": host_root / "sys",
            "cdi_dirs": tuple(map(there, DIRECTORIES)),
            "kubelet_roots": tuple(map(there, KUBELET_ROOTS)),
            "pod_logs": there(POD_LOGS),
        }
        return cls(host_root=host_root, **usual | given)

    def there(self, path: Path) -> Path:
        """Return where a path of the host is for us."""
        return _below(self.host_root, path)


def _below(host_root: Path, path: Path) -> Path:
    """Return `path` itself where the host is here: so it is told in the words of its users."""
    return path if host_root == HOST_ROOT else in_root(host_root, path)


def find_host_root(debugging: Path = Path("/host"), here: Path = DEVICE_PLUGIN_DIR) -> Path:
    """Return where the host's files are: `kubectl debug node` mounts them at /host."""
    there = in_root(debugging, DEVICE_PLUGIN_DIR)
    return debugging if there.is_dir() and not here.exists() else HOST_ROOT


def below_kubelet_root(socket_dir: Path, roots: Iterable[Path], name: str) -> Path:
    """Return what a kubelet keeps in its root directory, which --root-dir moves.

    The plugin directory alone stays, so its neighbours are not always beside it.
    """
    candidates = [root / name for root in (socket_dir.parent, *roots)]
    return next((each for each in candidates if _is_there(each)), candidates[0])


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # no permission to look
        return False


def find_pod_resources(socket_dir: Path) -> Path | None:
    """Return the podresources socket of the kubelet that serves a plugin directory of this host."""
    roots: tuple[Path, ...] = ()
    if socket_dir == DEVICE_PLUGIN_DIR:
        roots = (*KUBELET_ROOTS, *(each.root_dir for each in kubelets()))
    found = below_kubelet_root(socket_dir, roots, POD_RESOURCES)
    return found if _is_there(found) else None
