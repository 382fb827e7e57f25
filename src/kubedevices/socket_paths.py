"""Where kubelet.sock and its neighbours live. Names and paths only; nothing here opens a socket."""

from pathlib import Path

from kubedevices.errors import SocketPathTooLong

DEVICE_PLUGIN_DIR = Path("/var/lib/kubelet/device-plugins")
"""Fixed in every kubelet, even when its root directory is moved."""

PLUGIN_REGISTRY_DIR = Path("/var/lib/kubelet/plugins_registry")
POD_RESOURCES_SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
STATE_DIR = Path("/var/lib/kubedevices")
"""Default of `--state-dir`: the node's ledger and its control socket, mode 0700."""

KUBELET_SOCKET_NAME = "kubelet.sock"
CHECKPOINT_NAME = "kubelet_internal_checkpoint"
CONTROL_SOCKET_NAME = "control.sock"

SHORTER_SOCKET_DIR = "choose a shorter --socket-dir"
SHORTER_STATE_DIR = "choose a shorter --state-dir"
SHORTER_SOCKET_NAME = f"{SHORTER_SOCKET_DIR}, or a shorter name for the socket"
"""What to do about a path that is too long, by where it comes from."""


def check_socket_path(path: Path, advice: str = "choose a shorter path") -> Path:
    """Return `path`; raise `SocketPathTooLong`, with `advice`, when Linux could not bind it."""
    if len(bytes(path)) > SocketPathTooLong.limit:
        raise SocketPathTooLong(str(path), advice)
    return path


def plugin_socket(socket_dir: Path, resource: str) -> Path:
    """Return the path of a plugin's socket: `<domain>-<device type>.sock`.

    Where that is too long, a hash stands for the resource. Raises `SocketPathTooLong` when even
    that does not fit.
    """
    domain, _, device_type = resource.partition("/")
    path = socket_dir / f"{domain}-{device_type}.sock"
    if len(bytes(path)) > SocketPathTooLong.limit:
        import hashlib  # noqa: PLC0415 - hardly ever needed, and not small

        digest = hashlib.sha1(resource.encode(), usedforsecurity=False).hexdigest()[:10]
        path = socket_dir / f"{domain}-{digest}.sock"
    return check_socket_path(path, SHORTER_SOCKET_DIR)


def default_state_dir(socket_dir: Path) -> Path:
    """Return the node's state directory where none was given.

    Beside the plugin directory, never in it: that one gets cleaned. So that commands which share a
    `--socket-dir` find each other without a second option.
    """
    if socket_dir == DEVICE_PLUGIN_DIR:
        return STATE_DIR
    return socket_dir.with_name(socket_dir.name + ".state")
