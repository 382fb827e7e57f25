"""Messages of the device plugin API ⇄ our values, as bytes on one side and values on the other.

One table: each message with its fields, and the value made of them. The numbers are those of
`proto/`. `message_json` makes JSON by the same table.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from kubedevices.allocation import (
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
from kubedevices.device import Device, DeviceSpec, Mount, ReportedDevice
from kubedevices.kubelet_api.protobuf import Field, Message, Plain, block, carried, carrying, text

EMPTY = b""
"""Empty, InfoRequest and their like: a message without fields is no bytes at all."""


# ---------------------------------------------------------------- the table


def _carrying(kind: Callable[..., Plain]) -> Callable[..., Plain]:
    """Return what makes a `kind` that keeps unknown fields although it has no place for them."""
    return lambda *parts: carrying(kind(*parts[:-1]), parts[-1])


_NODE: Message[int] = Message(
    "v1beta1.NUMANode", carrying, Field(1, "", "int64", "ID"), keeps_unknown=True
)


class _Nodes(tuple[int, ...]):
    """NUMA nodes of a TopologyInfo with unknown fields; `sent` is all of it."""

    unknown = sent = b""


def _nodes(nodes: tuple[int, ...], unknown: bytes) -> tuple[int, ...]:
    if not unknown and not any(map(carried, nodes)):
        return nodes
    found = _Nodes(nodes)
    found.unknown = unknown
    found.sent = TOPOLOGY.to_wire(found)
    return found


TOPOLOGY: Message[tuple[int, ...]] = Message(
    "v1beta1.TopologyInfo", _nodes, Field(1, "", "messages", "nodes", _NODE), keeps_unknown=True
)
DEVICE = Message(
    "v1beta1.Device",
    _carrying(ReportedDevice),
    Field(1, "id", "text", "ID"),
    Field(2, "health", "text", "health"),
    Field(3, "numa_nodes", "optional", "topology", TOPOLOGY),
    keeps_unknown=True,
)
DEVICE_LIST: Message[tuple[ReportedDevice, ...]] = Message(
    "v1beta1.ListAndWatchResponse", tuple, Field(1, "", "messages", "devices", DEVICE)
)
OPTIONS = Message(
    "v1beta1.DevicePluginOptions",
    PluginOptions,
    Field(1, "pre_start_required", "flag", "preStartRequired"),
    Field(2, "get_preferred_allocation_available", "flag", "getPreferredAllocationAvailable"),
    keeps_unknown=True,
)
REGISTER_REQUEST = Message(
    "v1beta1.RegisterRequest",
    RegisterRequest,
    Field(1, "version", "text"),
    Field(2, "endpoint", "text"),
    Field(3, "resource_name", "text"),
    Field(4, "options", "message", of=OPTIONS),
)
_CONTAINER_REQUEST = Message(
    "v1beta1.ContainerAllocateRequest",
    ContainerAllocateRequest,
    Field(1, "device_ids", "texts", "devicesIds"),
    keeps_unknown=True,
)
ALLOCATE_REQUEST = Message(
    "v1beta1.AllocateRequest",
    AllocateRequest,
    Field(1, "containers", "messages", "containerRequests", _CONTAINER_REQUEST),
    keeps_unknown=True,
)
_MOUNT = Message(
    "v1beta1.Mount",
    _carrying(Mount),
    Field(2, "host_path", "text", "hostPath"),
    Field(1, "container_path", "text", "containerPath"),
    Field(3, "read_only", "flag", "readOnly"),
    keeps_unknown=True,
)
_SPEC = Message(
    "v1beta1.DeviceSpec",
    _carrying(DeviceSpec),
    Field(2, "host_path", "text", "hostPath"),
    Field(1, "container_path", "text", "containerPath"),
    Field(3, "permissions", "text", "permissions"),
    keeps_unknown=True,
)
_CDI_DEVICE = Message(
    "v1beta1.CDIDevice", carrying, Field(1, "", "text", "name"), keeps_unknown=True
)
CONTAINER_RESPONSE = Message(
    "v1beta1.ContainerAllocateResponse",
    lambda env, mounts, devices, annotations, cdi, unknown: ContainerAllocateResponse(
        env, list(mounts), list(devices), annotations, list(cdi), unknown
    ),
    Field(1, "env", "map", "envs"),
    Field(2, "mounts", "messages", "mounts", _MOUNT),
    Field(3, "devices", "messages", "devices", _SPEC),
    Field(4, "annotations", "map", "annotations"),
    Field(5, "cdi_devices", "messages", "cdiDevices", _CDI_DEVICE),
    keeps_unknown=True,
)
"""Alone it is `AllocResp` of a kubelet's checkpoint."""

