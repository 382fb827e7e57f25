"""What a plugin's author may choose besides the scanner and the domain, checked in one place."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, get_args

from kubedevices.errors import UsageError
from kubedevices.plugin.allocate_response import EnvMerge
from kubedevices.plugin.device_list import MAX_LIST_SIZE
from kubedevices.plugin.server import PreferredErrors
from kubedevices.plugin.timing import Timing
from kubedevices.socket_paths import (
    DEVICE_PLUGIN_DIR,
    KUBELET_SOCKET_NAME,
    check_socket_path,
    plugin_socket,
)

RegistrationMode: TypeAlias = Literal["register", "none"]
OnServerError: TypeAlias = Literal["exit", "isolate"]


class RunnerOptions(TypedDict, total=False):
    """Keyword arguments of `run`, `serve` and `PluginRunner`; all may be left out.

    socket_dir: where the plugin's sockets and kubelet.sock are (default: the kubelet's directory).
    registration: `register` at kubelet.sock (default), or `none`: only serve.
    sysfs_root, dev_root: where to look up NUMA nodes (default: /sys and /dev).
    on_server_error: `exit` (default) ends the plugin with the error of one device type; `isolate`
        logs it, goes on with the other types and tries this one again.
    preferred_errors: `ignore` (default) answers without preference when the hook raises; `fail`
        sends the error, and a kubelet then refuses the pod.
    env_merge: two devices of one container set a variable differently: the `last` wins
        (default), `join` them by comma, or `error`.
    strict_allocate: refuse an Allocate whose devices want one place of the container for different
        things (default: keep the first, log it).
    strict_topology_reference: read NUMA nodes exactly as Intel's Go packages do.
    min_update_interval: seconds between two lists on one stream; what comes in between is merged.
    max_list_size: bytes of the largest list to send (default: 4 MiB, what a kubelet receives).
    socket_name: device type → name of its socket file (default: from domain and type).
    timing: every waiting time, for tests.
    """

    socket_dir: Path
    registration: RegistrationMode
    sysfs_root: Path
    dev_root: Path
    on_server_error: OnServerError
    preferred_errors: PreferredErrors
    env_merge: EnvMerge
    strict_allocate: bool
    strict_topology_reference: bool
    min_update_interval: float
    max_list_size: int
    socket_name: Callable[[str], str] | None
    timing: Timing


@dataclass(frozen=True)
class Settings:
    """The same with defaults, checked."""

    socket_dir: Path = DEVICE_PLUGIN_DIR
    registration: RegistrationMode = "register"
    sysfs_root: Path = Path("/sys")
    dev_root: Path = Path("/dev")
    on_server_error: OnServerError = "exit"
    preferred_errors: PreferredErrors = "ignore"
    env_merge: EnvMerge = "last"
    strict_allocate: bool = False
    strict_topology_reference: bool = False
    min_update_interval: float = 0.0
    max_list_size: int = MAX_LIST_SIZE
    socket_name: Callable[[str], str] | None = None
    timing: Timing = field(default_factory=Timing)

    def __post_init__(self) -> None:
        """Check what type hints cannot; make the directory independent of later chdir calls."""
        object.__setattr__(self, "socket_dir", Path(self.socket_dir).absolute())
        _check_choice("registration", self.registration, RegistrationMode)
        _check_choice("on_server_error", self.on_server_error, OnServerError)
        _check_choice("preferred_errors", self.preferred_errors, PreferredErrors)
        _check_choice("env_merge", self.env_merge, EnvMerge)
        if self.min_update_interval < 0:
            raise UsageError(
                f"min_update_interval must not be negative: {self.min_update_interval}"
            )
        if self.max_list_size <= 0:
            raise UsageError(f"max_list_size must be positive: {self.max_list_size}")

    @property
    def kubelet_socket(self) -> Path | None:
        """Where to register, if at all."""
        if self.registration == "none":
            return None
        return self.socket_dir / KUBELET_SOCKET_NAME

    def socket_of(self, resource: str, device_type: str) -> Path:
        """Return where `resource` is served. Raises `SocketPathTooLong`."""
        if self.socket_name is None:
            return plugin_socket(self.socket_dir, resource)
        name = self.socket_name(device_type)
        if not name or "/" in name or name in {".", "..", KUBELET_SOCKET_NAME}:
            raise UsageError(f"{resource}: {name!r} cannot be the name of a socket file")
        return check_socket_path(self.socket_dir / name)


def _check_choice(name: str, value: str, choices: Any) -> None:
    allowed = get_args(choices)
    if value not in allowed:
        raise UsageError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")
