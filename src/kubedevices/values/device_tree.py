"""All devices that a scan found, and the difference between two scans.

For the plugin side; the node side has reported devices (`node.inventory`).
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import compress
from operator import is_not
from types import MappingProxyType
from typing import NamedTuple

from kubedevices.errors import InvalidDevice, InvalidResourceName
from kubedevices.values.device import Device


class DeviceTree:
    """Devices by device type (the part of the resource name after the slash) and ID.

    A declared type without devices is registered with zero devices. A type that is missing from
    the next tree is no longer served.
    """

    def __init__(self, devices: Mapping[str, Iterable[Device]] | None = None) -> None:
        self._types: dict[str, dict[str, Device]] = {}
        self._sent: dict[str, bytes] = {}
        self._shared: set[str] = set()  # types whose dictionary another tree uses, too
        self.is_notified = False
        """Whether a notifier made and checked this copy, and it is unchanged since."""

        for device_type, members in (devices or {}).items():
            self.declare(device_type)
            self._add_all(device_type, list(members))

    def _add_all(self, device_type: str, members: list[Device]) -> None:
        """Add many devices, quickly if all are `Device`s with different IDs; raises like `add`."""
        if set(map(type, members)) <= {Device}:
            by_id = {device.id: device for device in members}
            if len(by_id) == len(members):
                self._types[device_type] = by_id
                return
        for device in members:
            self.add(device_type, device)

    def declare(self, device_type: str) -> None:
        """Keep `device_type` registered even if it has no device."""
        if not isinstance(device_type, str) or not device_type:
            raise InvalidResourceName(str(device_type), "a device type is a text, not empty")
        if device_type not in self._types:
            self._types[device_type] = {}
            self.is_notified = False

    def add(self, device_type: str, device: Device) -> None:
        """Add `device`; raises `InvalidDevice` if another device of the type has the same ID.

        Adding an equal device again changes nothing, because two globs may find the same device.
        """
        if not isinstance(device, Device):
            raise InvalidDevice(str(device), f"add() takes a Device, not {type(device).__name__}")
        if device_type not in self._types:
            self.declare(device_type)
        if self._sent:
            self._sent.pop(device_type, None)
        if device_type in self._shared:
            self._shared.remove(device_type)
            self._types[device_type] = dict(self._types[device_type])
        self.is_notified = False
        known = self._types[device_type].setdefault(device.id, device)
        if known is not device and known != device:
            raise InvalidDevice(
                device.id, f"two different devices of the type {device_type!r} have this ID"
            )

    def put_list(self, device_type: str, devices: dict[str, Device], sent: bytes = b"") -> None:
        """Make `devices` all devices of the type; the dictionary must not change afterwards.

        `sent` is the same list as another plugin sent it, an encoded ListAndWatchResponse. As long
        as no middleware changes the list, exactly these bytes are passed on.
        """
        self.declare(device_type)
        self.is_notified = False
        self._types[device_type] = devices
        self._shared.add(device_type)
        self._sent.pop(device_type, None)
        if sent:
            self._sent[device_type] = sent

    def sent(self, device_type: str) -> bytes:
        """Return the encoded list of `device_type` that another plugin sent; else `b""`."""
        return self._sent.get(device_type, b"")

    def replaced(self, devices: Mapping[str, Mapping[str, Device]]) -> "DeviceTree":
        """Return a tree in which `devices` (by type and ID) replace the devices with their IDs.

        The order stays. Without `devices` the result is this tree itself.
        """
        changed = {name: by_id for name, by_id in devices.items() if by_id}
        if not changed:
            return self
        copy = DeviceTree()
        copy._types = {
            name: {**by_id, **changed.get(name, {})} for name, by_id in self._types.items()
        }
        copy._sent = {name: each for name, each in self._sent.items() if name not in changed}
        return copy

    def count(self, device_type: str) -> int:
        """Return the number of devices of `device_type`, 0 when it is unknown."""
        return len(self._types.get(device_type, ()))

    def devices(self, device_type: str) -> Mapping[str, Device]:
        """Return a read-only view, ID to device as they were added, valid until a change."""
        return MappingProxyType(self._types.get(device_type, {}))

    def snapshot(self, *, reuse: "DeviceTree | None" = None) -> "DeviceTree":
        """Return a copy that does not change when this tree changes; devices are frozen.

        If `reuse` has an equal device, the copy has the device object of `reuse`, so that a later
        comparison of the two trees is quick. The dictionaries of devices are copied only when one
        of the two trees changes.
        """
        copy = DeviceTree()
        copy._sent, copy.is_notified = self._sent.copy(), self.is_notified
        copy._types, copy._shared = self._types.copy(), set(self._types)
        self._shared = set(self._types)
        for device_type, devices in () if self.is_notified else self._types.items():
            known = reuse.devices(device_type) if reuse is not None else {}
            changed = changed_devices(known, devices) if known else []
            equal = [known[each.id] for each in changed if known.get(each.id) == each]
            if equal:
                copy._types[device_type] = {**devices, **{each.id: each for each in equal}}
        return copy

    def __iter__(self) -> Iterator[str]:
        """Iterate over device types in the order they were declared."""
        return iter(self._types)

    def __len__(self) -> int:
        """Return the number of device types."""
        return len(self._types)

    def __contains__(self, device_type: object) -> bool:
        return device_type in self._types

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeviceTree):
            return NotImplemented
        return (
            self._sent == other._sent and self._types == other._types
        )  # the quick comparison first

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}: {len(devices)}" for name, devices in self._types.items())
        return f"<DeviceTree {counts or 'empty'}>"


def changed_devices(old: Mapping[str, Device], new: Mapping[str, Device]) -> list[Device]:
    """Return the devices of `new` that are not the same objects in `old`.

    Both are by ID. With the same IDs in the same order, the comparison runs in C.
    """
    candidates = list(new.values())
    if len(old) == len(new):
        candidates = list(compress(candidates, map(is_not, candidates, old.values())))
    return [device for device in candidates if old.get(device.id) is not device]


class TreeChange(NamedTuple):
    """The device types that were added, updated and removed between two trees."""

    added: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the two trees are equal."""
        return not (self.added or self.updated or self.removed)


def compare_trees(old: DeviceTree, new: DeviceTree) -> TreeChange:
    """Return the difference between `old` and `new`, per device type."""
    return TreeChange(
        added=tuple(name for name in new if name not in old),
        updated=tuple(
            name
            for name in new
            if name in old
            and (new.sent(name) != old.sent(name) or new.devices(name) != old.devices(name))
        ),
        removed=tuple(name for name in old if name not in new),
    )
