"""Messages of the device plugin API as bytes ⇄ Python values.

The module is one table: each message with its fields and the class of its value. The field numbers
are from `proto/`. `message_json` uses the same table for JSON.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple, TypeVar

from kubedevices.kubelet_api.protobuf import (
    Field,
    Message,
    Plain,
    block,
    text,
    unknown_of,
    with_unknown,
)
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    ContainerAllocateResponse,
    ContainerPreferredRequest,
    PluginInfo,
    PluginOptions,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
    RegisterRequest,
)
from kubedevices.values.device import Device, DeviceSpec, Mount, ReportedDevice

T = TypeVar("T")

EMPTY = b""
"""Empty, InfoRequest and other messages without fields are encoded as zero bytes."""


# ---------------------------------------------------------------- the table


def _keeping_unknown(kind: Callable[..., Plain]) -> Callable[..., Plain]:
    """Return a constructor of `kind` that adds the unknown fields, see `with_unknown`."""
    return lambda *parts: with_unknown(kind(*parts[:-1]), parts[-1])


def _message(name: str, make: Callable[..., T], *fields: Field) -> Message[T]:
    """Return a message of the API that keeps unknown fields."""
    return Message(f"v1beta1.{name}", make, *fields, keeps_unknown=True)


_NODE: Message[int] = _message("NUMANode", with_unknown, Field(1, "", "int64", "ID"))


class _Nodes(tuple[int, ...]):
    """NUMA nodes of a TopologyInfo with unknown fields; `sent` is the whole encoded message."""

    unknown = sent = b""


def _nodes(nodes: tuple[int, ...], unknown: bytes) -> tuple[int, ...]:
    if not unknown and not any(map(unknown_of, nodes)):
        return nodes
    found = _Nodes(nodes)
    found.unknown = unknown
    found.sent = TOPOLOGY.to_wire(found)
    return found


_HOST_PATH = Field(2, "host_path", "text", "hostPath")
_CONTAINER_PATH = Field(1, "container_path", "text", "containerPath")
_DEVICES_IDS = Field(1, "device_ids", "texts", "devicesIds")

TOPOLOGY: Message[tuple[int, ...]] = _message(
    "TopologyInfo", _nodes, Field(1, "", "messages", "nodes", _NODE)
)
DEVICE = _message(
    "Device",
    _keeping_unknown(ReportedDevice),
    Field(1, "id", "text", "ID"),
    Field(2, "health", "text", "health"),
    Field(3, "numa_nodes", "optional", "topology", TOPOLOGY),
)
DEVICE_LIST: Message[tuple[ReportedDevice, ...]] = Message(
    "v1beta1.ListAndWatchResponse", tuple, Field(1, "", "messages", "devices", DEVICE)
)
OPTIONS = _message(
    "DevicePluginOptions",
    PluginOptions,
    Field(1, "pre_start_required", "flag", "preStartRequired"),
    Field(2, "get_preferred_allocation_available", "flag", "getPreferredAllocationAvailable"),
)
REGISTER_REQUEST = Message(
    "v1beta1.RegisterRequest",
    RegisterRequest,
    Field(1, "version", "text"),
    Field(2, "endpoint", "text"),
    Field(3, "resource_name", "text"),
    Field(4, "options", "message", of=OPTIONS),
)
_CONTAINER_REQUEST = _message("ContainerAllocateRequest", ContainerAllocateRequest, _DEVICES_IDS)
ALLOCATE_REQUEST = _message(
    "AllocateRequest",
    AllocateRequest,
    Field(1, "containers", "messages", "containerRequests", _CONTAINER_REQUEST),
)
_READ_ONLY = Field(3, "read_only", "flag", "readOnly")
_MOUNT = _message("Mount", _keeping_unknown(Mount), _HOST_PATH, _CONTAINER_PATH, _READ_ONLY)
_PERMISSIONS = Field(3, "permissions", "text", "permissions")
_SPEC = _message(
    "DeviceSpec", _keeping_unknown(DeviceSpec), _HOST_PATH, _CONTAINER_PATH, _PERMISSIONS
)
_CDI_DEVICE = _message("CDIDevice", with_unknown, Field(1, "", "text", "name"))
CONTAINER_RESPONSE = _message(
    "ContainerAllocateResponse",
    lambda env, mounts, devices, annotations, cdi, unknown: ContainerAllocateResponse(
        env, list(mounts), list(devices), annotations, list(cdi), unknown
    ),
    Field(1, "env", "map", "envs"),
    Field(2, "mounts", "messages", "mounts", _MOUNT),
    Field(3, "devices", "messages", "devices", _SPEC),
    Field(4, "annotations", "map", "annotations"),
    Field(5, "cdi_devices", "messages", "cdiDevices", _CDI_DEVICE),
)
"""The kubelet's checkpoint stores this message as `AllocResp`."""

