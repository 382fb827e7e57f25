"""Messages of the device plugin API ⇄ our values, as bytes on one side and values on the other.

`*_to_wire` returns the bytes of one message, `*_from_wire` takes them and raises `ProtocolError`
for bytes that are no such message.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

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
    RegisterRequest,
)
from kubedevices.device import Device, DeviceSpec, Mount, ReportedDevice
from kubedevices.wire.messages import message_class, parse, serialize

EMPTY = b""
"""Empty, InfoRequest and their like: a message without fields is no bytes at all."""


# ---------------------------------------------------------------- device lists
#
# The one message that comes with a hundred thousand parts: written by hand here, read in
# `device_lists`. Tests hold both to what protobuf says.


def device_to_wire(device: Device, numa_nodes: Iterable[int] = ()) -> bytes:
    """Return `device` as one ready entry of a list: field tag, length and message.

    Encoded once per device and kept by the caller: a list of any size is a join of these
    (`device_list_to_wire`). No topology is sent without `numa_nodes`.
    """
    return reported_to_wire(ReportedDevice(device.id, device.health, tuple(numa_nodes) or None))


def reported_to_wire(device: ReportedDevice) -> bytes:
    """Return one list entry for exactly what `device` says, however odd; for tests and probes."""
    device_id = device.id.encode()
    name = b"\x0a" + _length(len(device_id)) + device_id if device_id else b""
    message = name + _health_and_topology(device.health, device.numa_nodes)
    return b"\x0a" + _length(len(message)) + message


def _length(size: int) -> bytes:
    written = bytearray()
    while size > 127:
        written.append(size & 127 | 128)
        size >>= 7
    written.append(size)
    return bytes(written)


@lru_cache(maxsize=1024)
def _health_and_topology(health: str, numa_nodes: tuple[int, ...] | None) -> bytes:
    """Return what devices have in common: a message without its ID."""
    message = message_class("v1beta1.Device")(health=health)
    if numa_nodes is not None:
        message.topology.SetInParent()
        for node in numa_nodes:
            message.topology.nodes.add(ID=node)
    return serialize(message)


def device_list_to_wire(entries: Iterable[bytes]) -> bytes:
    """Return the ListAndWatchResponse of encoded entries."""
    return b"".join(entries)


# ---------------------------------------------------------------- registration and options


def _options_message(options: PluginOptions) -> Any:
    return message_class("v1beta1.DevicePluginOptions")(
        pre_start_required=options.pre_start_required,
        get_preferred_allocation_available=options.get_preferred_allocation_available,
    )


def _options_value(message: Any) -> PluginOptions:
    return PluginOptions(message.pre_start_required, message.get_preferred_allocation_available)


def options_to_wire(options: PluginOptions) -> bytes:
    """DevicePluginOptions."""
    return serialize(_options_message(options))


def options_from_wire(data: bytes) -> PluginOptions:
    """DevicePluginOptions."""
    return _options_value(parse("v1beta1.DevicePluginOptions", data))


def register_request_to_wire(request: RegisterRequest) -> bytes:
    """RegisterRequest."""
    return serialize(
        message_class("v1beta1.RegisterRequest")(
            version=request.version,
            endpoint=request.endpoint,
            resource_name=request.resource_name,
            options=_options_message(request.options),
        )
    )


def register_request_from_wire(data: bytes) -> RegisterRequest:
    """RegisterRequest."""
    message = parse("v1beta1.RegisterRequest", data)
    return RegisterRequest(
        message.version, message.endpoint, message.resource_name, _options_value(message.options)
    )


# ---------------------------------------------------------------- Allocate


def allocate_request_to_wire(request: AllocateRequest) -> bytes:
    """AllocateRequest."""
    message = message_class("v1beta1.AllocateRequest")()
    for container in request.containers:
        message.container_requests.add(devices_ids=container.device_ids)
    return serialize(message)


def allocate_request_from_wire(data: bytes) -> AllocateRequest:
    """AllocateRequest."""
    message = parse("v1beta1.AllocateRequest", data)
    return AllocateRequest(
        tuple(
            ContainerAllocateRequest(tuple(container.devices_ids))
            for container in message.container_requests
        )
    )


def _fill_container_response(message: Any, response: ContainerAllocateResponse) -> None:
    message.envs.update(response.env)
    message.annotations.update(response.annotations)
    for mount in response.mounts:
        message.mounts.add(
            host_path=mount.host_path,
            container_path=mount.container_path,
            read_only=mount.read_only,
        )
    for spec in response.devices:
        message.devices.add(
            host_path=spec.host_path,
            container_path=spec.container_path,
            permissions=spec.permissions,
        )
    for name in response.cdi_devices:
        message.cdi_devices.add(name=name)


def _container_response_value(message: Any) -> ContainerAllocateResponse:
    return ContainerAllocateResponse(
        env=dict(sorted(message.envs.items())),  # a map has no order of its own
        mounts=[Mount(m.host_path, m.container_path, m.read_only) for m in message.mounts],
        devices=[DeviceSpec(d.host_path, d.container_path, d.permissions) for d in message.devices],
        annotations=dict(sorted(message.annotations.items())),
        cdi_devices=[device.name for device in message.cdi_devices],
    )


def allocate_response_to_wire(response: AllocateResponse) -> bytes:
    """AllocateResponse; map entries in a fixed order, so equal responses are equal bytes."""
    message = message_class("v1beta1.AllocateResponse")()
    for container in response.containers:
        _fill_container_response(message.container_responses.add(), container)
    return serialize(message)


def allocate_response_from_wire(data: bytes) -> AllocateResponse:
    """AllocateResponse."""
    message = parse("v1beta1.AllocateResponse", data)
    return AllocateResponse([_container_response_value(c) for c in message.container_responses])


def container_response_to_wire(response: ContainerAllocateResponse) -> bytes:
    """ContainerAllocateResponse alone: `AllocResp` of a kubelet's checkpoint."""
    message = message_class("v1beta1.ContainerAllocateResponse")()
    _fill_container_response(message, response)
    return serialize(message)


