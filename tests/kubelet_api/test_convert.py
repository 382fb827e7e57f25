"""Messages ⇄ values: everything that goes in comes out."""

import time
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from kubedevices.errors import ProtocolError
from kubedevices.kubelet_api import convert
from kubedevices.kubelet_api.device_lists import device_list_from_wire
from kubedevices.kubelet_api.protobuf import Message, block, integer, unknown_of
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
from kubedevices.values.device import Device, DeviceSpec, Health, Mount, ReportedDevice
from tests.kubelet_api.beside_protobuf import is_read_as_protobuf_reads_it
from tests.kubelet_api.protobuf_classes import message_class

text = st.text(max_size=12)
texts = st.lists(text, max_size=4).map(tuple)
NOTHING = st.just(b"")
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
        message = message_class("v1beta1.ListAndWatchResponse").FromString(data)
    except DecodeError:
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


long_text = st.integers(100, 10_000).map(lambda size: "x" * size)
device_fields = st.one_of(
    st.builds(lambda name: b"\x0a" + bytes((len(name),)) + name, st.binary(max_size=20)),
    st.sampled_from([b"\x12\x07Healthy", b"\x1a\x00", b"\x1a\x04\x0a\x02\x08\x01", b"\x12\x00"]),
    st.binary(max_size=6),
)
odd_entries = st.lists(device_fields, max_size=5).map(b"".join)


@given(st.lists(st.builds(ReportedDevice, text | long_text, text, st.none()), max_size=3))
def test_a_joined_list_equals_protobufs(devices: list[ReportedDevice]) -> None:
    """Short or long, an entry is written as protobuf writes it and read as protobuf reads it."""
    wire = convert.device_list_to_wire(convert.reported_to_wire(each) for each in devices)
    assert (
        message_class("v1beta1.ListAndWatchResponse").FromString(wire).SerializeToString() == wire
    )
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
def test_unusual_lists_are_read_as_protobuf_reads_them(data: bytes, cut: int) -> None:
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


# ---------------------------------------------------------------- every other message
#
# Each as protobuf is told it by the names of the fields: `named` returns its keyword arguments.

options = st.builds(PluginOptions, st.booleans(), st.booleans(), NOTHING)
ids = texts.map(ContainerAllocateRequest)
int32 = st.integers(-(2**31), 2**31 - 1)
preferred = st.builds(ContainerPreferredRequest, texts, texts, int32, NOTHING)


def named(value: Any) -> dict[str, Any]:
    match value:
        case PluginOptions(pre_start, prefers):
            return {"pre_start_required": pre_start, "get_preferred_allocation_available": prefers}
        case RegisterRequest(version, endpoint, resource, chosen):
            names = {"version": version, "endpoint": endpoint, "resource_name": resource}
            return {**names, "options": named(chosen)}
        case AllocateRequest(asked):
            return {"container_requests": [{"devices_ids": each.device_ids} for each in asked]}
        case AllocateResponse(answers):
            return {"container_responses": [named(each) for each in answers]}
        case ContainerAllocateResponse(env, mounts, devices, annotations, cdi_devices):
            return {
                "envs": env,
                "annotations": annotations,
                "mounts": [
                    {"host_path": m.host_path, "container_path": m.container_path,
                     "read_only": m.read_only}
                    for m in mounts
                ],
                "devices": [
                    {"host_path": d.host_path, "container_path": d.container_path,
                     "permissions": d.permissions}
                    for d in devices
                ],
                "cdi_devices": [{"name": name} for name in cdi_devices],
            }  # fmt: skip
        case PreferredAllocationRequest(wanted):
            return {"container_requests": [named(each) for each in wanted]}
        case ContainerPreferredRequest(available, must_include, size):
            sets = {"available_deviceIDs": available, "must_include_deviceIDs": must_include}
            return {**sets, "allocation_size": size}
        case PreferredAllocationResponse(chosen):
            return {"container_responses": [{"deviceIDs": each} for each in chosen]}
        case PreStartContainerRequest(device_ids):
            return {"devices_ids": device_ids}
        case PluginInfo(kind, name, endpoint, versions):
            names = {"type": kind, "name": name, "endpoint": endpoint}
            return {**names, "supported_versions": versions}
        case (bool(registered), str(error)):
            return {"plugin_registered": registered, "error": error}
    assert isinstance(value, PreStartContainerResponse), value
    return {}


