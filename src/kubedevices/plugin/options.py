"""What a plugin's author may choose besides the scanner and the domain, checked in one place."""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, get_args

from kubedevices.errors import UsageError
from kubedevices.plugin.allocate_response import EnvMerge
from kubedevices.plugin.cdi_files import CDI_DIR, CdiErrors
from kubedevices.plugin.device_list import MAX_LIST_SIZE
from kubedevices.plugin.inject import Inject
from kubedevices.plugin.server import PreferredErrors, WrapLists
from kubedevices.plugin.timing import HookTimeouts, Timing
from kubedevices.socket_paths import (
    DEVICE_PLUGIN_DIR,
    KUBELET_SOCKET_NAME,
    PLUGIN_REGISTRY_DIR,
    SHORTER_SOCKET_NAME,
    check_socket_path,
    instance_of,
    instance_socket,
    plugin_socket,
)

RegistrationMode: TypeAlias = Literal["register", "watch", "none"]
OnServerError: TypeAlias = Literal["exit", "isolate"]
_TIMEOUTS = HookTimeouts()


class RunnerOptions(TypedDict, total=False):
    """Keyword arguments of `run`, `serve` and `PluginRunner`; all may be left out.

    socket_dir: where the plugin's sockets and kubelet.sock are (default: the kubelet's directory).
    registration: `register` at kubelet.sock (default); `watch`: be found by the kubelet, which
        looks into its plugin registry directory (then the default of socket_dir); `none`: only
        serve.
    host_plugin_dir: with `watch`, where the kubelet sees socket_dir, if a plugin in a container is
        to name its socket instead of letting the kubelet take the path it found.
    sysfs_root, dev_root: where to look up NUMA nodes (default: /sys and /dev).
    on_server_error: `exit` (default) ends the plugin with the error of one device type; `isolate`
        logs it, goes on with the other types and tries this one again.
    preferred_errors: `ignore` (default) answers without preference when the hook raises; `fail`
        sends the error, and a kubelet then refuses the pod.
    allocate_timeout, preferred_timeout, pre_start_timeout: seconds that a hook may take (default:
        10, 2, 25); a late one fails its call, as an error of it would. `math.inf` waits for ever.
    env_merge: two devices of one container set a variable differently: the `last` wins
        (default), `join` them by comma, or `error`.
    strict_allocate: refuse an Allocate whose devices want one place of the container for different
        things (default: keep the first, log it).
    min_update_interval: seconds between two lists on one stream; what comes in between is merged.
    max_list_size: bytes of the largest list to send (default: 4 MiB, what a kubelet receives).
    inject: how devices reach a container that have both device files and `cdi`: by `both`
        (default), only as device files (`nodes`), or only by CDI (`cdi`, which also makes CDI
        devices of those that have none).
    cdi_dir: where CDI files are written (default: /var/run/cdi).
    cdi_errors: a CDI file cannot be written: `fail` (default) the Allocate call, or `log` it and
        answer without the CDI device.
    cdi_annotations: name CDI devices in `cdi.k8s.io/` annotations too, for kubelets before 1.29.
    socket_name: device type → name of its socket file (default: from domain and type). Only with
        registration `none` it is the whole name: a plugin that registers adds what tells its
        instances apart, `NAME.<resource>.<instance>.sock`.
    relay: the answers are those of another plugin, so Allocate and GetPreferredAllocation are
        passed on without a check (and with preferred_errors=`fail` with the errors).
    on_allocated: called with the resource and the seconds that an Allocate call took.
    wrap_lists: resource and its lists → the lists that a stream gets, to simulate faults.
    timing: every waiting time, for tests.
    """

    socket_dir: Path
    registration: RegistrationMode
    host_plugin_dir: Path | None
    sysfs_root: Path
    dev_root: Path
    on_server_error: OnServerError
    preferred_errors: PreferredErrors
    allocate_timeout: float
    preferred_timeout: float
    pre_start_timeout: float
    env_merge: EnvMerge
    strict_allocate: bool
    min_update_interval: float
    max_list_size: int
    inject: Inject
    cdi_dir: Path
    cdi_errors: CdiErrors
    cdi_annotations: bool
    socket_name: Callable[[str], str] | None
    relay: bool
    on_allocated: Callable[[str, float], None] | None
    wrap_lists: WrapLists | None
    timing: Timing


