"""Devices in the statuses of containers and of the node."""

from pathlib import Path

from kubedevices.node.inventory.inventory import Inventory
from kubedevices.node.node_view import NodeView, ResourceHealth, ResourceStatus
from kubedevices.node.pods.pod_devices import HeldDevices
from kubedevices.values.allocation import ContainerAllocateResponse, PluginOptions
from kubedevices.values.device import ReportedDevice

R, S = "v.example/r", "v.example/s"


def node() -> NodeView:
    inventory = Inventory()
    generation = inventory.connect(R, PluginOptions()).generation
    listed = (ReportedDevice("good", "Healthy"), ReportedDevice("bad", "Unhealthy"))
    inventory.report(R, generation, listed)
    return NodeView(inventory, Path("checkpoint"))


def held(*ids: str) -> HeldDevices:
    return HeldDevices({-1: list(ids)}, ContainerAllocateResponse())


def test_a_container_status_has_the_health_of_its_devices() -> None:
    """UpdateAllocatedResourcesStatus: one healthy, one unhealthy, and one unlisted device."""
    view = node()
    view.pod_devices.insert("p", "c", R, held("good", "bad", "gone"))
    status = view.update_allocated_resources_status("p", "c")
    expected = (
        ResourceHealth("good", "Healthy"),
        ResourceHealth("bad", "Unhealthy"),
        ResourceHealth("gone", "Unknown"),
    )
    assert status == (ResourceStatus(R, expected),)
    assert view.update_allocated_resources_status("p", "x") == ()


def test_a_node_offers_at_least_what_its_pods_hold() -> None:
    """UpdatePluginResources: one held device raises 0 to 1; one of two leaves 2."""
    view = node()
    view.pod_devices.insert("p", "c", R, held("good"))
    view.pod_devices.insert("p", "c", S, held("s1"))
    before = {S: 2, "cpu": 4}
    raised = view.update_plugin_resources(before, "p")
    assert raised == {R: 1, S: 2, "cpu": 4}
    assert before == {S: 2, "cpu": 4}, "on a copy"
    assert view.update_plugin_resources(before, "q") == before