MESSAGES: dict[str, tuple[st.SearchStrategy[Any], Message[Any]]] = {
    "v1beta1.DevicePluginOptions": (
        options, convert.OPTIONS,
    ),
    "v1beta1.RegisterRequest": (
        st.builds(RegisterRequest, text, text, text, options),
        convert.REGISTER_REQUEST,
    ),
    "v1beta1.AllocateRequest": (
        st.builds(AllocateRequest, st.lists(ids, max_size=3).map(tuple), NOTHING),
        convert.ALLOCATE_REQUEST,
    ),
    "v1beta1.AllocateResponse": (
        st.builds(AllocateResponse, st.lists(containers, max_size=3)),
        convert.ALLOCATE_RESPONSE,
    ),
    "v1beta1.ContainerAllocateResponse": (
        containers, convert.CONTAINER_RESPONSE,
    ),
    "v1beta1.PreferredAllocationRequest": (
        st.builds(
            PreferredAllocationRequest, st.lists(preferred, max_size=3).map(tuple), NOTHING
        ),
        convert.PREFERRED_REQUEST,
    ),
    "v1beta1.PreferredAllocationResponse": (
        st.builds(
            PreferredAllocationResponse, st.lists(texts, max_size=3).map(tuple), NOTHING
        ),
        convert.PREFERRED_RESPONSE,
    ),
    "v1beta1.PreStartContainerRequest": (
        st.builds(PreStartContainerRequest, texts, NOTHING),
        convert.PRE_START_REQUEST,
    ),
    "v1beta1.PreStartContainerResponse": (
        st.builds(PreStartContainerResponse, NOTHING),
        convert.PRE_START_RESPONSE,
    ),
    "pluginregistration.PluginInfo": (
        st.builds(PluginInfo, text, text, text, texts),
        convert.PLUGIN_INFO,
    ),
    "pluginregistration.RegistrationStatus": (
        st.builds(convert.RegistrationStatus, st.booleans(), text), convert.REGISTRATION_STATUS,
    ),
}  # fmt: skip
"""Name: values of ours, and the message."""


@pytest.mark.parametrize("name", MESSAGES)
@given(st.data())
def test_a_message_is_written_as_protobuf_writes_it(name: str, data: st.DataObject) -> None:
    """The same message, by the names of its fields, in as many bytes; and it is read back."""
    values, ours = MESSAGES[name]
    value: Any = data.draw(values)
    wire = ours.to_wire(value)
    theirs = message_class(name)(**named(value))
    assert message_class(name).FromString(wire) == theirs
    assert len(wire) == theirs.ByteSize()
    assert ours.from_wire(wire) == value


fragments = st.one_of(
    st.binary(max_size=6).map(lambda part: bytes((len(part),)) + part),
    st.sampled_from([b"\x01", b"\x00", b"\x04\x0a\x02\x0a\x00", b"\x05\x0a\x01k\x12\x00"]),
)
odd_fields = st.builds(
    lambda number, kind, rest: bytes((number << 3 | kind,)) + rest,
    st.integers(1, 6),
    st.sampled_from([2, 2, 2, 0]),
    fragments,
)


# Of a message without fields their library takes even the number 0, which no field has.
@pytest.mark.parametrize("name", [each for each in MESSAGES if "PreStartContainerResp" not in each])
@given(st.data())
def test_an_unusual_message_is_read_as_protobuf_reads_it(name: str, data: st.DataObject) -> None:
    """Repeated, merged, unordered, unknown, wrongly typed fields are read as protobuf does."""
    values, ours = MESSAGES[name]
    value: Any = data.draw(values)
    wire = b"".join(
        data.draw(st.permutations([ours.to_wire(value), *data.draw(st.lists(odd_fields))]))
    )
    is_read_as_protobuf_reads_it(name, wire)


