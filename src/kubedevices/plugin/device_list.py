"""The devices of one resource in the form ListAndWatch sends them. For the plugin server.

Each device is encoded once and kept; a list is a join of bytes. Building one may take a while
with many thousands of devices, so the caller does it in a thread; the result is frozen.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kubedevices.device import Device, Health, natural_key
from kubedevices.errors import DeviceListTooLarge
from kubedevices.wire.convert import device_list_to_wire, device_to_wire
from kubedevices.words import counted

MAX_LIST_SIZE = 4 * 1024 * 1024
"""What a kubelet receives in one message; it drops a plugin that sends more, without a word."""

_WARN_FROM = 0.75

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Entry:
    """One device, ready to send, and what its bytes were made of."""

    health: Health
    numa_nodes: tuple[int, ...]
    encoded: bytes


@dataclass(frozen=True)
class DeviceList:
    """One state of a resource: what Allocate works with and what ListAndWatch sends."""

    devices: Mapping[str, Device]
    """In natural order of their IDs."""

    encoded: bytes
    """One ListAndWatchResponse."""

    too_large: DeviceListTooLarge | None = None
    """Why not every device is in it."""

    @property
    def left_out(self) -> int:
        """How many devices there are that are not in it."""
        return self.too_large.devices - len(self.devices) if self.too_large else 0

    def __repr__(self) -> str:
        healthy = sum(device.is_healthy for device in self.devices.values())
        return f"<DeviceList {healthy} of {len(self.devices)} healthy, {len(self.encoded)} bytes>"


class DeviceListBuilder:
    """Makes one `DeviceList` after the other for `resource`. Not for two threads at once.

    When the devices no longer fit into a list, those of the list before stay in it, as they are
    now, until all fit again: who has a device must not lose it because others appeared.
    """

    def __init__(self, resource: str, max_size: int = MAX_LIST_SIZE) -> None:
        self._resource, self._max_size = resource, max_size
        self._entries: dict[str, _Entry] = {}
        self._has_list = self._is_near_limit = False

    def build(self, devices: Iterable[Device]) -> DeviceList:
        """Return the list of `devices`, whose NUMA nodes are known (None counts as none).

        Raises `DeviceListTooLarge` for a first list.
        """
        by_id = {device.id: device for device in devices}
        if by_id.keys() == self._entries.keys():
            order: Iterable[str] = self._entries  # the same IDs: their order is known
        else:
            order = sorted(by_id, key=natural_key)
        entries = {device_id: self._entry(by_id[device_id]) for device_id in order}
        size, problem = sum(len(entry.encoded) for entry in entries.values()), None
        if size > self._max_size:
            problem = DeviceListTooLarge(self._resource, len(entries), size, self._max_size)
            if not self._has_list:
                raise problem
            entries = self._those_of_before(entries)
        else:
            self._warn_near_limit(len(entries), size)
        self._entries, self._has_list = entries, True
        encoded = device_list_to_wire(entry.encoded for entry in entries.values())
        in_order = {device_id: by_id[device_id] for device_id in entries}
        return DeviceList(MappingProxyType(in_order), encoded, problem)

    def _those_of_before(self, entries: Mapping[str, _Entry]) -> dict[str, _Entry]:
        """Return what the list before had and is still there.

        If even that is too much now (`Unhealthy` is longer than `Healthy`), as many as there is
        room for, the healthy ones first.
        """
        kept = {name: each for name, each in entries.items() if name in self._entries}
        room = self._max_size - sum(len(each.encoded) for each in kept.values())
        for device_id in sorted(kept, key=lambda each: kept[each].health is Health.HEALTHY):
            if room >= 0:
                break
            room += len(kept.pop(device_id).encoded)
        return kept

    def _entry(self, device: Device) -> _Entry:
        numa_nodes = tuple(device.numa_nodes or ())
        known = self._entries.get(device.id)
        if known and known.health is device.health and known.numa_nodes == numa_nodes:
            return known
        return _Entry(device.health, numa_nodes, device_to_wire(device, numa_nodes))

    def _warn_near_limit(self, devices: int, size: int) -> None:
        was_near, self._is_near_limit = self._is_near_limit, size > self._max_size * _WARN_FROM
        if self._is_near_limit and not was_near:
            _log.warning(
                "%s: the list of %s has %d bytes; above %d it cannot be sent",
                self._resource, counted(devices, "device"), size, self._max_size,
            )  # fmt: skip
