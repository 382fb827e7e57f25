"""The devices in the status of a container, and in the allocatable of a node. Pure.

The counterparts of the kubelet's UpdateAllocatedResourcesStatus and UpdatePluginResources.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kubedevices.node.inventory.inventory import Inventory
from kubedevices.node.pods.pod_devices import PodDevices


class ResourceHealth(NamedTuple):
    """A device and its health: Healthy, Unhealthy, or Unknown if no plugin lists the device."""

    device_id: str
    health: str


class ResourceStatus(NamedTuple):
    """The devices of one resource that a container holds."""

    name: str
    resources: tuple[ResourceHealth, ...]


def allocated_resources_status(
    pod_uid: str, container: str, inventory: Inventory, pod_devices: PodDevices
) -> tuple[ResourceStatus, ...]:
    """Return the status of a container with the health of the devices that it holds."""
    return tuple(
        ResourceStatus(
            resource,
            tuple(
                ResourceHealth(each, inventory.health(resource, each)) for each in held.device_ids
            ),
        )
        for resource, held in pod_devices.of_container(pod_uid, container).items()
    )


def allocatable_with_held(
    allocatable: Mapping[str, int], pod_uid: str, inventory: Inventory, pod_devices: PodDevices
) -> dict[str, int]:
    """Return `allocatable`, raised to the number of held devices if the pod holds devices.

    After a restart, the allocatable of a node may be lower than the number of devices that its
    running pods hold. Then the check of a running pod must not fail.
    """
    raised = dict(allocatable)
    if pod_uid in pod_devices.pod_uids():
        for resource in pod_devices.reserved():
            held = len(inventory.reserved(resource))
            raised[resource] = max(raised.get(resource, 0), held)
    return raised
