"""The paths of kubelet.sock, plugin sockets and our own files. Only names; opens no socket."""

import binascii
import re
from pathlib import Path
from typing import NamedTuple, Self

from kubedevices.errors import SocketPathTooLong

DEVICE_PLUGIN_DIR = Path("/var/lib/kubelet/device-plugins")
"""The same in every kubelet, even with another `--root-dir`."""

PLUGIN_REGISTRY_DIR = Path("/var/lib/kubelet/plugins_registry")
POD_RESOURCES = "pod-resources/kubelet.sock"
"""The kubelet's podresources socket, below the kubelet's root directory."""

POD_RESOURCES_SOCKET = DEVICE_PLUGIN_DIR.parent / POD_RESOURCES

STATE_DIR = Path("/var/lib/kubedevices")
"""Default of `--state-dir`: the node's ledger and its control socket; mode 0700."""

INSIDE_DIR = STATE_DIR / "plugins"
"""Where the plugins behind a proxy register."""

KUBELET_SOCKET_NAME = "kubelet.sock"
CHECKPOINT_NAME = "kubelet_internal_checkpoint"
CONTROL_SOCKET_NAME = "control.sock"
PROXY_SOCKET_NAME = "proxy.sock"

SHORTER_SOCKET_DIR = "choose a shorter --socket-dir"
SHORTER_STATE_DIR = "choose a shorter --state-dir"
SHORTER_SOCKET_NAME = f"{SHORTER_SOCKET_DIR}, or a shorter name for the socket"
"""Advice for a path that is too long, by the option that sets it."""


def check_socket_path(path: Path, advice: str = "choose a shorter path") -> Path:
    """Return `path`; raise `SocketPathTooLong`, with `advice`, when Linux could not bind it."""
    if len(bytes(path)) > SocketPathTooLong.limit:
        raise SocketPathTooLong(str(path), advice)
    return path


def plugin_socket(socket_dir: Path, resource: str) -> Path:
    """Return the path of a plugin's socket: `<domain>-<device type>.sock`.

    If this is too long, a hash replaces the device type. Raises `SocketPathTooLong` if the shorter
    path is too long, too.
    """
    path = socket_dir / f"{_stem_of(resource)}.sock"
    if len(bytes(path)) > SocketPathTooLong.limit:
        import hashlib  # noqa: PLC0415 - needs memory, and is rarely needed

        digest = hashlib.sha1(resource.encode(), usedforsecurity=False).hexdigest()[:10]
        path = socket_dir / f"{resource.partition('/')[0]}-{digest}.sock"
    return check_socket_path(path, SHORTER_SOCKET_DIR)


class InstanceSocket(NamedTuple):
    """The name of a plugin's socket: `<stem>.<mark>.<instance>.sock`.

    Each instance of a plugin has its own socket, so that a new instance can register while the old
    instance still serves. The `mark` is a checksum of the resource: instances with any stem find
    each other by it. On one host, an `instance` that started later sorts behind.
    """

    stem: str
    mark: str
    instance: str

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return the parts of a file name; None for a name of another form."""
        found = _INSTANCE_SOCKET.fullmatch(name)
        return cls(*found.groups()) if found else None

    def __str__(self) -> str:
        return f"{self.stem}.{self.mark}.{self.instance}.sock"


_INSTANCE_SOCKET = re.compile(r"([^/\0]+)\.([0-9a-f]{8})\.([0-9a-f]{13})\.sock")


def is_socket_of(name: str, resource: str) -> bool:
    """Whether a file name is that of the socket of an instance of our plugin for `resource`."""
    found = InstanceSocket.parse(name)
    return found is not None and found.mark == _mark(resource)


def _mark(name: str) -> str:
    return f"{binascii.crc32(name.encode()):08x}"


def instance_of(microseconds: int) -> str:
    """Return the name of the instance that started so many microseconds after the host."""
    return f"{microseconds:013x}"


def instance_socket(
    socket_dir: Path,
    resource: str,
    instance: str,
    stem: str = "",
    advice: str = SHORTER_SOCKET_DIR,
) -> Path:
    """Return the socket of one instance; `stem` is `<domain>-<device type>` by default.

    A stem that is too long is cut. Raises `SocketPathTooLong` if not even one character fits.
    """
    name = InstanceSocket(stem or _stem_of(resource), _mark(resource), instance)
    excess = len(bytes(socket_dir / str(name))) - SocketPathTooLong.limit
    if excess > 0:
        kept = name.stem.encode()[:-excess].decode(errors="ignore") or name.stem[0]
        name = name._replace(stem=kept)
    return check_socket_path(socket_dir / str(name), advice)


def _stem_of(resource: str) -> str:
    return resource.replace("/", "-", 1)


def default_state_dir(socket_dir: Path) -> Path:
    """Return the default of `--state-dir` for a `--socket-dir`.

    It depends on `--socket-dir`, so that commands with the same `--socket-dir` find each other. It
    is beside the plugin directory, not in it, because a kubelet empties the plugin directory.
    """
    if socket_dir == DEVICE_PLUGIN_DIR:
        return STATE_DIR
    return socket_dir.with_name(socket_dir.name + ".state")
