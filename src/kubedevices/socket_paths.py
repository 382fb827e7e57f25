"""Where kubelet.sock and its neighbours live. Names and paths only; nothing here opens a socket."""

import binascii
import re
from pathlib import Path
from typing import NamedTuple, Self

from kubedevices.errors import SocketPathTooLong

DEVICE_PLUGIN_DIR = Path("/var/lib/kubelet/device-plugins")
"""Fixed in every kubelet, even when its root directory is moved."""

PLUGIN_REGISTRY_DIR = Path("/var/lib/kubelet/plugins_registry")
POD_RESOURCES_SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
STATE_DIR = Path("/var/lib/kubedevices")
"""Default of `--state-dir`: the node's ledger and its control socket, mode 0700."""

INSIDE_DIR = STATE_DIR / "plugins"
"""Where the plugins behind a proxy register."""

KUBELET_SOCKET_NAME = "kubelet.sock"
CHECKPOINT_NAME = "kubelet_internal_checkpoint"
CONTROL_SOCKET_NAME = "control.sock"
PROXY_SOCKET_NAME = "proxy.sock"

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
    path = socket_dir / f"{_stem_of(resource)}.sock"
    if len(bytes(path)) > SocketPathTooLong.limit:
        import hashlib  # noqa: PLC0415 - hardly ever needed, and not small

        digest = hashlib.sha1(resource.encode(), usedforsecurity=False).hexdigest()[:10]
        path = socket_dir / f"{resource.partition('/')[0]}-{digest}.sock"
    return check_socket_path(path, SHORTER_SOCKET_DIR)


class InstanceSocket(NamedTuple):
    """The name of a plugin's socket: `<stem>.<mark>.<instance>.sock`.

    Each instance of a plugin has one of its own, so that a new one can register while the old one
    still serves. The `mark` stands for the resource: instances find each other by it, whatever
    their stems are. An `instance` that started later sorts behind, on the same host.
    """

    stem: str
    mark: str
    instance: str

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return the parts of a file name, None when it is of another kind."""
        found = _INSTANCE_SOCKET.fullmatch(name)
        return cls(*found.groups()) if found else None

    def __str__(self) -> str:
        return f"{self.stem}.{self.mark}.{self.instance}.sock"


_INSTANCE_SOCKET = re.compile(r"([^/\0]+)\.([0-9a-f]{8})\.([0-9a-f]{13})\.sock")


def instance_of(microseconds: int) -> str:
    """Return the instance that started so long after the start of the host."""
    return f"{microseconds:013x}"


def instance_socket(
    socket_dir: Path,
    resource: str,
    instance: str,
    stem: str = "",
    advice: str = SHORTER_SOCKET_DIR,
) -> Path:
    """Return where one instance serves `resource`; `stem` is `<domain>-<device type>` by default.

    A stem that is too long is cut. Raises `SocketPathTooLong` when nothing of it would be left.
    """
    mark = f"{binascii.crc32(resource.encode()):08x}"
    name = InstanceSocket(stem or _stem_of(resource), mark, instance)
    excess = len(bytes(socket_dir / str(name))) - SocketPathTooLong.limit
    if excess > 0:
        kept = name.stem.encode()[:-excess].decode(errors="ignore") or name.stem[0]
        name = name._replace(stem=kept)
    return check_socket_path(socket_dir / str(name), advice)


def _stem_of(resource: str) -> str:
    return resource.replace("/", "-", 1)


def default_state_dir(socket_dir: Path) -> Path:
    """Return the node's state directory where none was given.

    Beside the plugin directory, never in it: that one gets cleaned. So that commands which share a
    `--socket-dir` find each other without a second option.
    """
    if socket_dir == DEVICE_PLUGIN_DIR:
        return STATE_DIR
    return socket_dir.with_name(socket_dir.name + ".state")
