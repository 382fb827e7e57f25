"""Devices in the statuses of containers and of the node."""

from kubedevices.node.inventory.inventory import Inventory
from kubedevices.node.inventory.node_status import (
    ResourceHealth,
    ResourceStatus,
    allocatable_with_held,
    allocated_resources_status,
)
from kubedevices.node.pods.pod_devices import HeldDevices, PodDevices
from kubedevices.values.allocation import ContainerAllocateResponse, PluginOptions
from kubedevices.values.device import ReportedDevice

R, S = "v.example/r", "v.example/s"


def node() -> tuple[Inventory, PodDevices]:
    inventory = Inventory()
    generation = inventory.connect(R, PluginOptions()).generation
    listed = (ReportedDevice("good", "Healthy"), ReportedDevice("bad", "Unhealthy"))
    inventory.report(R, generation, listed)
    return inventory, PodDevices(inventory)


def held(*ids: str) -> HeldDevices:
    return HeldDevices({-1: list(ids)}, ContainerAllocateResponse())


def test_a_container_status_has_the_health_of_its_devices() -> None:
    """UpdateAllocatedResourcesStatus: one healthy, one unhealthy, and one unlisted device."""
    inventory, pod_devices = node()
    pod_devices.insert("p", "c", R, held("good", "bad", "gone"))
    status = allocated_resources_status("p", "c", inventory, pod_devices)
    expected = (
        ResourceHealth("good", "Healthy"),
        ResourceHealth("bad", "Unhealthy"),
        ResourceHealth("gone", "Unknown"),
    )
    assert status == (ResourceStatus(R, expected),)
    assert allocated_resources_status("p", "x", inventory, pod_devices) == ()


def test_a_node_offers_at_least_what_its_pods_hold() -> None:
    """UpdatePluginResources: one held device raises 0 to 1; one of two leaves 2."""
    inventory, pod_devices = node()
    pod_devices.insert("p", "c", R, held("good"))
    pod_devices.insert("p", "c", S, held("s1"))
    before = {S: 2, "cpu": 4}
    raised = allocatable_with_held(before, "p", inventory, pod_devices)
    assert raised == {R: 1, S: 2, "cpu": 4}
    assert before == {S: 2, "cpu": 4}, "on a copy"
    assert allocatable_with_held(before, "q", inventory, pod_devices) == before
