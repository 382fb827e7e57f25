"""The message classes: from our own .proto files, in a pool of their own."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pool import Default

from kubedevices.errors import ProtocolError
from kubedevices.wire import messages
from tests.wire.generate_descriptors import PACKAGE, TARGET, generate

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
    for field in messages.message_class(full_name).DESCRIPTOR.fields:
        kind = field.message_type.name if field.message_type else TYPES[field.type]
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
    assert TARGET.read_bytes() == generate()


def test_ours_stay_out_of_the_default_pool() -> None:
    """Nothing of ours is where every other copy would collide with it."""
    messages.message_class("v1beta1.Device")
    with pytest.raises(KeyError):
        Default().FindMessageTypeByName("v1beta1.Device")


COLLECT = """
import gc, weakref
from kubedevices.wire.messages import message_class
device_spec = weakref.ref(type(message_class("v1beta1.ContainerAllocateResponse")().devices.add()))
gc.collect()
assert device_spec() is not None
"""


def test_classes_of_fields_outlive_a_garbage_collection() -> None:
    """A thread that encodes while another collects must never meet a class half destroyed."""
    subprocess.run([sys.executable, "-c", COLLECT], check=True, timeout=60)


SECOND_COPY = """
import sys
sys.path.insert(0, sys.argv[1])
{first}
{second}
from kubedevices.wire.convert import device_list_to_wire, device_to_wire
from kubedevices.wire.device_lists import device_list_from_wire
from kubedevices.device import Device
wire = device_list_to_wire([device_to_wire(Device("a"), (1,))])
theirs = v1beta1_pb2.ListAndWatchResponse.FromString(wire)
assert theirs.devices[0].ID == "a" and theirs.devices[0].topology.nodes[0].ID == 1
assert device_list_from_wire(theirs.SerializeToString())[0].numa_nodes == (1,)
assert not isinstance(theirs, type(message_class("v1beta1.ListAndWatchResponse")()))
"""
OURS = "from kubedevices.wire.messages import message_class"
THEIRS = "import v1beta1_pb2"


@pytest.mark.parametrize("order", [(OURS, THEIRS), (THEIRS, OURS)], ids=["ours", "theirs"])
def test_second_copy_in_the_same_process(tmp_path: Path, order: tuple[str, str]) -> None:
    """A generated v1beta1 of somebody else lives beside ours, whichever is imported first."""
    assert importlib.util.find_spec("grpc_tools")
    copy = tmp_path / "v1beta1.proto"
    copy.write_text((PACKAGE / "proto" / "deviceplugin_v1beta1.proto").read_text())
    protoc = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"-I{tmp_path}",
        f"--python_out={tmp_path}",
    ]
    subprocess.run([*protoc, str(copy)], check=True, timeout=60)
    script = SECOND_COPY.format(first=order[0], second=order[1])
    run = [sys.executable, "-W", "error", "-c", script, str(tmp_path)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_foreign_fields_are_ignored() -> None:
    """A newer kubelet's fields, which only ever get added, do no harm."""
    unknown = b"\xfa\x3e\x05hello"  # field 1007, a string
    parsed = messages.parse("v1beta1.Device", b"\x0a\x01a" + unknown)
    assert parsed.ID == "a"


def test_text_that_is_no_utf8() -> None:
    """A string that is none is a broken message."""
    with pytest.raises(ProtocolError, match=r"3 bytes are no v1beta1\.Device message"):
        messages.parse("v1beta1.Device", b"\x0a\x01\xff")
