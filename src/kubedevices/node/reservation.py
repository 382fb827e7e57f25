"""What one pod is about to get: taken at once, then committed or given back as a whole.

For the admission, which awaits plugins in between: whatever else happens meanwhile, the devices
stay reserved, and a pod that fails leaves nothing behind.
"""

from collections.abc import Mapping

from kubedevices.allocation import ContainerAllocateResponse
from kubedevices.node.inventory import Inventory
from kubedevices.node.pod import Container, Pod
from kubedevices.node.pod_devices import HeldDevices, Holding, PodDevices

Part = tuple[str, str]
"""Container name and resource."""


class Reservation:
    """Devices taken for one pod that nobody holds yet."""

    def __init__(self, pod: Pod, inventory: Inventory, pod_devices: PodDevices) -> None:
        self.pod = pod
        self._inventory, self._pod_devices = inventory, pod_devices
        self._parts: dict[Part, tuple[str, ...]] = {}
        self._reusable: dict[str, set[str]] = {}
        self._is_open = True

    def __repr__(self) -> str:
        state = "open" if self._is_open else "closed"
        return f"<Reservation of {len(self._parts)} parts for {self.pod.uid}, {state}>"

    @property
    def parts(self) -> Mapping[Part, tuple[str, ...]]:
        """Return what was taken, by container and resource; the plugins are asked for these."""
        return self._parts

    def reusable(self, resource: str) -> frozenset[str]:
        """Return the devices of finished init containers that the next container may use."""
        return frozenset(self._reusable.get(resource, ()))

    def take(self, container: Container, resource: str, device_ids: tuple[str, ...]) -> None:
        """Reserve what a plan chose, in the same breath as planning it."""
        if device_ids:
            self._inventory.reserve(resource, device_ids)
            self._parts[container.name, resource] = device_ids

    def finish(self, container: Container) -> None:
        """All resources of `container` are planned: what may the containers after it use?

        A plain init container leaves everything to them, a sidecar or app container keeps its own.
        """
        for resource in container.limits:
            ids = self._parts.get((container.name, resource)) or self._pod_devices.device_ids(
                self.pod.uid, container.name, resource
            )
            if self.pod.is_plain_init(container):
                self._reusable.setdefault(resource, set()).update(ids)
            else:
                self._reusable.get(resource, set()).difference_update(ids)

    def commit(self, responses: Mapping[Part, ContainerAllocateResponse]) -> tuple[Holding, ...]:
        """Let the pod hold what was taken, with one response per part; return the new entries."""
        holdings = tuple(
            Holding(
                self.pod.uid,
                container,
                resource,
                HeldDevices(
                    self._inventory.per_numa(resource, device_ids),
                    responses[container, resource],
                ),
            )
            for (container, resource), device_ids in self._parts.items()
        )
        for holding in holdings:
            self._pod_devices.insert(*holding)
        self.roll_back()
        return holdings

    def roll_back(self) -> None:
        """Give back what is only reserved; safe at any time, and more than once."""
        if self._is_open:
            self._is_open = False
            for (_, resource), device_ids in self._parts.items():
                self._inventory.unreserve(resource, device_ids)