ALLOCATE_RESPONSE = _message(
    "AllocateResponse",
    lambda containers, unknown: AllocateResponse(list(containers), unknown),
    Field(1, "containers", "messages", "containerResponses", CONTAINER_RESPONSE),
)
_CONTAINER_PREFERRED = _message(
    "ContainerPreferredAllocationRequest",
    ContainerPreferredRequest,
    Field(1, "available", "texts", "availableDeviceIDs"),
    Field(2, "must_include", "texts", "mustIncludeDeviceIDs"),
    Field(3, "size", "int32", "allocationSize"),
)
PREFERRED_REQUEST = _message(
    "PreferredAllocationRequest",
    PreferredAllocationRequest,
    Field(1, "containers", "messages", "containerRequests", _CONTAINER_PREFERRED),
)
_PREFERRED_IDS = _message(
    "ContainerPreferredAllocationResponse", with_unknown, Field(1, "", "texts", "deviceIDs")
)
PREFERRED_RESPONSE = _message(
    "PreferredAllocationResponse",
    PreferredAllocationResponse,
    Field(1, "containers", "messages", "containerResponses", _PREFERRED_IDS),
)
PRE_START_REQUEST = _message("PreStartContainerRequest", PreStartContainerRequest, _DEVICES_IDS)
PRE_START_RESPONSE = _message("PreStartContainerResponse", PreStartContainerResponse)
PLUGIN_INFO = Message(
    "pluginregistration.PluginInfo",
    PluginInfo,
    Field(1, "type", "text"),
    Field(2, "name", "text"),
    Field(3, "endpoint", "text"),
    Field(4, "supported_versions", "texts"),
)


class RegistrationStatus(NamedTuple):
    """Whether a registration succeeded, and the error if not."""

    is_registered: bool
    error: str = ""


REGISTRATION_STATUS = Message(
    "pluginregistration.RegistrationStatus",
    RegistrationStatus,
    Field(1, "is_registered", "flag"),
    Field(2, "error", "text"),
)


# ---------------------------------------------------------------- device lists


def device_to_wire(device: Device, numa_nodes: Iterable[int] = ()) -> bytes:
    """Return `device` as one encoded entry of a list: field tag, length and message.

    The caller encodes each device once and stores the entry: a list of any size is a join of
    entries (`device_list_to_wire`). Without `numa_nodes` the entry has no topology.
    """
    device_id = device.id.encode()
    nodes = tuple(numa_nodes) or None
    if device.unknown or device.topology:
        topology = block(3, device.topology) if device.topology else _topology(nodes)
        return _with_unknown(device_id, device.health, topology, device.unknown)
    before, after = _around_an_id(len(device_id), device.health, nodes)
    return before + device_id + after


def reported_to_wire(device: ReportedDevice) -> bytes:
    """Return a list entry with exactly the fields of `device`, also invalid ones; for probes."""
    device_id = device.id.encode()
    nodes = device.numa_nodes or ()
    if unknown_of(device) or unknown_of(nodes) or any(map(unknown_of, nodes)):
        topology = _topology(device.numa_nodes)
        return _with_unknown(device_id, device.health, topology, unknown_of(device))
    before, after = _around_an_id(len(device_id), device.health, device.numa_nodes)
    return before + device_id + after


def _with_unknown(device_id: bytes, health: str, topology: bytes, unknown: bytes) -> bytes:
    known = (block(1, device_id) if device_id else b"") + text(2, health)
    return block(1, known + topology + unknown)


@lru_cache(maxsize=1024)
def _around_an_id(
    length: int, health: str, numa_nodes: tuple[int, ...] | None
) -> tuple[bytes, bytes]:
    """Return the bytes before and after the device ID in an entry, for IDs of `length` bytes.

    Cached: most devices of a list differ only in their IDs.
    """
    after = text(2, health) + _topology(numa_nodes)
    device_id = block(1, bytes(length)) if length else b""
    entry = block(1, device_id + after)
    return entry[: len(entry) - len(after) - length], after


def _topology(numa_nodes: tuple[int, ...] | None) -> bytes:
    """Return the encoded field `topology`; no bytes for None, which differs from no nodes."""
    return b"" if numa_nodes is None else block(3, TOPOLOGY.to_wire(numa_nodes))


def device_list_to_wire(entries: Iterable[bytes]) -> bytes:
    """Return the ListAndWatchResponse that consists of encoded entries."""
    return b"".join(entries)
