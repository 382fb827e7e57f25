"""Which container holds which devices, with the plugin's answer for these devices. In memory.

The ledger has the same on disk. Devices of an admission that has not ended are in
`admission.Reservation`. Every change is passed to the inventory, so held devices are reserved.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from kubedevices.values.allocation import ContainerAllocateResponse

NO_NUMA_NODE = -1
"""The key of devices without a NUMA node."""


ContainerResource = tuple[str, str]
"""The name of a container and the name of a resource."""


class HeldDevices(NamedTuple):
    """The devices of one resource that one container holds, and the plugin's Allocate answer.

    A device on two NUMA nodes is listed under both nodes.
    """

    devices_per_numa: Mapping[int, list[str]]
    response: ContainerAllocateResponse

    @property
    def device_ids(self) -> tuple[str, ...]:
        """Each device once, in the order of the NUMA nodes."""
        return tuple(
            dict.fromkeys(
                device_id for _, ids in sorted(self.devices_per_numa.items()) for device_id in ids
            )
        )


class Holding(NamedTuple):
    """One entry: this container of this pod holds these devices of this resource."""

    pod_uid: str
    container: str
    resource: str
    held: HeldDevices


class Holder(NamedTuple):
    """The container that holds a device."""

    pod_uid: str
    container: str


class Reservations(Protocol):
    """Counts the reservations of devices: the inventory."""

    def reserve(self, resource: str, device_ids: Iterable[str]) -> None:
        """Add one reservation to each of `device_ids`."""

    def unreserve(self, resource: str, device_ids: Iterable[str]) -> None:
        """Remove one reservation from each of `device_ids`."""


class PodDevices:
    """All holdings, by pod, container and resource."""

    def __init__(self, reservations: Reservations | None = None) -> None:
        self._pods: dict[str, dict[str, dict[str, HeldDevices]]] = {}
        # Resource → device → its holders. A list, because an app container may reuse the device of
        # a plain init container.
        self._holders: dict[str, dict[str, list[Holder]]] = {}
        self._reservations = reservations
        # One counter for all pods, so that a pod that is admitted again gets a new number.
        self._changes, self._last_changes = 0, dict[str, int]()

    def __repr__(self) -> str:
        return f"<PodDevices of {len(self._pods)} pods>"

    def __iter__(self) -> Iterator[Holding]:
        """Iterate over all entries in the order in which they were inserted, pod by pod."""
        for pod_uid in self._pods:
            yield from self.holdings(pod_uid)

    def __len__(self) -> int:
        return sum(len(held) for pod in self._pods.values() for held in pod.values())

    # ------------------------------------------------------------ reading

    def pod_uids(self) -> Collection[str]:
        """Return the uids of the pods that hold devices."""
        return self._pods.keys()

    def last_change(self, pod_uid: str) -> int:
        """Return a number that differs after every change of the pod's devices."""
        return self._last_changes.get(pod_uid, 0)

    def holdings(self, pod_uid: str) -> Iterator[Holding]:
        """Iterate over the entries of one pod."""
        for container, resources in self._pods.get(pod_uid, {}).items():
            for resource, held in resources.items():
                yield Holding(pod_uid, container, resource, held)

    def get(self, pod_uid: str, container: str, resource: str) -> HeldDevices | None:
        """Return the devices of `resource` that the container holds, None if it holds none."""
        return self.of_container(pod_uid, container).get(resource)

    def of_container(self, pod_uid: str, container: str) -> Mapping[str, HeldDevices]:
        """Return the devices that the container holds, by resource."""
        return self._pods.get(pod_uid, {}).get(container, {})

    def device_ids(self, pod_uid: str, container: str, resource: str) -> tuple[str, ...]:
        """Return the IDs of the devices of `resource` that the container holds."""
        held = self.get(pod_uid, container, resource)
        return held.device_ids if held else ()

    def of_pod(self, pod_uid: str, resource: str) -> set[str]:
        """Return the devices of `resource` that the containers of the pod hold."""
        return {
            device_id
            for container in self._pods.get(pod_uid, {})
            for device_id in self.device_ids(pod_uid, container, resource)
        }

    def holders(self, resource: str, device_id: str) -> tuple[Holder, ...]:
        """Return the holders of a device. Several, if the device of an init container is reused."""
        return tuple(self._holders.get(resource, {}).get(device_id, ()))

    def owners(self, resource: str, device_ids: Iterable[str]) -> set[str]:
        """Return the uids of the pods that hold any of `device_ids`."""
        held = self._holders.get(resource, {})
        return {holder.pod_uid for device_id in device_ids for holder in held.get(device_id, ())}

    def reserved(self) -> dict[str, set[str]]:
        """Return all held devices, by resource."""
        return {resource: set(devices) for resource, devices in self._holders.items()}

    # ------------------------------------------------------------ writing

    def insert(self, pod_uid: str, container: str, resource: str, held: HeldDevices) -> None:
        """Let the container hold `held` instead of its former devices of the resource."""
        # Reservations are counted: without this, a second insert would reserve the devices twice,
        # and they would never be free again.
        self.remove(pod_uid, container, resource)
        self._changes += 1
        self._last_changes[pod_uid] = self._changes
        self._pods.setdefault(pod_uid, {}).setdefault(container, {})[resource] = held
        holders = self._holders.setdefault(resource, {})
        holder = Holder(pod_uid, container)
        for device_id in held.device_ids:
            holders.setdefault(device_id, []).append(holder)
        if self._reservations is not None:
            self._reservations.reserve(resource, held.device_ids)

    def remove(self, pod_uid: str, container: str, resource: str) -> HeldDevices | None:
        """Remove one entry and return it."""
        containers = self._pods.get(pod_uid, {})
        held = containers.get(container, {}).pop(resource, None)
        if held is None:
            return None
        if not containers[container]:
            del containers[container]
        self._changes += 1
        self._last_changes[pod_uid] = self._changes
        if not containers:
            del self._pods[pod_uid], self._last_changes[pod_uid]
        self._forget(Holder(pod_uid, container), resource, held)
        return held

    def remove_pod(self, pod_uid: str) -> tuple[Holding, ...]:
        """Remove all entries of the pod and return them."""
        removed = tuple(self.holdings(pod_uid))
        self._pods.pop(pod_uid, None)
        self._last_changes.pop(pod_uid, None)
        for _, container, resource, held in removed:
            self._forget(Holder(pod_uid, container), resource, held)
        return removed

    def _forget(self, holder: Holder, resource: str, held: HeldDevices) -> None:
        holders = self._holders[resource]
        for device_id in held.device_ids:
            holders[device_id].remove(holder)
            if not holders[device_id]:
                del holders[device_id]
        if not holders:
            del self._holders[resource]
        if self._reservations is not None:
            self._reservations.unreserve(resource, held.device_ids)
