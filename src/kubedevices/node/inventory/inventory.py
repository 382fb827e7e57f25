"""All resources of the node: their devices, the plugin instances behind them, what is reserved.

One record per resource. Pure: the device manager tells it what happened and when (`now`), and asks.
What one list means is for `resource_devices`; who holds which device for `pod_devices`.

Several instances of a plugin may be connected at once, as in a rolling update. The newest that has
sent a list counts; only when the last one ends is the resource lost.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kubedevices.allocation import PluginOptions
from kubedevices.device import ReportedDevice
from kubedevices.node.inventory.list_plan import NO_CHANGE, ListChange, ListPlan
from kubedevices.node.inventory.resource_devices import ResourceDevices

GRACE_PERIOD = 300.0
"""Seconds a resource stays in the capacity after its plugin went away."""

# How many ended instances are kept, in case their stream opens again. A bound, because a plugin may
# register without end.
_REMEMBERED = 64


class Instance:
    """One registration of a plugin, counted by `generation`; `options` is None when unknown."""

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
    """A new instance, and the generations on the same socket that it took over from."""

    generation: int
    replaced: tuple[int, ...] = ()


class Capacity(NamedTuple):
    """Devices and healthy devices per resource, and the resources just given up."""

    capacity: dict[str, int]
    allocatable: dict[str, int]
    removed: tuple[str, ...] = ()


class ResourceRecord:
    """What is known about one resource.

    `is_listed`: it has a device list, if only an empty one from before our start.
    `has_reported`: a plugin sent a list since our start, so its devices can be trusted.
    """

    def __init__(self, name: str, devices: ResourceDevices) -> None:
        self.name, self.devices = name, devices
        self.instances: dict[int, Instance] = {}
        self.serving: Instance | None = None
        self.stopped_at: float | None = None
        self.is_listed = self.has_reported = False

    @property
    def live(self) -> list[Instance]:
        """Instances with a connection, oldest first."""
        return [instance for _, instance in sorted(self.instances.items()) if instance.is_live]

    @property
    def endpoint(self) -> Instance | None:
        """The instance to call: the one whose list counts, else the newest, else the last."""
        if self.serving is not None and self.serving.is_live:
            return self.serving
        live = self.live
        return live[-1] if live else self.serving


class Inventory:
    """Every resource that a plugin of this node offers, or offered until a short time ago."""

    def __init__(self, *, grace_period: float = GRACE_PERIOD) -> None:
        self.grace_period = grace_period
        self._records: dict[str, ResourceRecord] = {}
        # By resource and device, how many reasons there are: for a moment a device has two, when a
        # reservation becomes a holding.
        self._reserved: dict[str, dict[str, int]] = {}
        # By generation, instances of resources that were given up after the grace period. `_remove`
        # puts them in, `report` takes one out when its stream brings a list after all.
        self._lost: dict[int, Instance] = {}
        # Counted over all resources, so that a generation alone names an instance.
        self._generation = 0

    def __repr__(self) -> str:
        return f"<Inventory of {len(self._records)} resources>"

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of all resources that have, or soon will have, a list."""
        return iter(self._records)

    # ------------------------------------------------------------ reading

    def record(self, resource: str) -> ResourceRecord | None:
        """Return the record of `resource`; None when no plugin offers it."""
        return self._records.get(resource)

    def is_known(self, resource: str) -> bool:
        """Whether pods that ask for `resource` get devices from here.

        True from the registration on. A kubelet waits for the first list, and until then starts
        such pods without their devices.
        """
        return resource in self._records or bool(self._reserved.get(resource))

    def has_reported(self, resource: str) -> bool:
        """Whether a plugin has listed devices of `resource` since our start."""
        record = self._records.get(resource)
        return record is not None and record.has_reported

    def endpoint(self, resource: str) -> Instance | None:
        """Return the instance to call for `resource`, which may be a stopped one."""
        record = self._records.get(resource)
        return record.endpoint if record is not None else None

    def devices(self, resource: str) -> Mapping[str, ReportedDevice]:
        """Return the devices by ID, in the order of the list."""
        return self._devices(resource).devices

    def healthy(self, resource: str) -> Collection[str]:
        """Return the healthy devices, free or not."""
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
        """Know a resource from before our start: no devices yet, and the grace period begins."""
        if resource not in self._records:
            record = self._new_record(resource)
            record.is_listed, record.stopped_at = True, now
            record.serving = Instance(resource, 0, is_live=False)

    def connect(
        self,
        resource: str,
        options: PluginOptions,
        socket: str = "",
        *,
        generation: int | None = None,
    ) -> Connected:
        """Take note of an instance that answered the dial; its devices come with its first list.

        `generation` is for a caller that counts registrations itself; larger is newer.
        """
        self._generation = max(self._generation + 1, generation or 0)
        number = self._generation if generation is None else generation
        record = self._records.get(resource) or self._new_record(resource)
        replaced = [
            old
            for old in record.instances.values()
            if socket and old.socket == socket and old.generation != number
        ]
        # One path is served by one process: the older one has lost its name, and its late end must
        # not stop the new one (kubernetes#139338).
        for old in replaced:
            del record.instances[old.generation]
            old.is_live = False
        record.instances[number] = Instance(resource, number, socket, options)
        gone = [old for old in record.instances.values() if not old.is_live]
        for old in gone[:-_REMEMBERED]:
            del record.instances[old.generation]
        record.stopped_at = None
        # The grace period is over with the registration, before any list; so in a kubelet.
        return Connected(number, tuple(old.generation for old in replaced))

    def report(
        self,
        resource: str,
        generation: int,
        devices: Sequence[ReportedDevice],
        plan: ListPlan | None = None,
    ) -> ListChange | None:
        """Take a list, as planned; None if the list of a newer instance counts instead."""
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
        # In a rolling update both instances go on sending lists; the newer one's counts.
        if serving is not None and serving.is_live and serving.generation > generation:
            return None
        return self._serve(record, instance, plan)

    def disconnect(self, resource: str, generation: int, now: float) -> ListChange | None:
        """Take note that an instance's stream ended; None when that makes no difference."""
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
        # An instance that has not listed anything yet leaves the devices as they are until it does.
        heirs = [heir for heir in live if heir.listed is not None]
        return self._serve(record, heirs[-1]) if heirs else NO_CHANGE

    def forget(self, resource: str, generation: int) -> None:
        """Take note that a disconnected instance will never come back."""
        self._lost.pop(generation, None)
        record = self._records.get(resource)
        if record is not None:
            instance = record.instances.get(generation)
            if instance is not None and not instance.is_live:
                del record.instances[generation]

    def get_capacity(self, now: float) -> Capacity:
        """Return what the node has; gives up resources whose plugin is gone for too long."""
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
            # Its stream ended before the first list: a kubelet, too, shows capacity 0 then.
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
        # One mapping for both sides. It may be older than the record: pods from before a restart
        # hold devices of a plugin that has not come back.
        reserved = self._reserved.setdefault(resource, {})
        record = ResourceRecord(resource, ResourceDevices(reserved))
        self._records[resource] = record
        return record

    def _remove(self, record: ResourceRecord) -> None:
        """Drop the record; an instance whose stream opens again late is still recognised."""
        del self._records[record.name]
        self._forget_unreserved(record.name)
        self._lost.update(record.instances)
        while len(self._lost) > _REMEMBERED:
            del self._lost[next(iter(self._lost))]

    # ------------------------------------------------------------ reservations

    def reserved(self, resource: str) -> Collection[str]:
        """Return the devices that are held, or about to be."""
        return self._reserved.get(resource, {}).keys()

    def reserve(self, resource: str, device_ids: Iterable[str]) -> None:
        """Count one more reason not to give `device_ids` to others."""
        reasons = self._reserved.setdefault(resource, {})
        first = []
        for device_id in device_ids:
            reasons[device_id] = reasons.get(device_id, 0) + 1
            if reasons[device_id] == 1:
                first.append(device_id)
        if first and (record := self._records.get(resource)) is not None:
            record.devices.block(first)

    def unreserve(self, resource: str, device_ids: Iterable[str]) -> None:
        """Take one reason back; a device without a reason is free again."""
        reasons = self._reserved.get(resource, {})
        freed = []
        for device_id in device_ids:
            left = reasons[device_id] - 1
            if left:
                reasons[device_id] = left
            else:
                del reasons[device_id]
                freed.append(device_id)
        if freed and (record := self._records.get(resource)) is not None:
            record.devices.unblock(freed)
        self._forget_unreserved(resource)

    def _forget_unreserved(self, resource: str) -> None:
        """Drop an empty mapping; a record keeps its mapping, because its devices read it."""
        if resource not in self._records and not self._reserved.get(resource):
            self._reserved.pop(resource, None)