def container_response_from_wire(data: bytes) -> ContainerAllocateResponse:
    """ContainerAllocateResponse alone: `AllocResp` of a kubelet's checkpoint."""
    return _container_response_value(parse("v1beta1.ContainerAllocateResponse", data))


# ---------------------------------------------------------------- the other two calls


def preferred_request_to_wire(request: PreferredAllocationRequest) -> bytes:
    """PreferredAllocationRequest."""
    message = message_class("v1beta1.PreferredAllocationRequest")()
    for container in request.containers:
        message.container_requests.add(
            available_deviceIDs=container.available,
            must_include_deviceIDs=container.must_include,
            allocation_size=container.size,
        )
    return serialize(message)


def preferred_request_from_wire(data: bytes) -> PreferredAllocationRequest:
    """PreferredAllocationRequest."""
    message = parse("v1beta1.PreferredAllocationRequest", data)
    return PreferredAllocationRequest(
        tuple(
            ContainerPreferredRequest(
                tuple(container.available_deviceIDs),
                tuple(container.must_include_deviceIDs),
                container.allocation_size,
            )
            for container in message.container_requests
        )
    )


def preferred_response_to_wire(response: PreferredAllocationResponse) -> bytes:
    """PreferredAllocationResponse."""
    message = message_class("v1beta1.PreferredAllocationResponse")()
    for device_ids in response.containers:
        message.container_responses.add(deviceIDs=device_ids)
    return serialize(message)


def preferred_response_from_wire(data: bytes) -> PreferredAllocationResponse:
    """PreferredAllocationResponse."""
    message = parse("v1beta1.PreferredAllocationResponse", data)
    return PreferredAllocationResponse(
        tuple(tuple(container.deviceIDs) for container in message.container_responses)
    )


def pre_start_request_to_wire(request: PreStartContainerRequest) -> bytes:
    """PreStartContainerRequest."""
    return serialize(
        message_class("v1beta1.PreStartContainerRequest")(devices_ids=request.device_ids)
    )


def pre_start_request_from_wire(data: bytes) -> PreStartContainerRequest:
    """PreStartContainerRequest."""
    message = parse("v1beta1.PreStartContainerRequest", data)
    return PreStartContainerRequest(tuple(message.devices_ids))


# ---------------------------------------------------------------- plugins found by a watcher


def plugin_info_to_wire(info: PluginInfo) -> bytes:
    """PluginInfo."""
    return serialize(
        message_class("pluginregistration.PluginInfo")(
            type=info.type,
            name=info.name,
            endpoint=info.endpoint,
            supported_versions=info.supported_versions,
        )
    )


def plugin_info_from_wire(data: bytes) -> PluginInfo:
    """PluginInfo."""
    message = parse("pluginregistration.PluginInfo", data)
    return PluginInfo(
        message.type, message.name, message.endpoint, tuple(message.supported_versions)
    )


def registration_status_to_wire(registered: bool, error: str = "") -> bytes:
    """RegistrationStatus."""
    return serialize(
        message_class("pluginregistration.RegistrationStatus")(
            plugin_registered=registered, error=error
        )
    )


def registration_status_from_wire(data: bytes) -> tuple[bool, str]:
    """RegistrationStatus, as whether it went well and the error if not."""
    message = parse("pluginregistration.RegistrationStatus", data)
    return message.plugin_registered, message.error