ALLOCATE_RESPONSE = Message(
    "v1beta1.AllocateResponse",
    lambda containers, unknown: AllocateResponse(list(containers), unknown),
    Field(1, "containers", "messages", "containerResponses", CONTAINER_RESPONSE),
    keeps_unknown=True,
)
_CONTAINER_PREFERRED = Message(
    "v1beta1.ContainerPreferredAllocationRequest",
    ContainerPreferredRequest,
    Field(1, "available", "texts", "availableDeviceIDs"),
    Field(2, "must_include", "texts", "mustIncludeDeviceIDs"),
    Field(3, "size", "int32", "allocationSize"),
    keeps_unknown=True,
)
PREFERRED_REQUEST = Message(
    "v1beta1.PreferredAllocationRequest",
    PreferredAllocationRequest,
    Field(1, "containers", "messages", "containerRequests", _CONTAINER_PREFERRED),
    keeps_unknown=True,
)
_DEVICE_IDS = Message(
    "v1beta1.ContainerPreferredAllocationResponse",
    carrying,
    Field(1, "", "texts", "deviceIDs"),
    keeps_unknown=True,
)
PREFERRED_RESPONSE = Message(
    "v1beta1.PreferredAllocationResponse",
    PreferredAllocationResponse,
    Field(1, "containers", "messages", "containerResponses", _DEVICE_IDS),
    keeps_unknown=True,
)
PRE_START_REQUEST = Message(
    "v1beta1.PreStartContainerRequest",
    PreStartContainerRequest,
    Field(1, "device_ids", "texts", "devicesIds"),
    keeps_unknown=True,
)
PRE_START_RESPONSE = Message(
    "v1beta1.PreStartContainerResponse", PreStartContainerResponse, keeps_unknown=True
)
PLUGIN_INFO = Message(
    "pluginregistration.PluginInfo",
    PluginInfo,
    Field(1, "type", "text"),
    Field(2, "name", "text"),
    Field(3, "endpoint", "text"),
    Field(4, "supported_versions", "texts"),
)


class RegistrationStatus(NamedTuple):
    """Whether a registration went well, and the error if not."""

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
    """Return `device` as one ready entry of a list: field tag, length and message.

    Encoded once per device and kept by the caller: a list of any size is a join of these
    (`device_list_to_wire`). No topology is sent without `numa_nodes`.
    """
    device_id = device.id.encode()
    nodes = tuple(numa_nodes) or None
    if device.unknown or device.topology:
        topology = block(3, device.topology) if device.topology else _topology(nodes)
        return _with_unknown(device_id, device.health, topology, device.unknown)
    before, after = _around_an_id(len(device_id), device.health, nodes)
    return before + device_id + after


def reported_to_wire(device: ReportedDevice) -> bytes:
    """Return one list entry for exactly what `device` says, however odd; for tests and probes."""
    device_id = device.id.encode()
    nodes = device.numa_nodes or ()
    if carried(device) or carried(nodes) or any(map(carried, nodes)):
        topology = _topology(device.numa_nodes)
        return _with_unknown(device_id, device.health, topology, carried(device))
    before, after = _around_an_id(len(device_id), device.health, device.numa_nodes)
    return before + device_id + after


def _with_unknown(device_id: bytes, health: str, topology: bytes, unknown: bytes) -> bytes:
    known = (block(1, device_id) if device_id else b"") + text(2, health)
    return block(1, known + topology + unknown)


@lru_cache(maxsize=1024)
def _around_an_id(
    length: int, health: str, numa_nodes: tuple[int, ...] | None
) -> tuple[bytes, bytes]:
    """Return what entries have in common whose IDs have so many bytes: what is around the ID."""
    after = text(2, health) + _topology(numa_nodes)
    device_id = block(1, bytes(length)) if length else b""
    entry = block(1, device_id + after)
    return entry[: len(entry) - len(after) - length], after


def _topology(numa_nodes: tuple[int, ...] | None) -> bytes:
    """Return the field for a TopologyInfo; nothing for None, which is not the same as no nodes."""
    return b"" if numa_nodes is None else block(3, TOPOLOGY.to_wire(numa_nodes))


def device_list_to_wire(entries: Iterable[bytes]) -> bytes:
    """Return the ListAndWatchResponse of encoded entries."""
    return b"".join(entries)
