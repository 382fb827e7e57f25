"""The reading half of `DeviceManager`: devices, numbers, holders, events.

The methods follow the device manager of the kubelet; `docs/porting.md` lists the names side by
side.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kubedevices.errors import NotInTime
from kubedevices.host import deadlines
from kubedevices.node.events import BACKLOG, EventKind, EventSource, EventStream, NodeEvent
from kubedevices.node.inventory.health_updates import HealthUpdates
from kubedevices.node.inventory.inventory import Capacity, Inventory
from kubedevices.node.pods.pod_devices import PodDevices
from kubedevices.pages.metrics import ALLOCATABLE, CAPACITY, HELD, Sample
from kubedevices.values.device import ReportedDevice

logger = logging.getLogger(__name__)

Allocation = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Container name → resource → device IDs."""

HEALTH_CHECK = "device-plugin"
"""The kubelet's name for the health check of its Registration service."""

_REFUSALS_KEPT = 32


class ResourceHealth(NamedTuple):
    """A device and its health: Healthy, Unhealthy, or Unknown if no plugin lists the device."""

    device_id: str
    health: str


class ResourceStatus(NamedTuple):
    """The devices of one resource that a container holds."""

    name: str
    resources: tuple[ResourceHealth, ...]


class NodeView:
    """The inventory, the held devices and the events of one node."""

    def __init__(self, inventory: Inventory, checkpoint: Path) -> None:
        self.inventory = inventory
        self.pod_devices = PodDevices(inventory)
        self._events = EventSource()
        self._refusals: deque[tuple[str, str, str]] = deque(maxlen=_REFUSALS_KEPT)
        self._checkpoint_file = checkpoint

    # ------------------------------------------------------------ devices

    def get_allocation(self, pod_uid: str) -> Allocation:
        """Return the devices that each container of the pod holds."""
        containers: dict[str, dict[str, tuple[str, ...]]] = {}
        for _, container, resource, held in self.pod_devices.holdings(pod_uid):
            containers.setdefault(container, {})[resource] = held.device_ids
        return containers

    def get_capacity(self) -> Capacity:
        """Return capacity and allocatable per resource; `removed` names each lost resource once."""
        capacity = self.inventory.get_capacity(asyncio.get_running_loop().time())
        for resource in capacity.removed:
            logger.info("%s: removed, because its plugin did not register again", resource)
            self._events.publish(NodeEvent(EventKind.REMOVED, resource))
        return capacity

    @property
    def refusals(self) -> Sequence[tuple[str, str, str]]:
        """Resource, socket and reason of the last refused registrations, oldest first."""
        return tuple(self._refusals)

    def get_devices(
        self, pod_uid: str, container: str
    ) -> Mapping[str, Mapping[int, tuple[str, ...]]]:
        """Return the devices of a container: resource → NUMA node (-1 for none) → device IDs."""
        return {
            resource: {node: tuple(ids) for node, ids in held.devices_per_numa.items()}
            for resource, held in self.pod_devices.of_container(pod_uid, container).items()
        }

    def get_allocatable_devices(self) -> Mapping[str, Mapping[str, ReportedDevice]]:
        """Return the healthy devices per resource, also those that a pod holds."""
        return {
            resource: {
                each: device
                for each, device in self.inventory.devices(resource).items()
                if each in self.inventory.healthy(resource)
            }
            for resource in self.inventory
        }

    # ------------------------------------------------------------ status

    def update_plugin_resources(
        self, allocatable: Mapping[str, int], pod_uid: str
    ) -> dict[str, int]:
        """Return `allocatable`, raised to the number of held devices if the pod holds devices.

        After a restart, the allocatable of a node may be lower than the number of devices that its
        running pods hold. Then the check of a running pod must not fail.
        """
        raised = dict(allocatable)
        if pod_uid in self.pod_devices.pod_uids():
            for resource in self.pod_devices.reserved():
                held = len(self.inventory.reserved(resource))
                raised[resource] = max(raised.get(resource, 0), held)
        return raised

    def update_allocated_resources_status(
        self, pod_uid: str, container: str
    ) -> tuple[ResourceStatus, ...]:
        """Return the status of a container with the health of its devices (KEP-4680)."""
        health = self.inventory.health
        return tuple(
            ResourceStatus(
                resource,
                tuple(ResourceHealth(each, health(resource, each)) for each in held.device_ids),
            )
            for resource, held in self.pod_devices.of_container(pod_uid, container).items()
        )

    def should_reset_extended_resource_capacity(self) -> bool:
        """Whether the capacities of the Node object have to be set to zero.

        This is true if there is no checkpoint and no resource from before the start. The kubelet
        takes every file in the directory of the checkpoint for a checkpoint, also `kubelet.sock`.
        """
        return not self._checkpoint_file.exists() and not any(self.inventory)

    def gauges(self) -> list[Sample]:
        """Return the metrics of every resource, for a scrape."""
        capacity = self.get_capacity()
        held = dict.fromkeys(capacity.capacity, 0)  # an absent gauge would look like a fault
        held |= {name: len(devices) for name, devices in self.pod_devices.reserved().items()}
        return [
            *(Sample(CAPACITY, (name,), count) for name, count in capacity.capacity.items()),
            *(Sample(ALLOCATABLE, (name,), count) for name, count in capacity.allocatable.items()),
            *(Sample(HELD, (name,), count) for name, count in held.items()),
        ]

    # ------------------------------------------------------------ listening

    def subscribe(self, backlog: int = BACKLOG) -> EventStream:
        """Return a stream of all events from now on. Close the stream, or use it with `with`."""
        return self._events.subscribe(backlog)

    def health_updates(self) -> HealthUpdates:
        """Return a queue of the pods whose devices change their health from now on."""
        return HealthUpdates(self._events, self.pod_devices)

    async def wait_for(
        self,
        resource: str,
        *,
        capacity: int | None = None,
        allocatable: int | None = None,
        timeout: float = 10,
    ) -> None:
        """Return when `resource` is listed and has these numbers; raises `NotInTime`."""
        with self.subscribe(backlog=1) as changes:
            try:
                async with deadlines.timeout(timeout):
                    while not self._has(resource, capacity, allocatable):
                        await anext(changes)
            except (TimeoutError, StopAsyncIteration):
                wanted = [
                    f"{name} {number}"
                    for name, number in (("capacity", capacity), ("allocatable", allocatable))
                    if number is not None
                ]
                raise NotInTime(
                    resource, " and ".join(wanted) or "listed", timeout, self._all_numbers()
                ) from None

    def _has(self, resource: str, capacity: int | None, allocatable: int | None) -> bool:
        now = self.get_capacity()
        return (
            resource in now.capacity
            and capacity in (None, now.capacity[resource])
            and allocatable in (None, now.allocatable.get(resource))
        )

    def _all_numbers(self) -> str:
        """Return all resources with their numbers, for a message."""
        now = self.get_capacity()
        return (
            "; ".join(
                f"{name} capacity {number} allocatable {now.allocatable.get(name)}"
                for name, number in now.capacity.items()
            )
            or "no resource is registered"
        )
