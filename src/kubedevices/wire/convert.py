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
    PreStartContainerResponse,
    RegisterRequest,
)
from kubedevices.device import Device, DeviceSpec, Mount, ReportedDevice
from kubedevices.wire.protobuf import (
    Fields,
    block,
    carried,
    carrying,
    integer,
    read,
    tags,
    text,
    text_map,
    texts,
)

_OPTIONS = tags(numbers=(1, 2))
_ONLY_BLOCK_1 = tags(blocks=(1,))
_RESPONSE = tags(blocks=(1, 2, 3, 4, 5))
_MOUNT = tags(blocks=(1, 2), numbers=(3,))
_SPEC = tags(blocks=(1, 2, 3))
_PREFERRED_REQUEST = tags(blocks=(1, 2), numbers=(3,))

EMPTY = b""
"""Empty, InfoRequest and their like: a message without fields is no bytes at all."""


# ---------------------------------------------------------------- device lists


def device_to_wire(device: Device, numa_nodes: Iterable[int] = ()) -> bytes:
    """Return `device` as one ready entry of a list: field tag, length and message.

    Encoded once per device and kept by the caller: a list of any size is a join of these
    (`device_list_to_wire`). No topology is sent without `numa_nodes`.
    """
    device_id = device.id.encode()
    nodes = tuple(numa_nodes) or None
    if device.unknown:
        return _with_unknown(device_id, device.health, nodes, device.unknown)
    before, after = _around_an_id(len(device_id), device.health, nodes)
    return before + device_id + after


def reported_to_wire(device: ReportedDevice) -> bytes:
    """Return one list entry for exactly what `device` says, however odd; for tests and probes."""
    device_id = device.id.encode()
    if unknown := carried(device):
        return _with_unknown(device_id, device.health, device.numa_nodes, unknown)
    before, after = _around_an_id(len(device_id), device.health, device.numa_nodes)
    return before + device_id + after


def _with_unknown(
    device_id: bytes, health: str, numa_nodes: tuple[int, ...] | None, unknown: bytes
) -> bytes:
    known = (block(1, device_id) if device_id else b"") + text(2, health)
    return block(1, known + topology_to_wire(3, numa_nodes) + unknown)


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
    prefers = integer(2, options.get_preferred_allocation_available)
    return integer(1, options.pre_start_required) + prefers + options.unknown


def _options(message: Fields) -> PluginOptions:
    return PluginOptions(message.flag(1), message.flag(2), message.unknown(_OPTIONS))


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
    asked = [block(1, texts(1, each.device_ids) + each.unknown) for each in request.containers]
    return b"".join([*asked, request.unknown])


def allocate_request_from_wire(data: bytes) -> AllocateRequest:
    """AllocateRequest."""

    def value(message: Fields) -> AllocateRequest:
        asked = [
            ContainerAllocateRequest(each.texts(1), each.unknown(_ONLY_BLOCK_1))
            for each in message.messages(1)
        ]
        return AllocateRequest(tuple(asked), message.unknown(_ONLY_BLOCK_1))

    return read("v1beta1.AllocateRequest", data, value)


def allocate_response_to_wire(response: AllocateResponse) -> bytes:
    """AllocateResponse; map entries in a fixed order, so equal responses are equal bytes."""
    answers = [block(1, container_response_to_wire(each)) for each in response.containers]
    return b"".join([*answers, response.unknown])


def allocate_response_from_wire(data: bytes) -> AllocateResponse:
    """AllocateResponse."""

    def value(message: Fields) -> AllocateResponse:
        answers = [_container_response(each) for each in message.messages(1)]
        return AllocateResponse(answers, message.unknown(_ONLY_BLOCK_1))

    return read("v1beta1.AllocateResponse", data, value)


def container_response_to_wire(response: ContainerAllocateResponse) -> bytes:
    """ContainerAllocateResponse; alone it is `AllocResp` of a kubelet's checkpoint."""
    return b"".join(
        [
            text_map(1, response.env),
            *[block(2, _mount_to_wire(mount)) for mount in response.mounts],
            *[block(3, _spec_to_wire(spec)) for spec in response.devices],
            text_map(4, response.annotations),
            *[block(5, text(1, name) + carried(name)) for name in response.cdi_devices],
            response.unknown,
        ]
    )


