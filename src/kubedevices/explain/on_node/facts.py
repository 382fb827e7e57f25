"""Facts about a host, as values: `look_…` and `ask` gather them, `judge_…` judges them.

Everywhere `None` means that the fact is not known; an empty value means that nothing is there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kubedevices.values.allocation import ContainerAllocateResponse, PluginInfo
from kubedevices.values.device import Health, ReportedDevice
from kubedevices.values.proxied_plugin import ProxiedPlugin

SANDBOX = "POD"
"""The kubelet's name for the sandbox of a pod. No container can have this name."""


UNSEEN = "a process that cannot be seen"
"""The text for a listener whose process is not known."""


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """A running process: its number and its name in the kernel.

    `pod` is `namespace/name`, or the pod's uid if the name is not known; empty outside of pods.
    `container` is the name of the container in the pod, `POD` for the sandbox, empty if no kubelet
    created the container. `state` is the kernel's letter, such as S (sleeps), T (stopped by a
    signal or debugger), D (waits for a disk); empty if the state was not read.
    """

    pid: int
    name: str
    pod: str = ""
    container: str = ""
    state: str = ""

    def __str__(self) -> str:
        """`kubelet (pid 812)`, `widgets (pid 90 of pod kube-system/widgets-x8k2f)`."""
        return f"{self.name} (pid {self.pid}{' of pod ' * bool(self.pod)}{self.pod})"


@dataclass(frozen=True, slots=True)
class Socket:
    """A file that is, or should be, a socket on which a process listens.

    `refusal` is empty if a process accepts connections, else one of the words below or an error
    text. `connections` counts the peers of the listener, without this process; None if not all of
    them could be seen. `answer` is the plugin's answer, if the plugin was asked. `since` is the
    time when the socket was created, in seconds since 1970; 0 if that is not known.
    """

    path: Path
    refusal: str = ""
    listener: ProcessFacts | None = None
    connections: int | None = None
    since: float = 0
    answer: "PluginAnswer | None" = None

    @property
    def healthy_ids(self) -> frozenset[str]:
        """The IDs of the healthy devices in the plugin's answer; empty if it was not asked."""
        listed = (self.answer.devices if self.answer else None) or ()
        return frozenset(each.id for each in listed if each.health == Health.HEALTHY)


MISSING, NO_SOCKET, NOBODY, NO_PERMISSION = "missing", "no socket", "nobody", "no permission"


@dataclass(frozen=True, slots=True)
class PluginAnswer:
    """The answer of a plugin that was asked directly; `problem` says why there is no list."""

    devices: tuple[ReportedDevice, ...] | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class LostSocket:
    """A listening socket that no kubelet can reach.

    Its file was deleted. Or, `is_apart`: the process is in a container, where the same path is
    another directory. `connections` counts the connections that are still open, as in `Socket`.
    """

    path: Path
    listener: ProcessFacts | None = None
    connections: int | None = None
    is_apart: bool = False


@dataclass(frozen=True, slots=True)
class Directory:
    """The plugin directory; `refusal` is empty if the directory could be listed."""

    path: Path
    refusal: str = ""
    mode: int = 0
    uid: int = 0
    link_to: Path | None = None
    kubelet: Socket | None = None
    plugins: tuple[Socket, ...] = ()
    lost: tuple[LostSocket, ...] = ()
    elsewhere: tuple[Path, ...] = ()
    """Other plugin directories with a `kubelet.sock` on which a process listens."""


@dataclass(frozen=True, slots=True)
class RegistrySocket:
    """A socket in the plugin registry directory, with its answer to GetInfo.

    `socket` has the process that listens. For a driver, `service` is the socket on which a kubelet
    calls it, and `has_known_api` says whether a kubelet can use one of its versions.
    """

    path: Path
    info: PluginInfo | None = None
    problem: str = ""
    socket: Socket | None = None
    service: Socket | None = None
    has_known_api: bool = True

    @property
    def is_driver(self) -> bool:
        """Whether a DRA driver answered."""
        return self.info is not None and self.info.type == "DRAPlugin"


