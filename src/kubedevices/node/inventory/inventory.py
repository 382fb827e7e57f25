"""All resources of the node: their devices, their plugin instances and their reserved devices.

There is one record per resource. The module is pure: the time is the argument `now`. For the
devices of one resource see `resource_devices`; `pod_devices` knows which pod holds which device.

Several instances of a plugin may be connected at once, for example in a rolling update. The list of
the newest instance that has sent a list counts. The resource is lost when its last instance ends.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kubedevices.node.inventory.list_plan import NO_CHANGE, ListChange, ListPlan
from kubedevices.node.inventory.resource_devices import ResourceDevices
from kubedevices.values.allocation import PluginOptions
from kubedevices.values.device import ReportedDevice

GRACE_PERIOD = 300.0
"""Seconds for which the devices of a lost plugin stay in the capacity."""

# Ended instances that are remembered, because their stream may be opened again. There is a limit,
# because a plugin may register again and again.
_REMEMBERED = 64


class Instance:
    """One registration of a plugin, numbered by `generation`; `options` is None if unknown."""

    def __init__(
        self,
        resource: str,
        generation: int,
        socket: str = "",
        options: PluginOptions | None = None,
        *,
        is_live: bool = True,
    ) -> None:
        self.resource, self.generation, self.socket = resource, generation, socket
        self.options, self.is_live = options, is_live
        self.listed: Sequence[ReportedDevice] | None = None


class Connected(NamedTuple):
    """A new instance, and the instances on the same socket that it replaced, as generations."""

    generation: int
    replaced: tuple[int, ...] = ()


class Capacity(NamedTuple):
    """Devices and healthy devices per resource, and the resources that were just removed."""

    capacity: dict[str, int]
    allocatable: dict[str, int]
    removed: tuple[str, ...] = ()


class ResourceRecord:
    """One resource: its devices and its plugin instances.

    `is_listed`: the resource has a device list. A resource from before the start of the node has an
    empty list. `has_reported`: a plugin has sent a list since the start of the node.
    """

    def __init__(self, name: str, devices: ResourceDevices) -> None:
        self.name, self.devices = name, devices
        self.instances: dict[int, Instance] = {}
        self.serving: Instance | None = None
        self.stopped_at: float | None = None
        self.is_listed = self.has_reported = False

    @property
    def live(self) -> list[Instance]:
        """The connected instances, oldest first."""
        return [instance for _, instance in sorted(self.instances.items()) if instance.is_live]

    @property
    def endpoint(self) -> Instance | None:
        """The instance to call: the connected instance whose list counts, or the newest connected
        instance, or the last instance that was connected.
        """
        if self.serving is not None and self.serving.is_live:
            return self.serving
        live = self.live
        return live[-1] if live else self.serving


class Inventory:
    """Every resource of a connected plugin, or of a plugin that is lost since the grace period."""

    def __init__(self, *, grace_period: float = GRACE_PERIOD) -> None:
        self.grace_period = grace_period
        self._records: dict[str, ResourceRecord] = {}
        # Resource → device → number of reservations. A device has two while the reservation of an
        # admission becomes the holding of a container.
        self._reserved: dict[str, dict[str, int]] = {}
        # Generation → instance of a resource that was removed after the grace period. `_remove`
        # adds instances. `report` takes an instance back if its stream brings a list later.
        self._lost: dict[int, Instance] = {}
        # One counter for all resources, so that each generation is unique.
        self._generation = 0

    def __repr__(self) -> str:
        return f"<Inventory of {len(self._records)} resources>"

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of all resources, also those without a list yet."""
        return iter(self._records)

    # ------------------------------------------------------------ reading

    def record(self, resource: str) -> ResourceRecord | None:
        """Return the record of `resource`; None if no plugin offers the resource."""
        return self._records.get(resource)

    def is_known(self, resource: str) -> bool:
        """Whether pods that request `resource` get devices from here.

        True from the registration on. In the kubelet it is true from the first list on: before the
        list, the kubelet starts such pods without devices.
        """
        return resource in self._records or bool(self._reserved.get(resource))

    def has_reported(self, resource: str) -> bool:
        """Whether a plugin has sent a list of `resource` since the start of the node."""
        record = self._records.get(resource)
        return record is not None and record.has_reported

    def endpoint(self, resource: str) -> Instance | None:
        """Return the instance to call for `resource`; the instance may be stopped."""
        record = self._records.get(resource)
        return record.endpoint if record is not None else None

    def devices(self, resource: str) -> Mapping[str, ReportedDevice]:
        """Return the devices by ID, in the order of the list."""
        return self._devices(resource).devices

    def healthy(self, resource: str) -> Collection[str]:
        """Return the healthy devices, free and reserved."""
        return self._devices(resource).healthy

    def health(self, resource: str, device_id: str) -> str:
        """Return Healthy, Unhealthy, or Unknown for a device that no plugin lists now."""
        return self._devices(resource).health(device_id)

    def per_numa(self, resource: str, device_ids: Iterable[str]) -> dict[int, list[str]]:
        """Return `device_ids` by NUMA node, -1 for none."""
        return self._devices(resource).per_numa(device_ids)

    def _devices(self, resource: str) -> ResourceDevices:
        record = self._records.get(resource)
        return record.devices if record is not None else ResourceDevices({})

    def registered_devices(self) -> dict[str, list[str]]:
        """Return the healthy devices of every resource with a list, for the checkpoint."""
        return {
            name: [each for each in record.devices.devices if each in record.devices.healthy]
            for name, record in self._records.items()
            if record.is_listed
        }

    # ------------------------------------------------------------ plugins come and go

    def restore(self, resource: str, now: float) -> None:
        """Add a resource from before the start, without devices. The grace period begins."""
        if resource not in self._records:
            record = self._new_record(resource)
            record.is_listed, record.stopped_at = True, now
            record.serving = Instance(resource, 0, is_live=False)

    def connect(self, resource: str, options: PluginOptions, socket: str = "") -> Connected:
        """Add an instance that answered the dial. Its devices come with its first list."""
        self._generation += 1
        number = self._generation
        record = self._records.get(resource) or self._new_record(resource)
        replaced = [old for old in record.instances.values() if socket and old.socket == socket]
        # One process serves a path. The older process has lost its path, and its late end must not
        # stop the new instance (kubernetes#139338).
        for old in replaced:
            del record.instances[old.generation]
            old.is_live = False
        record.instances[number] = Instance(resource, number, socket, options)
        gone = [old for old in record.instances.values() if not old.is_live]
        for old in gone[:-_REMEMBERED]:
            del record.instances[old.generation]
        record.stopped_at = None
        # The grace period ends with the registration, before the first list, as in the kubelet.
        return Connected(number, tuple(old.generation for old in replaced))

    def report(
        self,
        resource: str,
        generation: int,
        devices: Sequence[ReportedDevice],
        plan: ListPlan | None = None,
    ) -> ListChange | None:
        """Apply a list with its plan; return None if the list of a newer instance counts."""
        record = self._records.get(resource)
        if generation in self._lost and self._lost[generation].resource == resource:
            record = record or self._new_record(resource)
            record.instances[generation] = self._lost.pop(generation)
        if record is None or generation not in record.instances:
            return None
        instance = record.instances[generation]
        instance.is_live, instance.listed = True, devices
        record.stopped_at = None
        serving = record.serving
        # In a rolling update both instances send lists; the lists of the newer instance count.
        if serving is not None and serving.is_live and serving.generation > generation:
            return None
        return self._serve(record, instance, plan)

    def disconnect(self, resource: str, generation: int, now: float) -> ListChange | None:
        """Record that the stream of an instance ended; return None if no device changes."""
        record = self._records.get(resource)
        instance = record.instances.get(generation) if record is not None else None
        if record is None or instance is None or not instance.is_live:
            return None
        instance.is_live, instance.listed = False, None
        live = record.live
        if not live:
            record.serving, record.stopped_at = instance, now
            return record.devices.lose()
        if record.serving is not instance:
            return None
        # An instance without a list leaves the devices unchanged until its first list.
        heirs = [heir for heir in live if heir.listed is not None]
        return self._serve(record, heirs[-1]) if heirs else NO_CHANGE

    def forget(self, resource: str, generation: int) -> None:
        """Forget a disconnected instance that will open no new stream."""
        self._lost.pop(generation, None)
        record = self._records.get(resource)
        if record is not None:
            instance = record.instances.get(generation)
            if instance is not None and not instance.is_live:
                del record.instances[generation]

    def get_capacity(self, now: float) -> Capacity:
        """Return capacity and allocatable; remove resources whose grace period is over."""
        capacity: dict[str, int] = {}
        allocatable: dict[str, int] = {}
        removed = []
        for name, record in list(self._records.items()):
            if record.stopped_at is not None and now - record.stopped_at > self.grace_period:
                self._remove(record)
                removed.append(name)
            elif record.is_listed:
                capacity[name] = record.devices.capacity
                allocatable[name] = record.devices.allocatable
            # The stream ended before the first list: as the kubelet, show capacity 0.
            elif record.stopped_at is not None:
                capacity[name] = allocatable[name] = 0
        return Capacity(capacity, allocatable, tuple(removed))

    def _serve(
        self, record: ResourceRecord, instance: Instance, plan: ListPlan | None = None
    ) -> ListChange:
        record.serving = instance
        record.is_listed = record.has_reported = True
        return record.devices.replace(instance.listed or (), plan)

    def _new_record(self, resource: str) -> ResourceRecord:
        # The inventory and the record share one mapping. The mapping may be older than the record:
        # pods from before a restart hold devices of a plugin that has not registered yet.
        reserved = self._reserved.setdefault(resource, {})
        record = ResourceRecord(resource, ResourceDevices(reserved))
        self._records[resource] = record
        return record

    def _remove(self, record: ResourceRecord) -> None:
        """Remove the record. Its instances are remembered, because a stream may open again late."""
        del self._records[record.name]
        self._forget_unreserved(record.name)
        self._lost.update(record.instances)
        while len(self._lost) > _REMEMBERED:
            del self._lost[next(iter(self._lost))]

    # ------------------------------------------------------------ reservations

    def reserved(self, resource: str) -> Collection[str]:
        """Return the devices that a container holds or an admission has reserved."""
        return self._reserved.get(resource, {}).keys()

    def reserve(self, resource: str, device_ids: Iterable[str]) -> None:
        """Add one reservation to each of `device_ids`; a reserved device is not free."""
        counts = self._reserved.setdefault(resource, {})
        first = []
        for device_id in device_ids:
            counts[device_id] = counts.get(device_id, 0) + 1
            if counts[device_id] == 1:
                first.append(device_id)
        if first and (record := self._records.get(resource)) is not None:
            record.devices.block(first)

    def unreserve(self, resource: str, device_ids: Iterable[str]) -> None:
        """Remove one reservation from each of `device_ids`; a device without any is free."""
        counts = self._reserved.get(resource, {})
        freed = []
        for device_id in device_ids:
            left = counts[device_id] - 1
            if left:
                counts[device_id] = left
            else:
                del counts[device_id]
                freed.append(device_id)
        if freed and (record := self._records.get(resource)) is not None:
            record.devices.unblock(freed)
        self._forget_unreserved(resource)

    def _forget_unreserved(self, resource: str) -> None:
        """Remove an empty mapping. A record keeps its mapping, because its devices use it."""
        if resource not in self._records and not self._reserved.get(resource):
            self._reserved.pop(resource, None)
