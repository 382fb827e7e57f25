"""What was seen on a host, as values: gathered by `look_…` and `ask`, judged by `judge_…`.

`None` everywhere means that it could not be seen; an empty value means that nothing is there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kubedevices.allocation import ContainerAllocateResponse, PluginInfo
from kubedevices.device import ReportedDevice
from kubedevices.proxied_plugin import ProxiedPlugin

SANDBOX = "POD"
"""What a kubelet calls the process that only holds a pod together; no container may be named so."""


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """A running process: its number and the name the kernel knows it by.

    `pod` is `namespace/name`, or its uid where the name is not known; empty outside of pods.
    `container` is that of the pod, `POD` for the sandbox, empty where no kubelet made it. `state`
    is the kernel's letter for what it does, such as S (sleeps), T (stopped by a signal or
    debugger), D (waits for a disk); empty where nobody looked.
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
    """A file that is, or should be, a socket somebody listens on.

    `refusal` is empty when somebody accepts, else one of the words below. `connections` counts the
    peers of the listener without us, None where not all of them could be seen. `answer` is
    what the plugin behind it said, if it was asked. `since` is when it was bound, in seconds since
    1970; 0 when that cannot be seen.
    """

    path: Path
    refusal: str = ""
    listener: ProcessFacts | None = None
    connections: int | None = None
    since: float = 0
    answer: "PluginAnswer | None" = None


MISSING, NO_SOCKET, NOBODY, NO_PERMISSION = "missing", "no socket", "nobody", "no permission"


@dataclass(frozen=True, slots=True)
class PluginAnswer:
    """What a plugin said when it was asked directly; `problem` when it did not answer well."""

    devices: tuple[ReportedDevice, ...] | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class LostSocket:
    """A socket that a process listens on, although no kubelet can reach it any more, or ever could.

    Its file is gone. Or, `is_apart`: the process is in a container, where the same path is another
    directory. `connections` as of `Socket`: those that were made
    before.
    """

    path: Path
    listener: ProcessFacts | None = None
    connections: int | None = None
    is_apart: bool = False


@dataclass(frozen=True, slots=True)
class Directory:
    """The plugin directory; `refusal` is empty when it could be listed."""

    path: Path
    refusal: str = ""
    mode: int = 0
    uid: int = 0
    link_to: Path | None = None
    kubelet: Socket | None = None
    plugins: tuple[Socket, ...] = ()
    lost: tuple[LostSocket, ...] = ()
    elsewhere: tuple[Path, ...] = ()
    """Other plugin directories whose `kubelet.sock` somebody serves."""


@dataclass(frozen=True, slots=True)
class RegistrySocket:
    """A socket in the plugin registry directory and what it says it is."""

    path: Path
    info: PluginInfo | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Kubelet:
    """A kubelet that runs here, as far as its command line and configuration file tell."""

    process: ProcessFacts
    root_dir: Path
    topology_policy: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceState:
    """One device: what is said about it, and who holds it, as `namespace/pod (container)`."""

    device_id: str
    health: str
    numa_nodes: tuple[int, ...] = ()
    held_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResourceState:
    """What a node or kubelet says of one resource.

    `plugin` is a node's word: connected, starting, stopped, missing. A kubelet tells neither it nor
    `capacity`.
    """

    name: str
    devices: tuple[DeviceState, ...] = ()
    capacity: int | None = None
    allocatable: int | None = None
    plugin: str | None = None
    socket: str = ""


@dataclass(frozen=True, slots=True)
class RefusedPlugin:
    """A plugin that a node of ours did not accept."""

    resource: str
    socket: str
    reason: str


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a container holds of a resource and what the plugin answered, by the checkpoint."""

    pod_uid: str
    container: str
    resource: str
    device_ids: tuple[str, ...]
    response: ContainerAllocateResponse


@dataclass(frozen=True, slots=True)
class ResourceFacts:
    """What was said about resources; `source` names who said it, empty when nobody did.

    `registered` is the checkpoint's list: the IDs that were healthy when it was written.
    `unasked` says why others were not asked. `is_silent` is set when a kubelet accepts connections
    and let `waited` seconds pass without an answer. `checkpoint` is None when it could not be
    opened. `proxied` is what a proxy says of the plugins behind it.
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

    @property
    def known(self) -> tuple[str, ...]:
        """Every resource that anybody has heard of."""
        held = {each.resource for each in self.allocations}
        return tuple(sorted({*self.resources, *self.registered, *held}))


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A device file that a container is given, as the host has it.

    `kind` is c, b or p, `directory`, `file`, or empty when it is missing; with a `problem` it could
    not be looked at. `link` is its `/dev/char` entry, empty when there is none. `label` is its
    SELinux context.
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
    """Whether SELinux is enforced, and the boolean that lets containers use any device."""

    is_enforcing: bool = False
    use_devices: bool | None = None


@dataclass(frozen=True, slots=True)
class ContainerFile:
    """One device as a process in a container has it; `kind` is empty when it is not there.

    `is_main` is the container's first process. `is_above_modes` where the process may open a file
    whatever its mode (CAP_DAC_OVERRIDE, over users that its user namespace has); else user, groups
    and mode decide. `cgroup` is the devices.list of cgroup v1, None where the permissions are a
    program that cannot be read.
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


@dataclass(frozen=True, slots=True)
class ClaimHere:
    """A claim in the checkpoint of a DRA driver; `name` is NAMESPACE/NAME.

    `is_ready` says whether it is prepared, `lacks_file` that its CDI file is missing.
    """

    name: str
    devices: tuple[str, ...]
    is_ready: bool
    lacks_file: bool = False


@dataclass(frozen=True, slots=True)
class RefusedClaim:
    """A claim that a kubelet wanted prepared last and that was refused."""

    namespace: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class DriverHere:
    """A DRA driver of ours, as its files tell.

    `is_listening` says whether a registration socket is there, `has_slices` whether its devices
    may be in DRA.
    """

    name: str
    is_listening: bool
    has_slices: bool
    claims: tuple[ClaimHere, ...] = ()
    refused: tuple[RefusedClaim, ...] = ()
