"""Messages of the device plugin API ⇄ our values, as bytes on one side and values on the other.

`*_to_wire` returns the bytes of one message, `*_from_wire` takes them and raises `ProtocolError`
for bytes that are no such message. The numbers are those of the fields in `proto/`.
"""

from collections.abc import Iterable
from functools import lru_cache

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
from kubedevices.wire.protobuf import (
    Fields,
    block,
    integer,
    read,
    text,
    text_map,
    texts,
)

EMPTY = b""
"""Empty, InfoRequest and their like: a message without fields is no bytes at all."""


# ---------------------------------------------------------------- device lists


def device_to_wire(device: Device, numa_nodes: Iterable[int] = ()) -> bytes:
    """Return `device` as one ready entry of a list: field tag, length and message.

    Encoded once per device and kept by the caller: a list of any size is a join of these
    (`device_list_to_wire`). No topology is sent without `numa_nodes`.
    """
    device_id = device.id.encode()
    before, after = _around_an_id(len(device_id), device.health, tuple(numa_nodes) or None)
    return before + device_id + after


def reported_to_wire(device: ReportedDevice) -> bytes:
    """Return one list entry for exactly what `device` says, however odd; for tests and probes."""
    device_id = device.id.encode()
    before, after = _around_an_id(len(device_id), device.health, device.numa_nodes)
    return before + device_id + after


@lru_cache(maxsize=1024)
def _around_an_id(
    length: int, health: str, numa_nodes: tuple[int, ...] | None
) -> tuple[bytes, bytes]:
    """Return what entries have in common whose IDs have so many bytes: what is around the ID."""
    after = text(2, health) + topology_to_wire(3, numa_nodes)
    device_id = block(1, bytes(length)) if length else b""
    entry = block(1, device_id + after)
    return entry[: len(entry) - len(after) - length], after


def topology_to_wire(number: int, numa_nodes: tuple[int, ...] | None) -> bytes:
    """Return a TopologyInfo as a field; nothing for None, which is not the same as no nodes."""
    if numa_nodes is None:
        return b""
    return block(number, b"".join([block(1, integer(1, node)) for node in numa_nodes]))


def device_list_to_wire(entries: Iterable[bytes]) -> bytes:
    """Return the ListAndWatchResponse of encoded entries."""
    return b"".join(entries)


# ---------------------------------------------------------------- registration and options


def options_to_wire(options: PluginOptions) -> bytes:
    """DevicePluginOptions."""
    return integer(1, options.pre_start_required) + integer(
        2, options.get_preferred_allocation_available
    )


def _options(message: Fields) -> PluginOptions:
    return PluginOptions(message.flag(1), message.flag(2))


def options_from_wire(data: bytes) -> PluginOptions:
    """DevicePluginOptions."""
    return read("v1beta1.DevicePluginOptions", data, _options)


def register_request_to_wire(request: RegisterRequest) -> bytes:
    """RegisterRequest."""
    return (
        text(1, request.version)
        + text(2, request.endpoint)
        + text(3, request.resource_name)
        + block(4, options_to_wire(request.options))
    )


def register_request_from_wire(data: bytes) -> RegisterRequest:
    """RegisterRequest."""

    def value(message: Fields) -> RegisterRequest:
        options = _options(message.message(4))
        return RegisterRequest(message.text(1), message.text(2), message.text(3), options)

    return read("v1beta1.RegisterRequest", data, value)


# ---------------------------------------------------------------- Allocate


def allocate_request_to_wire(request: AllocateRequest) -> bytes:
    """AllocateRequest."""
    return b"".join([block(1, texts(1, each.device_ids)) for each in request.containers])


def allocate_request_from_wire(data: bytes) -> AllocateRequest:
    """AllocateRequest."""

    def value(message: Fields) -> AllocateRequest:
        return AllocateRequest(
            tuple([ContainerAllocateRequest(each.texts(1)) for each in message.messages(1)])
        )

    return read("v1beta1.AllocateRequest", data, value)


def allocate_response_to_wire(response: AllocateResponse) -> bytes:
    """AllocateResponse; map entries in a fixed order, so equal responses are equal bytes."""
    return b"".join([block(1, container_response_to_wire(each)) for each in response.containers])


def allocate_response_from_wire(data: bytes) -> AllocateResponse:
    """AllocateResponse."""

    def value(message: Fields) -> AllocateResponse:
        return AllocateResponse([_container_response(each) for each in message.messages(1)])

    return read("v1beta1.AllocateResponse", data, value)


