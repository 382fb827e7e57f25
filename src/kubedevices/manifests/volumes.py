"""Which directories of the host a container sees: only those that it needs. Pure."""

import posixpath
import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

from kubedevices.manifests.deployment import (
    CDI_DIR,
    CONFIG_MAP,
    DEV,
    HOST_DEV,
    MODE_DIR,
    STATE_DIR,
    Deployment,
)

OF_DRIVER = re.compile("driver(-[0-9]+)?")
"""The name of the volume with a DRA driver's own directory, of which the last part is its name."""

Kind: TypeAlias = Literal["Directory", "DirectoryOrCreate"]


class Volume(NamedTuple):
    """A directory of the host, and its path in the container."""

    name: str
    path: str
    seen_at: str
    kind: Kind
    read_only: bool

    @property
    def source(self) -> dict[str, Any]:
        """The volume of the pod."""
        return {"name": self.name, "hostPath": {"path": self.path, "type": self.kind}}

    @property
    def mount(self) -> dict[str, Any]:
        """The mount of the container."""
        read_only = {"readOnly": True} if self.read_only else {}
        return {"name": self.name, "mountPath": self.seen_at, **read_only}


def volumes_of(deployment: Deployment) -> list[Volume]:
    """Return the directories of the host that a plugin's container sees."""
    volumes = []
    if deployment.has_plugin:
        volumes.append(_same("plugins", deployment.plugin_dir, "Directory"))
    if deployment.plugin == "expose":
        volumes += _of_dev(deployment)
    if deployment.plugin == "proxy":
        volumes.append(_same("inside", deployment.inside_dir, "DirectoryOrCreate"))
        volumes.append(_same("inside-registry", deployment.inside_registry, "DirectoryOrCreate"))
    # `kubedevices cordon` on the host writes the file that every pod reads. A proxy also writes,
    # and expose, which keeps the IDs of devices.
    is_read_only = deployment.plugin not in {"proxy", "expose"}
    volumes.append(
        Volume("state", STATE_DIR, STATE_DIR, "DirectoryOrCreate", read_only=is_read_only)
    )
    volumes += [
        Volume(f"host-{number}", path, path, "DirectoryOrCreate", read_only=True)
        for number, path in enumerate(deployment.host_dirs)
    ]
    volumes += [
        Volume(f"mount-{number}", *mount[:2], "Directory", read_only=mount.read_only)
        for number, mount in enumerate(deployment.mounts)
    ]
    if deployment.admin.control_socket_dir:
        volumes.append(_same("control", deployment.admin.control_socket_dir, "DirectoryOrCreate"))
    if deployment.has_dra:
        kubelet = deployment.kubelet_dir
        volumes.append(_same("registry", f"{kubelet}/plugins_registry", "Directory"))
        own = f"{kubelet}/plugins/{deployment.domain}"
        volumes.append(_same("driver", own, "DirectoryOrCreate"))
    if deployment.mode_file not in (None, CONFIG_MAP):
        directory = posixpath.dirname(deployment.mode_file)
        volumes.append(Volume("mode", directory, MODE_DIR, "DirectoryOrCreate", read_only=True))
    if deployment.cdi or deployment.writes_cdi or deployment.has_dra:
        volumes.append(_same("cdi", CDI_DIR, "DirectoryOrCreate"))
    if deployment.asks_pod_resources or deployment.has_dra or deployment.plugin == "expose":
        path = f"{deployment.kubelet_dir}/pod-resources"
        volumes.append(Volume("pod-resources", path, path, "Directory", read_only=True))
    return volumes


def _same(name: str, path: str, kind: Kind) -> Volume:
    """Return a writable directory with the same path on the host and in the container."""
    return Volume(name, path, path, kind, read_only=False)


def _of_dev(deployment: Deployment) -> Iterator[Volume]:
    for number, path in enumerate(deployment.dev_dirs):
        name = "dev" if path == DEV else f"dev-{number}"
        # The directory of a driver may be missing: this must not stop the pod from starting.
        kind: Kind = "Directory" if path == DEV else "DirectoryOrCreate"
        yield Volume(name, path, HOST_DEV + path.removeprefix(DEV), kind, read_only=True)
