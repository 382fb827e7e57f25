"""Messages ⇄ values: everything that goes in comes out."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

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
from kubedevices.device import Device, DeviceSpec, Health, Mount, ReportedDevice
from kubedevices.errors import ProtocolError
from kubedevices.wire import convert
from kubedevices.wire.device_lists import device_list_from_wire
from kubedevices.wire.messages import parse

text = st.text(max_size=12)
texts = st.lists(text, max_size=4).map(tuple)
int64 = st.integers(-(2**63), 2**63 - 1)

reported = st.builds(ReportedDevice, text, text, st.none() | st.lists(int64, max_size=3).map(tuple))
containers = st.builds(
    ContainerAllocateResponse,
    env=st.dictionaries(text, text, max_size=3),
    mounts=st.lists(st.builds(Mount, text, text, st.booleans()), max_size=3),
    devices=st.lists(st.builds(DeviceSpec, text, text, text), max_size=3),
    annotations=st.dictionaries(text, text, max_size=3),
    cdi_devices=st.lists(text, max_size=3),
)


@given(st.lists(reported, max_size=5))
def test_device_list(devices: list[ReportedDevice]) -> None:
    """A list keeps its order, and an empty topology stays different from none."""
    wire = convert.device_list_to_wire(convert.reported_to_wire(each) for each in devices)
    assert device_list_from_wire(wire) == tuple(devices)


def by_protobuf(data: bytes) -> tuple[ReportedDevice, ...] | None:
    """Return what protobuf alone makes of a list, None for what it refuses."""
    try:
        message = parse("v1beta1.ListAndWatchResponse", data)
    except ProtocolError:
        return None
    return tuple(
        ReportedDevice(
            each.ID,
            each.health,
            tuple(node.ID for node in each.topology.nodes) if each.HasField("topology") else None,
        )
        for each in message.devices
    )


def ours(data: bytes) -> tuple[ReportedDevice, ...] | None:
    try:
        return device_list_from_wire(data)
    except ProtocolError:
        return None


long_text = st.integers(100, 20_000).map(lambda size: "x" * size)
device_fields = st.one_of(
    st.builds(lambda name: b"\x0a" + bytes((len(name),)) + name, st.binary(max_size=20)),
    st.sampled_from([b"\x12\x07Healthy", b"\x1a\x00", b"\x1a\x04\x0a\x02\x08\x01", b"\x12\x00"]),
    st.binary(max_size=6),
)
odd_entries = st.lists(device_fields, max_size=5).map(b"".join)


@given(st.lists(st.builds(ReportedDevice, text | long_text, text, st.none()), max_size=3))
def test_list_by_hand_is_protobufs(devices: list[ReportedDevice]) -> None:
    """Short or long, an entry is written as protobuf writes it and read as protobuf reads it."""
    wire = convert.device_list_to_wire(convert.reported_to_wire(each) for each in devices)
    assert parse("v1beta1.ListAndWatchResponse", wire).SerializeToString() == wire
    assert ours(wire) == by_protobuf(wire) == tuple(devices)


@example(b"\x0a\x05\x0a\x01a\x0a\x00", 200)  # a second ID, an empty one
@given(
    st.lists(
        st.one_of(
            odd_entries.map(lambda entry: b"\x0a" + bytes((len(entry),)) + entry),
            reported.map(convert.reported_to_wire),
            st.binary(max_size=5),
        ),
        max_size=4,
    ).map(b"".join),
    st.integers(0, 200),
)
def test_odd_lists_are_read_as_protobuf_reads_them(data: bytes, cut: int) -> None:
    """Fields doubled, missing, out of order, unknown or cut off make no difference."""
    for each in (data, data[:cut]):
        assert ours(each) == by_protobuf(each)


def test_device() -> None:
    """A device of a plugin is sent with its nodes, and without a topology when it has none."""
    sick = Device("b", health=Health.UNHEALTHY)
    wire = convert.device_list_to_wire(
        [convert.device_to_wire(Device("a"), (0, 1)), convert.device_to_wire(sick)]
    )
    assert device_list_from_wire(wire) == (
        ReportedDevice("a", "Healthy", (0, 1)),
        ReportedDevice("b", "Unhealthy", None),
    )


def test_device_bytes() -> None:
    """A device is exactly the bytes a Go plugin would send."""
    assert convert.device_to_wire(Device("a"), (0, 1)) == bytes.fromhex(
        "0a140a016112074865616c7468791a060a000a020801"
    )


@given(st.builds(PluginOptions, st.booleans(), st.booleans()))
def test_options(options: PluginOptions) -> None:
    """DevicePluginOptions."""
    assert convert.options_from_wire(convert.options_to_wire(options)) == options


@given(
    st.builds(
        RegisterRequest, text, text, text, st.builds(PluginOptions, st.booleans(), st.booleans())
    )
)
def test_register_request(request: RegisterRequest) -> None:
    """RegisterRequest."""
    wire = convert.register_request_to_wire(request)
    assert convert.register_request_from_wire(wire) == request


def test_register_request_without_options() -> None:
    """Options that are missing are both false, as in a kubelet."""
    assert convert.register_request_from_wire(b"\x0a\x01v").options == PluginOptions()


@given(st.builds(AllocateRequest, st.lists(texts.map(ContainerAllocateRequest)).map(tuple)))
def test_allocate_request(request: AllocateRequest) -> None:
    """AllocateRequest."""
    wire = convert.allocate_request_to_wire(request)
    assert convert.allocate_request_from_wire(wire) == request


@given(st.builds(AllocateResponse, st.lists(containers, max_size=3)))
def test_allocate_response(response: AllocateResponse) -> None:
    """AllocateResponse."""
    wire = convert.allocate_response_to_wire(response)
    assert convert.allocate_response_from_wire(wire) == response


@given(containers)
def test_container_response(response: ContainerAllocateResponse) -> None:
    """ContainerAllocateResponse alone, and the same bytes whatever the order of its maps."""
    wire = convert.container_response_to_wire(response)
    assert convert.container_response_from_wire(wire) == response
    turned = ContainerAllocateResponse(
        dict(reversed(response.env.items())),
        response.mounts,
        response.devices,
        dict(reversed(response.annotations.items())),
        response.cdi_devices,
    )
    assert convert.container_response_to_wire(turned) == wire


@given(
    st.builds(
        PreferredAllocationRequest,
        st.lists(
            st.builds(ContainerPreferredRequest, texts, texts, st.integers(-(2**31), 2**31 - 1)),
            max_size=3,
        ).map(tuple),
    )
)
def test_preferred_request(request: PreferredAllocationRequest) -> None:
    """PreferredAllocationRequest."""
    wire = convert.preferred_request_to_wire(request)
    assert convert.preferred_request_from_wire(wire) == request


@given(st.builds(PreferredAllocationResponse, st.lists(texts, max_size=3).map(tuple)))
def test_preferred_response(response: PreferredAllocationResponse) -> None:
    """PreferredAllocationResponse."""
    wire = convert.preferred_response_to_wire(response)
    assert convert.preferred_response_from_wire(wire) == response


@given(st.builds(PreStartContainerRequest, texts))
def test_pre_start_request(request: PreStartContainerRequest) -> None:
    """PreStartContainerRequest."""
    wire = convert.pre_start_request_to_wire(request)
    assert convert.pre_start_request_from_wire(wire) == request


@given(st.builds(PluginInfo, text, text, text, texts))
def test_plugin_info(info: PluginInfo) -> None:
    """PluginInfo."""
    assert convert.plugin_info_from_wire(convert.plugin_info_to_wire(info)) == info


@pytest.mark.parametrize("status", [(True, ""), (False, "no, because ü")])
def test_registration_status(status: tuple[bool, str]) -> None:
    """RegistrationStatus."""
    assert (
        convert.registration_status_from_wire(convert.registration_status_to_wire(*status))
        == status
    )
