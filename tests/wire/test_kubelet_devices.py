"""What a kubelet says over podresources, as one listing."""

from kubedevices.wire.kubelet_devices import describe_pod_resources
from kubedevices.wire.pod_resources import ContainerEntry, DeviceEntry, PodEntry

GPU = "example.com/gpu"


def test_both_answers_of_a_kubelet_make_one_listing() -> None:
    """A device on two NUMA nodes is one device; held and not healthy is Unknown."""
    allocatable = [DeviceEntry(GPU, ("a",), (0,)), DeviceEntry(GPU, ("a",), (1,))]
    held = (*allocatable, DeviceEntry(GPU, ("b",)))
    pods = [PodEntry("p", "default", (ContainerEntry("c", held),))]
    holder = {"namespace": "default", "pod": "p", "uid": "", "container": "c"}
    assert describe_pod_resources(allocatable, pods) == {
        "resources": [
            {
                "resource": GPU,
                "capacity": None,
                "allocatable": 1,
                "held": 2,
                "plugin": None,
                "devices": [
                    {"id": "a", "health": "Healthy", "numa_nodes": [0, 1], "held_by": [holder]},
                    {"id": "b", "health": "Unknown", "numa_nodes": [], "held_by": [holder]},
                ],
            }
        ]
    }
