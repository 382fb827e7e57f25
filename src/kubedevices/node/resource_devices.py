"""The devices of one resource: health, NUMA nodes, and which of them are free.

One place for what a plugin listed, kept up to date by the difference between two lists, so that a
health change among 100,000 devices costs little more than reading the list. Only the inventory
uses it; who is the plugin and since when it is gone is kept there.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kubedevices.device import Health, ReportedDevice
from kubedevices.node.free_devices import FreeDevices
from kubedevices.node.pod_devices import NO_NUMA_NODE
from kubedevices.numa import mask_of

UNKNOWN = "Unknown"
"""Health of a device whose plugin is gone or no longer lists it."""

_HEALTHY = Health.HEALTHY.value
_WORTH_REBUILDING = 64


class ListChange(NamedTuple):
    """What a list, or the loss of the plugin, changed; device IDs in the order of the list.

    `changed` devices have another health than before, `moved` ones other NUMA nodes only.
    """

    appeared: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    vanished: tuple[str, ...] = ()
    duplicates: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether the list said what was known."""
        return not (self.appeared or self.changed or self.moved or self.vanished)

    @property
    def health_changes(self) -> tuple[str, ...]:
        """Return the devices whose health is another than before, or is no longer known."""
        return self.appeared + self.changed + self.vanished


NO_CHANGE = ListChange()


def mask_of_device(device: ReportedDevice) -> int:
    """Return the NUMA nodes of `device` as bits; 0 when it has none."""
    return mask_of(device.numa_nodes) if device.numa_nodes else 0