entry_fields = st.one_of(
    st.builds(lambda number, word: block(number, word.encode()), st.integers(1, 3), text),
    st.builds(integer, st.integers(1, 3), st.integers(1, 2**64 - 1)),
    st.sampled_from(
        [
            b"\x08\x00",  # the number of the key with the type of a number
            b"\x0d\x01\x02\x03\x04",  # with the type of four bytes
            b"\x09" + bytes(8),
            b"\x0b\x0c",  # as a group
            b"\x13\x0a\x01x\x14",  # the value as a group with a field
            b"\x8a\x00\x01k",  # a tag of two bytes, where one would do
            b"\x0a\x05k",  # cut off
            b"\x0a\x01\xff",  # not UTF-8
            b"\x0c",  # an end without a begin
            b"\x00\x00",  # the field number 0
        ]
    ),
)
"""A field of a map entry; the sampled ones stand for one kind of odd entry each."""

map_entries = st.builds(
    lambda number, parts: block(number, b"".join(parts)),
    st.sampled_from([1, 4]),
    st.lists(entry_fields, max_size=4),
)


@example([b"\x0a\x02\x08\x00"])
@example([b"\x0a\x0a\x0a\x01a\x12\x01b\x1a\x02cd"])  # a field that entries do not have
@example([b"\x0a\x0c\x0a\x01a\x0a\x01b\x12\x01x\x12\x01y"])  # key and value twice
@example([block(1, block(1, b"\xff") + block(3, b""))])  # not UTF-8 in an entry that is unknown
@example([block(1, block(3, b"x") + block(1, b"a")), block(1, block(1, b"a") + block(2, b"1"))])
@given(st.lists(map_entries, max_size=4))
def test_an_unusual_map_entry_is_read_as_protobuf_reads_it(entries: list[bytes]) -> None:
    """Only an entry of a key and a value is in the map; any other is passed on as it came."""
    answer = b"".join(entries)
    is_read_as_protobuf_reads_it("v1beta1.ContainerAllocateResponse", answer)
    is_read_as_protobuf_reads_it("v1beta1.AllocateResponse", block(1, answer) + block(1, b""))


def test_an_odd_map_entry_is_passed_on_byte_for_byte() -> None:
    """Its reader decides: Go's library takes the entry, and protobuf in C does not."""
    odd = b"\x0a\x09\x12\x01b\x1a\x01c\x0a\x01a"
    answer = convert.CONTAINER_RESPONSE.from_wire(odd + b"\x0a\x05\x0a\x01k\x12\x00")
    assert answer.env == {"k": ""}
    assert convert.CONTAINER_RESPONSE.to_wire(answer) == b"\x0a\x05\x0a\x01k\x12\x00" + odd


def test_many_unknown_fields_take_linear_time() -> None:
    """A copy for each of 400,000 unknown fields would keep the event loop busy for minutes."""
    times = []
    for count in (50_000, 200_000):
        fields = b"\x78\x00" * count
        began = time.thread_time()
        assert unknown_of(convert.DEVICE.from_wire(fields)) == fields
        times.append(time.thread_time() - began)
    assert times[1] < 9 * times[0], "four times the fields take four times as long, not sixteen"


def test_register_request_without_options() -> None:
    """Missing options are both false, as in a kubelet."""
    assert convert.REGISTER_REQUEST.from_wire(b"\x0a\x01v").options == PluginOptions()


def test_equal_maps_are_equal_bytes() -> None:
    """The order of insertion does not matter."""
    one = ContainerAllocateResponse({"A": "1", "B": "2"}, annotations={"c": "3", "d": "4"})
    two = ContainerAllocateResponse({"B": "2", "A": "1"}, annotations={"d": "4", "c": "3"})
    assert convert.CONTAINER_RESPONSE.to_wire(one) == convert.CONTAINER_RESPONSE.to_wire(two)
