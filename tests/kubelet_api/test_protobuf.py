"""Our codec beside protobuf itself, and the .proto files beside the kubelet's APIs."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from kubedevices.errors import ProtocolError
from kubedevices.kubelet_api import convert, protobuf
from kubedevices.kubelet_api.protobuf import Field, Message
from tests.kubelet_api.generate_descriptors import generate
from tests.kubelet_api.protobuf_classes import DESCRIPTORS, message_class

# Every message and field of the kubelet's APIs that we speak: name → number and type, with `*` for
# repeated, `?` for optional. A slip here would be read as something else by a real kubelet.
FIELDS = """
v1beta1.DevicePluginOptions: 1 pre_start_required bool, 2 get_preferred_allocation_available bool
v1beta1.RegisterRequest: 1 version string, 2 endpoint string, 3 resource_name string, \
4 options DevicePluginOptions
v1beta1.Empty:
v1beta1.ListAndWatchResponse: 1 devices *Device
v1beta1.TopologyInfo: 1 nodes *NUMANode
v1beta1.NUMANode: 1 ID int64
v1beta1.Device: 1 ID string, 2 health string, 3 topology TopologyInfo
v1beta1.PreStartContainerRequest: 1 devices_ids *string
v1beta1.PreStartContainerResponse:
v1beta1.PreferredAllocationRequest: 1 container_requests *ContainerPreferredAllocationRequest
v1beta1.ContainerPreferredAllocationRequest: 1 available_deviceIDs *string, \
2 must_include_deviceIDs *string, 3 allocation_size int32
v1beta1.PreferredAllocationResponse: 1 container_responses *ContainerPreferredAllocationResponse
v1beta1.ContainerPreferredAllocationResponse: 1 deviceIDs *string
v1beta1.AllocateRequest: 1 container_requests *ContainerAllocateRequest
v1beta1.ContainerAllocateRequest: 1 devices_ids *string
v1beta1.CDIDevice: 1 name string
v1beta1.AllocateResponse: 1 container_responses *ContainerAllocateResponse
v1beta1.ContainerAllocateResponse: 1 envs *EnvsEntry, 2 mounts *Mount, 3 devices *DeviceSpec, \
4 annotations *AnnotationsEntry, 5 cdi_devices *CDIDevice
v1beta1.Mount: 1 container_path string, 2 host_path string, 3 read_only bool
v1beta1.DeviceSpec: 1 container_path string, 2 host_path string, 3 permissions string
pluginregistration.PluginInfo: 1 type string, 2 name string, 3 endpoint string, \
4 supported_versions *string
pluginregistration.RegistrationStatus: 1 plugin_registered bool, 2 error string
pluginregistration.RegistrationStatusResponse:
pluginregistration.InfoRequest:
v1.AllocatableResourcesRequest:
v1.AllocatableResourcesResponse: 1 devices *ContainerDevices, 2 cpu_ids *int64, \
3 memory *ContainerMemory
v1.ListPodResourcesRequest:
v1.ListPodResourcesResponse: 1 pod_resources *PodResources
v1.PodResources: 1 name string, 2 namespace string, 3 containers *ContainerResources, \
4 cpu_ids *int64, 5 memory *ContainerMemory
v1.ContainerResources: 1 name string, 2 devices *ContainerDevices, 3 cpu_ids *int64, \
4 memory *ContainerMemory, 5 dynamic_resources *DynamicResource
v1.ContainerMemory: 1 memory_type string, 2 size uint64, 3 topology TopologyInfo
v1.ContainerDevices: 1 resource_name string, 2 device_ids *string, 3 topology TopologyInfo
v1.TopologyInfo: 1 nodes *NUMANode
v1.NUMANode: 1 ID int64
v1.DynamicResource: 2 claim_name string, 3 claim_namespace string, 4 claim_resources *ClaimResource
v1.ClaimResource: 1 cdi_devices *CDIDevice, 2 driver_name string, 3 pool_name string, \
4 device_name string, 5 share_id ?string
v1.CDIDevice: 1 name string
v1.GetPodResourcesRequest: 1 pod_name string, 2 pod_namespace string
v1.GetPodResourcesResponse: 1 pod_resources PodResources
v1.NodeWatchResourcesRequest:
v1.NodeWatchResourcesResponse: 1 devices *DeviceHealth
v1.DeviceIdentifier: 1 pool_name string, 2 device_name string
v1.DeviceHealth: 1 device DeviceIdentifier, 2 health HealthStatus, 3 last_updated_time int64, \
4 health_check_timeout_seconds int64, 5 message string
v1alpha1.ListPodResourcesRequest:
v1alpha1.ListPodResourcesResponse: 1 pod_resources *PodResources
v1alpha1.PodResources: 1 name string, 2 namespace string, 3 containers *ContainerResources
v1alpha1.ContainerResources: 1 name string, 2 devices *ContainerDevices
v1alpha1.ContainerDevices: 1 resource_name string, 2 device_ids *string
"""

TYPES = {3: "int64", 4: "uint64", 5: "int32", 8: "bool", 9: "string"}


def described(full_name: str) -> str:
    """Return the fields of one of our messages as the table above has them."""
    fields = []
    for field in message_class(full_name).DESCRIPTOR.fields:
        named = field.message_type or field.enum_type
        kind = named.name if named else TYPES[field.type]
        mark = "*" if field.is_repeated else ""
        if field.has_presence and not field.message_type:
            mark = "?"
        fields.append(f"{field.number} {field.name} {mark}{kind}")
    return ", ".join(fields)


@pytest.mark.parametrize("line", FIELDS.strip().splitlines(), ids=lambda line: line.split(":")[0])
def test_fields(line: str) -> None:
    """Every message has exactly the fields of the API, with their numbers and types."""
    full_name, _, fields = line.partition(":")
    assert described(full_name) == fields.strip()


def test_descriptors_are_those_of_the_proto_files() -> None:
    """`make proto` has been run since the .proto files were last changed."""
    assert DESCRIPTORS.read_bytes() == generate()


varints = st.one_of(
    st.integers(0, 2**64 - 1).map(protobuf.varint),
    st.sampled_from(
        [b"\x80\x00", b"\x81\x80\x80\x80\x80\x00", b"\xff" * 9 + b"\x7f", b"\xff" * 10]
    ),
)
"""Numbers of every length, also those that are longer than need be, or than may be."""

fields = st.one_of(
    st.builds(lambda tag, rest: bytes((tag,)) + rest, st.integers(0, 63), st.binary(max_size=8)),
    st.builds(lambda tag, number: bytes((tag,)) + number, st.integers(0, 63), varints),
    st.builds(lambda tag, rest: tag + rest, varints, st.binary(max_size=4)),
    st.binary(max_size=4).map(lambda text: bytes((0x0A, len(text))) + text),
)
PREFERRED = "v1beta1.ContainerPreferredAllocationRequest"


def preferred(data: bytes) -> tuple[object, ...] | None:
    """Return what we read of two repeated strings and an int32; None for what we refuse."""
    try:
        asked = Message(
            PREFERRED,
            lambda *values: values,
            Field(1, "", "texts"),
            Field(2, "", "texts"),
            Field(3, "", "int32"),
        )
        return asked.from_wire(data)
    except ProtocolError:
        return None


@example(b"\x0b\x13\x0a\x01x\x14\x0c\x0a\x01a")  # a group within a group, then a string
@example(b"\x0b\x13\x0c\x14")  # their ends the wrong way round
@example(b"\x18" + b"\xff" * 9 + b"\x01")  # -1
@example(b"\x8a\x00\x01a")  # a tag of two bytes, where one would do
@given(st.lists(fields, max_size=4).map(b"".join))
def test_any_bytes_are_read_as_protobuf_reads_them(data: bytes) -> None:
    """The same values or the same refusal: unknown, doubled, ill-typed, cut off, not UTF-8."""
    try:
        theirs = message_class(PREFERRED).FromString(data)
    except DecodeError:
        assert preferred(data) is None
        return
    values = (theirs.available_deviceIDs, theirs.must_include_deviceIDs, theirs.allocation_size)
    assert preferred(data) == (tuple(values[0]), tuple(values[1]), values[2])


@given(st.lists(fields, max_size=4).map(b"".join))
def test_numbers_are_read_as_protobuf_reads_them(data: bytes) -> None:
    """An int64 and a bool of any length; the last of several counts."""
    for name, field, kind in (
        ("v1beta1.NUMANode", "ID", "int64"),
        ("v1beta1.DevicePluginOptions", "pre_start_required", "flag"),
    ):
        ours: Message[object] = Message(name, lambda value: value, Field(1, "", kind))
        try:
            theirs = message_class(name).FromString(data)
        except DecodeError:
            with pytest.raises(ProtocolError):
                ours.from_wire(data)
        else:
            assert ours.from_wire(data) == getattr(theirs, field)


def test_a_broken_message_is_named() -> None:
    """A string that is no UTF-8 is a broken message, and the error says of which type."""
    with pytest.raises(ProtocolError, match=r"3 bytes are not a v1beta1\.Device message"):
        convert.DEVICE.from_wire(b"\x0a\x01\xff")


def test_groups_within_groups_need_no_stack() -> None:
    """A hostile peer that opens a million groups gets a refusal, not a RecursionError."""
    with pytest.raises(ProtocolError):
        convert.DEVICE.from_wire(b"\x0b" * 1_000_000)
