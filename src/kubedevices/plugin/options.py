"""The options that a plugin's author may set besides the scanner and the domain, with checks."""

import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, TypedDict, get_args

from kubedevices.errors import UsageError
from kubedevices.plugin.allocate_response import EnvMerge, Inject
from kubedevices.plugin.device_list import MAX_LIST_SIZE
from kubedevices.plugin.timing import HookTimeouts, Timing
from kubedevices.values.socket_paths import (
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
PreferredErrors: TypeAlias = Literal["ignore", "fail"]
CdiErrors: TypeAlias = Literal["fail", "log"]
WrapLists: TypeAlias = Callable[[str, AsyncIterator[bytes]], AsyncGenerator[bytes, None]]
"""Resource, encoded lists -> the lists that one stream sends; the stream ends with them."""

_CHOICES = {
    "registration": RegistrationMode,
    "on_server_error": OnServerError,
    "preferred_errors": PreferredErrors,
    "env_merge": EnvMerge,
    "inject": Inject,
    "cdi_errors": CdiErrors,
}
_TIMEOUTS = HookTimeouts()
CDI_DIR = Path("/var/run/cdi")


class RunnerOptions(TypedDict, total=False):
    """Keyword arguments of `run`, `serve` and `PluginRunner`; all are optional.

    socket_dir: where the plugin's sockets and kubelet.sock are (default: the kubelet's directory).
    registration: `register` (default): call Register at kubelet.sock; `watch`: the kubelet finds
        the socket in its plugin registry directory (which is then the default of socket_dir);
        `none`: only serve.
    host_plugin_dir: with `watch`, the path of socket_dir as the kubelet sees it. With it a plugin
        in a container names its socket; without it the kubelet uses the path that it found.
    sysfs_root, dev_root: where to look up NUMA nodes (default: /sys and /dev).
    on_server_error: `exit` (default): an error of one device type ends the plugin; `isolate`: the
        error is logged, the other types go on, and this type is served again after a pause.
    preferred_errors: `ignore` (default) answers without preference when the hook raises; `fail`
        sends the error, and a kubelet then refuses the pod.
    allocate_timeout, preferred_timeout, pre_start_timeout: seconds that a hook may take (default:
        10, 2, 25); a late hook fails its call like an error. `math.inf` means no limit.
    env_merge: if two devices of one container set a variable to different values: `last` (default)
        takes the value of the last device, `join` joins all by commas, `error` fails the call.
    strict_allocate: refuse an Allocate call if two devices put different host paths at one path of
        the container (default: use the first and log it).
    min_update_interval: least seconds between two lists on one stream; the stream then sends only
        the newest list.
    max_list_size: bytes of the largest list to send (default: 4 MiB, the limit of a kubelet).
    inject: how a container gets devices that have both device files and `cdi`: `both` (default),
        `nodes` (only device files), or `cdi` (only by CDI; devices without `cdi` become CDI
        devices, too).
    cdi_dir: where CDI files are written (default: /var/run/cdi).
    cdi_errors: if a CDI file cannot be written: `fail` (default) fails the Allocate call, `log`
        logs the error and answers without the CDI device.
    cdi_annotations: name CDI devices in `cdi.k8s.io/` annotations too, for kubelets before 1.29.
    socket_name: device type → name of its socket file (default: from domain and type). It is the
        whole name only with registration `none`. A plugin that registers adds the resource and the
        instance: `NAME.<hash of the resource>.<instance>.sock`.
    relay: the answers come from another plugin, so answers to Allocate and GetPreferredAllocation
        are passed on without a check (with preferred_errors=`fail` also errors).
    on_allocated: called with the resource and the seconds that an Allocate call took.
    wrap_lists: resource and its lists → the lists that a stream sends, to simulate faults.
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
    """The values of `RunnerOptions` with defaults, checked."""

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
        """Check the values; raises `UsageError`."""
        for name, choices in _CHOICES.items():
            check_choice(name, getattr(self, name), get_args(choices))
        if self.socket_dir is not None:  # absolute, so that a later chdir changes nothing
            object.__setattr__(self, "socket_dir", Path(self.socket_dir).absolute())
        if self.host_plugin_dir is not None and self.registration != "watch":
            raise UsageError("host_plugin_dir needs registration='watch'")
        object.__setattr__(self, "cdi_dir", Path(self.cdi_dir).absolute())
        check_positive(self, "allocate_timeout", "preferred_timeout", "pre_start_timeout")
        if self.min_update_interval < 0:
            problem = f"must not be negative: {self.min_update_interval}"
            raise UsageError(f"min_update_interval {problem}")
        check_positive(self, "max_list_size")

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
        """The kubelet.sock to register at; None if the plugin does not call Register."""
        if self.registration != "register":
            return None
        return self.directory / KUBELET_SOCKET_NAME

    def endpoint_of(self, socket: Path) -> Path | None:
        """Return `socket` as the kubelet sees it; None without `host_plugin_dir`."""
        return None if self.host_plugin_dir is None else self.host_plugin_dir / socket.name

    def socket_of(self, resource: str, device_type: str) -> Path:
        """Return the socket of `resource`. Raises `SocketPathTooLong`, `UsageError`."""
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
    """Return a name that no other instance on this host has; a later start sorts behind."""
    started = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000  # the same in every container
    return instance_of(started + next(_instances))


def check_choice(name: str, value: str, allowed: Collection[str]) -> None:
    """Raise `UsageError` if the value of an option is not `allowed`."""
    if value not in allowed:
        raise UsageError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")


def check_positive(settings: object, *names: str) -> None:
    """Raise `UsageError` if one of these options is not above 0."""
    for name in names:
        if not getattr(settings, name) > 0:
            raise UsageError(f"{name} must be positive: {getattr(settings, name)}")