def _mount_to_wire(mount: Mount) -> bytes:
    paths = text(1, mount.container_path) + text(2, mount.host_path)
    return paths + integer(3, mount.read_only) + carried(mount)


def _spec_to_wire(spec: DeviceSpec) -> bytes:
    paths = text(1, spec.container_path or "") + text(2, spec.host_path)
    return paths + text(3, spec.permissions) + carried(spec)


def container_response_from_wire(data: bytes) -> ContainerAllocateResponse:
    """ContainerAllocateResponse alone: `AllocResp` of a kubelet's checkpoint."""
    return read("v1beta1.ContainerAllocateResponse", data, _container_response)


def _container_response(message: Fields) -> ContainerAllocateResponse:
    return ContainerAllocateResponse(
        env=message.text_map(1),
        mounts=[
            carrying(Mount(m.text(2), m.text(1), m.flag(3)), m.unknown(_MOUNT))
            for m in message.messages(2)
        ],
        devices=[
            carrying(DeviceSpec(d.text(2), d.text(1), d.text(3)), d.unknown(_SPEC))
            for d in message.messages(3)
        ],
        annotations=message.text_map(4),
        cdi_devices=[carrying(d.text(1), d.unknown(_ONLY_BLOCK_1)) for d in message.messages(5)],
        unknown=message.unknown(_RESPONSE),
    )


# ---------------------------------------------------------------- the other two calls


def preferred_request_to_wire(request: PreferredAllocationRequest) -> bytes:
    """PreferredAllocationRequest."""
    return b"".join([*map(_preferred_to_wire, request.containers), request.unknown])


def _preferred_to_wire(asked: ContainerPreferredRequest) -> bytes:
    ids = texts(1, asked.available) + texts(2, asked.must_include)
    return block(1, ids + integer(3, asked.size) + asked.unknown)


def preferred_request_from_wire(data: bytes) -> PreferredAllocationRequest:
    """PreferredAllocationRequest."""

    def value(message: Fields) -> PreferredAllocationRequest:
        asked = [
            ContainerPreferredRequest(
                each.texts(1), each.texts(2), each.int32(3), each.unknown(_PREFERRED_REQUEST)
            )
            for each in message.messages(1)
        ]
        return PreferredAllocationRequest(tuple(asked), message.unknown(_ONLY_BLOCK_1))

    return read("v1beta1.PreferredAllocationRequest", data, value)


def preferred_response_to_wire(response: PreferredAllocationResponse) -> bytes:
    """PreferredAllocationResponse."""
    chosen = [block(1, texts(1, ids) + carried(ids)) for ids in response.containers]
    return b"".join([*chosen, response.unknown])


def preferred_response_from_wire(data: bytes) -> PreferredAllocationResponse:
    """PreferredAllocationResponse."""

    def value(message: Fields) -> PreferredAllocationResponse:
        chosen = [
            carrying(each.texts(1), each.unknown(_ONLY_BLOCK_1)) for each in message.messages(1)
        ]
        return PreferredAllocationResponse(tuple(chosen), message.unknown(_ONLY_BLOCK_1))

    return read("v1beta1.PreferredAllocationResponse", data, value)


def pre_start_request_to_wire(request: PreStartContainerRequest) -> bytes:
    """PreStartContainerRequest."""
    return texts(1, request.device_ids) + request.unknown


def pre_start_request_from_wire(data: bytes) -> PreStartContainerRequest:
    """PreStartContainerRequest."""

    def value(message: Fields) -> PreStartContainerRequest:
        return PreStartContainerRequest(message.texts(1), message.unknown(_ONLY_BLOCK_1))

    return read("v1beta1.PreStartContainerRequest", data, value)


def pre_start_response_to_wire(response: PreStartContainerResponse) -> bytes:
    """PreStartContainerResponse."""
    return response.unknown


def pre_start_response_from_wire(data: bytes) -> PreStartContainerResponse:
    """PreStartContainerResponse."""

    def value(message: Fields) -> PreStartContainerResponse:
        return PreStartContainerResponse(message.unknown(frozenset()))

    return read("v1beta1.PreStartContainerResponse", data, value)


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
