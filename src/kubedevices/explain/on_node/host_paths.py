"""In which directories and files of a host `explain` looks, also of a host that is mounted."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kubedevices.explain.on_node.look_processes import HOST_ROOT, PROC_ROOT, in_root, kubelets
from kubedevices.host.cdi_specs import DIRECTORIES
from kubedevices.host.sysfs import DEV_ROOT, SYSFS_ROOT
from kubedevices.values.socket_paths import DEVICE_PLUGIN_DIR, POD_RESOURCES, STATE_DIR

KUBELET_ROOTS = (
    Path("/var/lib/kubelet"),
    Path("/var/lib/k0s/kubelet"),
    Path("/var/lib/rancher/k3s/agent/kubelet"),
    Path("/var/snap/microk8s/common/var/lib/kubelet"),
)
"""Root directories of kubelets: the default, then those that k0s, k3s and MicroK8s use or used."""

POD_LOGS = Path("/var/log/pods")


@dataclass(frozen=True, slots=True)
class HostPaths:
    """Where to look; a test or a container may have each of these paths elsewhere.

    By default `pod_resources` and `plugin_registry` are found in the kubelet's root directory, and
    `proxy_state_dir` is `state_dir`. `host_root` is the directory where the files of the host are
    mounted: `on_host` puts it before a path that the host itself uses.
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
        """Return the usual paths of a host whose files are below `host_root`.

        `given` replaces single paths.
        """

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

    def on_host(self, path: Path) -> Path:
        """Return the path at which this process sees `path` of the host."""
        return _below(self.host_root, path)


def _below(host_root: Path, path: Path) -> Path:
    """Return `path` below `host_root`."""
    # Links are not resolved on this host itself: findings name the path that the user knows.
    return path if host_root == HOST_ROOT else in_root(host_root, path)


def find_host_root(debugging: Path = Path("/host"), here: Path = DEVICE_PLUGIN_DIR) -> Path:
    """Return the directory with the host's files: `kubectl debug node` mounts them at /host."""
    there = in_root(debugging, DEVICE_PLUGIN_DIR)
    return debugging if there.is_dir() and not here.exists() else HOST_ROOT


def below_kubelet_root(socket_dir: Path, roots: Iterable[Path], name: str) -> Path:
    """Return the path of `name` in a kubelet's root directory.

    `--root-dir` of the kubelet moves that directory, except for the plugin directory. So `name` is
    not always beside the plugin directory, and all of `roots` are tried too.
    """
    candidates = [root / name for root in (socket_dir.parent, *roots)]
    return next((each for each in candidates if _is_there(each)), candidates[0])


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # no permission
        return False


def find_pod_resources(socket_dir: Path) -> Path | None:
    """Return the podresources socket of the kubelet that serves a plugin directory of this host."""
    roots: tuple[Path, ...] = ()
    if socket_dir == DEVICE_PLUGIN_DIR:
        roots = (*KUBELET_ROOTS, *(each.root_dir for each in kubelets()))
    found = below_kubelet_root(socket_dir, roots, POD_RESOURCES)
    return found if _is_there(found) else None
