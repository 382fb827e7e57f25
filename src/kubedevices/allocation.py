"""What is asked of a plugin and what it answers, as values; and a container's options made of it.

Both halves and every hook of a plugin author use these; only `kubelet_api.convert` sees messages.
Requests are frozen. Responses are mutable, because a `PostAllocator` edits one in place. `unknown`
has the protobuf fields of a message that this version does not know, as they came: who passes a
message of somebody else on keeps them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from kubedevices.device import DeviceSpec, Mount

API_VERSION = "v1beta1"
"""The only version of the device plugin API that is still in use."""


class PluginOptions(NamedTuple):
    """The answer of GetDevicePluginOptions."""

    pre_start_required: bool = False
    get_preferred_allocation_available: bool = False
    unknown: bytes = b""


class RegisterRequest(NamedTuple):
    """What a plugin says when it registers; `endpoint` is a file name in the plugin directory."""

    version: str
    endpoint: str
    resource_name: str
    options: PluginOptions = PluginOptions()


class ContainerAllocateRequest(NamedTuple):
    """The devices one container is to get."""

    device_ids: tuple[str, ...]
    unknown: bytes = b""


class AllocateRequest(NamedTuple):
    """One or more containers; a kubelet always sends exactly one."""

    containers: tuple[ContainerAllocateRequest, ...]
    unknown: bytes = b""


@dataclass(slots=True)
class ContainerAllocateResponse:
    """Everything that a container gets: the content of a v1beta1 ContainerAllocateResponse."""

    env: dict[str, str] = field(default_factory=dict)
    mounts: list[Mount] = field(default_factory=list)
    devices: list[DeviceSpec] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)
    cdi_devices: list[str] = field(default_factory=list)
    unknown: bytes = b""


@dataclass(slots=True)
class AllocateResponse:
    """One answer per container of the request, in its order."""

    containers: list[ContainerAllocateResponse] = field(default_factory=list)
    unknown: bytes = b""


class ContainerPreferredRequest(NamedTuple):
    """A question: which of the `available` devices does the plugin prefer?

    `must_include` is a part of `available`; `size` includes them.
    """

    available: tuple[str, ...]
    must_include: tuple[str, ...]
    size: int
    unknown: bytes = b""


class PreferredAllocationRequest(NamedTuple):
    """One or more containers; a kubelet always sends exactly one."""

    containers: tuple[ContainerPreferredRequest, ...]
    unknown: bytes = b""


class PreferredAllocationResponse(NamedTuple):
    """Per container of the request the preferred device IDs; `()` means no preference."""

    containers: tuple[Sequence[str], ...] = ()
    unknown: bytes = b""


class PreStartContainerRequest(NamedTuple):
    """All devices of one resource that the container about to start holds."""

    device_ids: tuple[str, ...]
    unknown: bytes = b""


class PreStartContainerResponse(NamedTuple):
    """Says nothing but that the devices are ready."""

    unknown: bytes = b""


class ClaimReference(NamedTuple):
    """A ResourceClaim as a kubelet names it to a DRA driver."""

    namespace: str
    uid: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ClaimedDevices(NamedTuple):
    """Devices of one type that a request of a claim got; `parameters` is what the claim configures.

    That is an instance of `ClaimPreparer.parameters`, None where a preparer takes none.
    """

    claim: ClaimReference
    request: str
    device_type: str
    device_ids: tuple[str, ...]
    parameters: Any = None


class ClaimDevice(NamedTuple):
    """A device of a claim that is ready: for which requests, and what a container gets with it."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...] = ()
    share_id: str = ""


class ContainerOptions(NamedTuple):
    """Everything a container is started with because of its devices, merged over its resources.

    Order is that of the merge: the first resource that names a key wins. `env` and `annotations`
    are read-only mappings.
    """

    env: Mapping[str, str] = MappingProxyType({})
    devices: tuple[DeviceSpec, ...] = ()
    mounts: tuple[Mount, ...] = ()
    annotations: Mapping[str, str] = MappingProxyType({})
    cdi_devices: tuple[str, ...] = ()


class PluginInfo(NamedTuple):
    """What a socket in the plugin registry directory says it is (pluginregistration v1)."""

    type: str
    name: str
    endpoint: str
    supported_versions: tuple[str, ...]