@dataclass(frozen=True, slots=True)
class Kubelet:
    """A kubelet of this host, as its command line and configuration files describe it."""

    process: ProcessFacts
    root_dir: Path
    topology_policy: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceState:
    """One device; `held_by` lists its holders as `namespace/pod (container)`."""

    device_id: str
    health: str
    numa_nodes: tuple[int, ...] = ()
    held_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResourceState:
    """The answer of a node or a kubelet about one resource.

    `plugin` is the state of the plugin that a kubedevices node reports: connected, starting,
    stopped, missing. A kubelet reports neither `plugin` nor `capacity`.
    """

    name: str
    devices: tuple[DeviceState, ...] = ()
    capacity: int | None = None
    allocatable: int | None = None
    plugin: str | None = None
    socket: str = ""


@dataclass(frozen=True, slots=True)
class RefusedPlugin:
    """A plugin that a kubedevices node did not accept."""

    resource: str
    socket: str
    reason: str


@dataclass(frozen=True, slots=True)
class Allocation:
    """The devices of one resource that a container holds, and the plugin's answer to Allocate.

    Both come from the checkpoint.
    """

    pod_uid: str
    container: str
    resource: str
    device_ids: tuple[str, ...]
    response: ContainerAllocateResponse


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """A claim that containers have, by the kubelet; `name` is NAMESPACE/NAME.

    `devices` are those of one `driver`. `held_by` lists containers as `namespace/pod (container)`.
    `parts` has pool, device and share of each device; the share is mostly empty.
    """

    driver: str
    name: str
    devices: tuple[str, ...]
    held_by: tuple[str, ...]
    parts: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ResourceFacts:
    """All answers about resources; `source` names who answered, empty if nobody answered.

    `registered` comes from the checkpoint: the IDs that were healthy when it was written. `unasked`
    says why a node or a kubelet could not be asked. `is_silent` means that a kubelet accepts
    connections, but did not answer within `waited` seconds. `checkpoint` is None if the file could
    not be opened. `proxied` is the answer of a proxy about the plugins behind it. `claims` are
    those of all DRA drivers, as a kubelet reports them. `device_files` has the file of each device
    of `expose`, by resource and ID.
    """

    source: str = ""
    is_kubelet: bool = False
    resources: Mapping[str, ResourceState] = field(default_factory=dict)
    refusals: tuple[RefusedPlugin, ...] = ()
    topology_policy: str | None = None
    checkpoint: Path | None = None
    checkpoint_problem: str = ""
    registered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    allocations: tuple[Allocation, ...] = ()
    unasked: tuple[str, ...] = ()
    is_silent: bool = False
    waited: float = 0
    proxied: tuple[ProxiedPlugin, ...] = ()
    claims: tuple[HeldClaim, ...] = ()
    device_files: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def known(self) -> tuple[str, ...]:
        """Every resource that any of the sources names."""
        held = {each.resource for each in self.allocations}
        return tuple(sorted({*self.resources, *self.registered, *held}))


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A device file that a container gets, as the host has it.

    `kind` is c, b or p, `directory`, `file` or `socket`; empty if the file is missing, or if it
    could not be read: then `problem` says why. `link` is its entry in `/dev/char` or `/dev/block`,
    empty if none exists. `label` is its SELinux context.
    """

    path: str
    kind: str = ""
    major: int = 0
    minor: int = 0
    mode: int = 0
    uid: int = 0
    gid: int = 0
    link: str = ""
    label: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Selinux:
    """Whether SELinux is enforced, and the boolean `container_use_devices`."""

    is_enforcing: bool = False
    use_devices: bool | None = None


@dataclass(frozen=True, slots=True)
class ContainerFile:
    """One device file as a process in a container sees it; `kind` is empty if it is missing.

    `is_main` marks the container's first process. `is_above_modes` means that the process may open
    the file whatever its mode is: it has CAP_DAC_OVERRIDE, and its user namespace maps the owner of
    the file. Else user, groups and mode decide. `cgroup` is the devices.list of cgroup version 1;
    None with version 2, whose permissions cannot be read.
    """

    process: ProcessFacts
    container_path: str
    kind: str = ""
    major: int = 0
    minor: int = 0
    mode: int = 0
    uid: int = 0
    gid: int = 0
    runs_as: int = 0
    groups: tuple[int, ...] = ()
    cgroup: str | None = None
    is_main: bool = False
    is_above_modes: bool = False