class ResourceDevices:
    """Everything known about the devices of one resource.

    `reserved` is a live view of the reservations: device IDs that are held or about to be.
    """

    def __init__(self, reserved: Mapping[str, int], *, compat: bool = False) -> None:
        self._reserved, self._compat = reserved, compat
        self._listed: Sequence[ReportedDevice] = ()
        self._counted_twice: frozenset[str] = frozenset()
        self.devices: dict[str, ReportedDevice] = {}
        self.healthy: set[str] = set()
        self.is_live = False
        self.free = FreeDevices()
        self.counts: Counter[int] = Counter()

    @property
    def capacity(self) -> int:
        """How many devices there are; with `compat` one listed both ways counts twice."""
        return len(self.devices) + len(self._counted_twice)

    @property
    def allocatable(self) -> int:
        """How many devices are healthy."""
        return len(self.healthy)

    def health(self, device_id: str) -> str:
        """Return Healthy, Unhealthy or Unknown; a kubelet calls a missing device healthy."""
        device = self.devices.get(device_id)
        if device is None:
            return Health.HEALTHY if self._compat else UNKNOWN
        if not self.is_live:
            return Health.UNHEALTHY if self._compat else UNKNOWN
        return Health.HEALTHY if device_id in self.healthy else Health.UNHEALTHY

    def per_numa(self, device_ids: Iterable[str]) -> dict[int, list[str]]:
        """Return `device_ids` by NUMA node; one on several nodes is listed under each."""
        by_node: dict[int, list[str]] = {}
        for device_id in device_ids:
            device = self.devices.get(device_id)
            nodes = device.numa_nodes if device is not None else None
            for node in dict.fromkeys(nodes or (NO_NUMA_NODE,)):
                by_node.setdefault(node, []).append(device_id)
        return by_node

    # ------------------------------------------------------------ what is free

    def block(self, device_ids: Iterable[str]) -> None:
        """Take note that `device_ids` became reserved."""
        for device_id in device_ids:
            if device_id in self.healthy:
                self.free.discard(device_id, mask_of_device(self.devices[device_id]))

    def unblock(self, device_ids: Iterable[str]) -> None:
        """Take note that `device_ids` are no longer reserved."""
        for device_id in device_ids:
            if device_id in self.healthy:
                self.free.add(device_id, mask_of_device(self.devices[device_id]))

    # ------------------------------------------------------------ lists

    def lose(self) -> ListChange:
        """Take note that the plugin is gone: nothing is healthy, everything stays known."""
        was_live, self.is_live = self.is_live, False
        self.healthy = set()
        self.free = FreeDevices()
        self._counted_twice = frozenset()
        return ListChange(changed=tuple(self.devices)) if was_live else NO_CHANGE

    def replace(self, listed: Sequence[ReportedDevice]) -> ListChange:
        """Take a whole new list."""
        if self.is_live and listed == self._listed:
            return NO_CHANGE
        if self._compat:
            return self._replace_as_the_kubelet(listed)
        change = self._update_in_place(listed) or self._compare(listed)
        self._listed = listed
        return change

    def _update_in_place(self, listed: Sequence[ReportedDevice]) -> ListChange | None:
        """Take a list that differs from the last one in health or nodes only, else return None."""
        if not self.is_live or not len(listed) == len(self._listed) == len(self.devices):
            return None
        pairs = [(old, new) for old, new in zip(self._listed, listed, strict=True) if old != new]
        if len(pairs) > self._few() or any(old.id != new.id for old, new in pairs):
            return None
        for old, new in pairs:
            self._take_out(old)
            self._put_in(new)
        return ListChange(
            changed=tuple(new.id for old, new in pairs if old.health != new.health),
            moved=tuple(new.id for old, new in pairs if old.health == new.health),
        )

    def _compare(self, listed: Sequence[ReportedDevice]) -> ListChange:
        old, new = self.devices, _each_once(listed)
        appeared = [device for device in new.values() if device.id not in old]
        vanished: list[str] = []
        if len(new) - len(appeared) < len(old):
            vanished = [device_id for device_id in old if device_id not in new]
        pairs = [
            (before, device)
            for device in new.values()
            if (before := old.get(device.id)) is not None and before != device
        ]
        if not self.is_live:
            changed = tuple(device_id for device_id in new if device_id in old)
        else:
            changed = tuple(new.id for old, new in pairs if old.health != new.health)
        change = ListChange(
            appeared=tuple(device.id for device in appeared),
            changed=changed,
            moved=tuple(new.id for old, new in pairs if self.is_live and old.health == new.health),
            vanished=tuple(vanished),
            duplicates=len(listed) - len(new),
        )
        if not self.is_live or len(appeared) + len(vanished) + len(pairs) > self._few():
            self._rebuild(new, {d.id for d in new.values() if d.health == _HEALTHY})
            return change
        for device_id in vanished:
            self._take_out(old[device_id])
        for before, _ in pairs:
            self._take_out(before)
        self.devices = new
        for device in (*appeared, *(after for _, after in pairs)):
            self._put_in(device)
        return change

    def _replace_as_the_kubelet(self, listed: Sequence[ReportedDevice]) -> ListChange:
        """Take a list with the last of two entries, in both sets when they disagree."""
        old, was_live = self.devices, self.is_live
        new = {device.id: device for device in listed}
        healthy = {device.id for device in listed if device.health == _HEALTHY}
        unhealthy = {device.id for device in listed if device.health != _HEALTHY}
        change = ListChange(
            appeared=tuple(device_id for device_id in new if device_id not in old),
            changed=tuple(
                device.id
                for device in new.values()
                if device.id in old and (not was_live or old[device.id].health != device.health)
            ),
            vanished=tuple(device_id for device_id in old if device_id not in new),
            duplicates=len(listed) - len(new),
        )
        self._rebuild(new, healthy)
        self._counted_twice = frozenset(healthy & unhealthy)
        self._listed = listed
        return change

    def _few(self) -> int:
        return max(_WORTH_REBUILDING, len(self.devices) // 4)

    def _rebuild(self, devices: dict[str, ReportedDevice], healthy: set[str]) -> None:
        self.devices, self.healthy, self.is_live = devices, healthy, True
        self.counts = Counter()
        for nodes, count in Counter(device.numa_nodes for device in devices.values()).items():
            self.counts[mask_of(nodes) if nodes else 0] += count
        self.free = FreeDevices.of(
            (device_id, mask_of_device(devices[device_id]))
            for device_id in healthy
            if device_id not in self._reserved
        )

    def _take_out(self, device: ReportedDevice) -> None:
        mask = mask_of_device(device)
        self.counts[mask] -= 1
        if not self.counts[mask]:
            del self.counts[mask]
        self.healthy.discard(device.id)
        self.free.discard(device.id, mask)

    def _put_in(self, device: ReportedDevice) -> None:
        mask = mask_of_device(device)
        self.devices[device.id] = device
        self.counts[mask] += 1
        if device.health == _HEALTHY:
            self.healthy.add(device.id)
            if device.id not in self._reserved:
                self.free.add(device.id, mask)


def _each_once(listed: Sequence[ReportedDevice]) -> dict[str, ReportedDevice]:
    """Return the devices by ID; of several entries with one ID an unhealthy one counts."""
    devices = {device.id: device for device in listed}
    if len(devices) < len(listed):
        for device in listed:
            if device.health != _HEALTHY:
                devices[device.id] = device
    return devices