@dataclass(frozen=True, eq=False, repr=False)
class Settings:
    """The same with defaults, checked."""

    socket_dir: Path | None = None
    registration: RegistrationMode = "register"
    host_plugin_dir: Path | None = None
    sysfs_root: Path = Path("/sys")
    dev_root: Path = Path("/dev")
    on_server_error: OnServerError = "exit"
    preferred_errors: PreferredErrors = "ignore"
    allocate_timeout: float = _TIMEOUTS.allocate
    preferred_timeout: float = _TIMEOUTS.preferred
    pre_start_timeout: float = _TIMEOUTS.pre_start
    env_merge: EnvMerge = "last"
    strict_allocate: bool = False
    min_update_interval: float = 0.0
    max_list_size: int = MAX_LIST_SIZE
    inject: Inject = "both"
    cdi_dir: Path = CDI_DIR
    cdi_errors: CdiErrors = "fail"
    cdi_annotations: bool = False
    socket_name: Callable[[str], str] | None = None
    relay: bool = False
    on_allocated: Callable[[str, float], None] | None = None
    wrap_lists: WrapLists | None = None
    timing: Timing = field(default_factory=Timing)
    instance: str = field(default_factory=lambda: new_instance(), init=False)  # noqa: PLW0108

    def __post_init__(self) -> None:
        """Check what type hints cannot."""
        _check_choice("registration", self.registration, RegistrationMode)
        if self.socket_dir is not None:  # independent of later chdir calls
            object.__setattr__(self, "socket_dir", Path(self.socket_dir).absolute())
        if self.host_plugin_dir is not None and self.registration != "watch":
            raise UsageError("host_plugin_dir needs registration='watch'")
        _check_choice("on_server_error", self.on_server_error, OnServerError)
        _check_choice("preferred_errors", self.preferred_errors, PreferredErrors)
        _check_choice("env_merge", self.env_merge, EnvMerge)
        _check_choice("inject", self.inject, Inject)
        _check_choice("cdi_errors", self.cdi_errors, CdiErrors)
        object.__setattr__(self, "cdi_dir", Path(self.cdi_dir).absolute())
        for name in ("allocate_timeout", "preferred_timeout", "pre_start_timeout"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name} must be positive: {getattr(self, name)}")
        if self.min_update_interval < 0:
            raise UsageError(
                f"min_update_interval must not be negative: {self.min_update_interval}"
            )
        if self.max_list_size <= 0:
            raise UsageError(f"max_list_size must be positive: {self.max_list_size}")

    @property
    def hook_timeouts(self) -> HookTimeouts:
        """How long the author's code may take."""
        return HookTimeouts(self.allocate_timeout, self.preferred_timeout, self.pre_start_timeout)

    @property
    def directory(self) -> Path:
        """Where sockets are bound: `socket_dir`, or the kubelet's directory for this mode."""
        default = PLUGIN_REGISTRY_DIR if self.registration == "watch" else DEVICE_PLUGIN_DIR
        return self.socket_dir or default

    @property
    def kubelet_socket(self) -> Path | None:
        """Where to register, if at all."""
        if self.registration != "register":
            return None
        return self.directory / KUBELET_SOCKET_NAME

    def endpoint_of(self, socket: Path) -> Path | None:
        """Return `socket` as the kubelet sees it, if that is to be said at all."""
        return None if self.host_plugin_dir is None else self.host_plugin_dir / socket.name

    def socket_of(self, resource: str, device_type: str) -> Path:
        """Return where `resource` is served. Raises `SocketPathTooLong`."""
        name = None
        if self.socket_name is not None:
            name = self.socket_name(device_type)
            if not name or "/" in name or name in {".", "..", KUBELET_SOCKET_NAME}:
                raise UsageError(f"{resource}: {name!r} cannot be the name of a socket file")
        if self.registration != "none":
            stem = "" if name is None else name.removesuffix(".sock")
            return instance_socket(self.directory, resource, self.instance, stem)
        if name is None:
            return plugin_socket(self.directory, resource)
        return check_socket_path(self.directory / name, SHORTER_SOCKET_NAME)


_instances = itertools.count()


def new_instance() -> str:
    """Return a name that no other instance on this host has and that sorts by start."""
    started = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000  # the same in every container
    return instance_of(started + next(_instances))


def _check_choice(name: str, value: str, choices: Any) -> None:
    allowed = get_args(choices)
    if value not in allowed:
        raise UsageError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")