def container_response_to_wire(response: ContainerAllocateResponse) -> bytes:
    """ContainerAllocateResponse; alone it is `AllocResp` of a kubelet's checkpoint."""
    return b"".join(
        [
            text_map(1, response.env),
            *[block(2, _mount_to_wire(mount)) for mount in response.mounts],
            *[block(3, _spec_to_wire(spec)) for spec in response.devices],
            text_map(4, response.annotations),
            *[block(5, text(1, name)) for name in response.cdi_devices],
        ]
    )


def _mount_to_wire(mount: Mount) -> bytes:
    paths = text(1, mount.container_path) + text(2, mount.host_path)
    return paths + integer(3, mount.read_only)


def _spec_to_wire(spec: DeviceSpec) -> bytes:
    paths = text(1, spec.container_path or "") + text(2, spec.host_path)
    return paths + text(3, spec.permissions)


def container_response_from_wire(data: bytes) -> ContainerAllocateResponse:
    """ContainerAllocateResponse alone: `AllocResp` of a kubelet's checkpoint."""
    return read("v1beta1.ContainerAllocateResponse", data, _container_response)


def _container_response(message: Fields) -> ContainerAllocateResponse:
    return ContainerAllocateResponse(
        env=message.text_map(1),
        mounts=[Mount(m.text(2), m.text(1), m.flag(3)) for m in message.messages(2)],
        devices=[DeviceSpec(d.text(2), d.text(1), d.text(3)) for d in message.messages(3)],
        annotations=message.text_map(4),
        cdi_devices=[device.text(1) for device in message.messages(5)],
    )


# ---------------------------------------------------------------- the other two calls


def preferred_request_to_wire(request: PreferredAllocationRequest) -> bytes:
    """PreferredAllocationRequest."""
    return b"".join(
        [
            block(1, texts(1, each.available) + texts(2, each.must_include) + integer(3, each.size))
            for each in request.containers
        ]
    )


def preferred_request_from_wire(data: bytes) -> PreferredAllocationRequest:
    """PreferredAllocationRequest."""

    def value(message: Fields) -> PreferredAllocationRequest:
        return PreferredAllocationRequest(
            tuple(
                [
                    ContainerPreferredRequest(each.texts(1), each.texts(2), each.int32(3))
                    for each in message.messages(1)
                ]
            )
        )

    return read("v1beta1.PreferredAllocationRequest", data, value)


def preferred_response_to_wire(response: PreferredAllocationResponse) -> bytes:
    """PreferredAllocationResponse."""
    return b"".join([block(1, texts(1, device_ids)) for device_ids in response.containers])


def preferred_response_from_wire(data: bytes) -> PreferredAllocationResponse:
    """PreferredAllocationResponse."""

    def value(message: Fields) -> PreferredAllocationResponse:
        return PreferredAllocationResponse(tuple([each.texts(1) for each in message.messages(1)]))

    return read("v1beta1.PreferredAllocationResponse", data, value)


def pre_start_request_to_wire(request: PreStartContainerRequest) -> bytes:
    """PreStartContainerRequest."""
    return texts(1, request.device_ids)


def pre_start_request_from_wire(data: bytes) -> PreStartContainerRequest:
    """PreStartContainerRequest."""
    ids = read("v1beta1.PreStartContainerRequest", data, lambda message: message.texts(1))
    return PreStartContainerRequest(ids)


# ---------------------------------------------------------------- plugins found by a watcher


def plugin_info_to_wire(info: PluginInfo) -> bytes:
    """PluginInfo."""
    name = text(1, info.type) + text(2, info.name) + text(3, info.endpoint)
    return name + texts(4, info.supported_versions)


def plugin_info_from_wire(data: bytes) -> PluginInfo:
    """PluginInfo."""

    def value(message: Fields) -> PluginInfo:
        return PluginInfo(message.text(1), message.text(2), message.text(3), message.texts(4))

    return read("pluginregistration.PluginInfo", data, value)


def registration_status_to_wire(registered: bool, error: str = "") -> bytes:
    """RegistrationStatus."""
    return integer(1, registered) + text(2, error)


def registration_status_from_wire(data: bytes) -> tuple[bool, str]:
    """RegistrationStatus, as whether it went well and the error if not."""

    def value(message: Fields) -> tuple[bool, str]:
        return message.flag(1), message.text(2)

    return read("pluginregistration.RegistrationStatus", data, value)
