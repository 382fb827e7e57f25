"""The requests to a plugin and its answers, as values; and the options of a container.

The plugin side, the node side and every hook of a plugin author use these values; only
`kubelet_api.convert` sees protobuf messages. Requests are frozen. Responses are mutable, because a
`PostAllocator` edits them in place. `unknown` has the encoded protobuf fields that this version
does not know: code that passes on a message of another plugin keeps them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from kubedevices.values.device import DeviceSpec, Mount

API_VERSION = "v1beta1"
"""The only version of the device plugin API in use."""


class PluginOptions(NamedTuple):
    """The answer to GetDevicePluginOptions."""

    pre_start_required: bool = False
    get_preferred_allocation_available: bool = False
    unknown: bytes = b""


class RegisterRequest(NamedTuple):
    """The Register call of a plugin; `endpoint` is a file name in the plugin directory."""

    version: str
    endpoint: str
    resource_name: str
    options: PluginOptions = PluginOptions()


class ContainerAllocateRequest(NamedTuple):
    """The devices that one container should get."""

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
    """The devices are ready; the message has no fields."""

    unknown: bytes = b""


class ClaimReference(NamedTuple):
    """A ResourceClaim as a kubelet names it to a DRA driver."""

    namespace: str
    uid: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ClaimedDevices(NamedTuple):
    """Devices of one type that a request of a claim got.

    `parameters` is the configuration of the claim: an instance of `ClaimPreparer.parameters`, or
    None if the preparer has no parameters.
    """

    claim: ClaimReference
    request: str
    device_type: str
    device_ids: tuple[str, ...]
    parameters: Any = None


class ClaimDevice(NamedTuple):
    """A prepared device of a claim: its requests, and the CDI devices that a container gets."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...] = ()
    share_id: str = ""


class ContainerOptions(NamedTuple):
    """Everything that a container gets for its devices, merged over its resources.

    The order is the order of the merge: the first resource that has a key wins. `env` and
    `annotations` are read-only mappings.
    """

    env: Mapping[str, str] = MappingProxyType({})
    devices: tuple[DeviceSpec, ...] = ()
    mounts: tuple[Mount, ...] = ()
    annotations: Mapping[str, str] = MappingProxyType({})
    cdi_devices: tuple[str, ...] = ()


class PluginInfo(NamedTuple):
    """The answer to GetInfo (pluginregistration v1), at a socket in the plugin registry."""

    type: str
    name: str
    endpoint: str
    supported_versions: tuple[str, ...]
