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

    def __repr__(self) -> str:
        healthy = sum(device.is_healthy for device in self.devices.values())
        return f"<DeviceList {healthy} of {len(self.devices)} healthy, {len(self.encoded)} bytes>"


class DeviceListBuilder:
    """Makes one `DeviceList` after the other for `resource`. Not for two threads at once."""

    def __init__(self, resource: str, max_size: int = MAX_LIST_SIZE) -> None:
        self._resource, self._max_size = resource, max_size
        self._entries: dict[str, _Entry] = {}
        self._is_near_limit = False

    def build(self, devices: Iterable[Device]) -> DeviceList:
        """Return the list of `devices`, whose NUMA nodes are known (None counts as none).

        Raises `DeviceListTooLarge`.
        """
        by_id = {device.id: device for device in devices}
        if by_id.keys() == self._entries.keys():
            order: Iterable[str] = self._entries  # the same IDs: their order is known
        else:
            order = sorted(by_id, key=natural_key)
        self._entries = {device_id: self._entry(by_id[device_id]) for device_id in order}
        encoded = device_list_to_wire(entry.encoded for entry in self._entries.values())
        self._check_size(len(encoded))
        in_order = {device_id: by_id[device_id] for device_id in self._entries}
        return DeviceList(MappingProxyType(in_order), encoded)

    def _entry(self, device: Device) -> _Entry:
        numa_nodes = tuple(device.numa_nodes or ())
        known = self._entries.get(device.id)
        if known and known.health is device.health and known.numa_nodes == numa_nodes:
            return known
        return _Entry(device.health, numa_nodes, device_to_wire(device, numa_nodes))

    def _check_size(self, size: int) -> None:
        if size > self._max_size:
            raise DeviceListTooLarge(self._resource, len(self._entries), size, self._max_size)
        was_near, self._is_near_limit = self._is_near_limit, size > self._max_size * _WARN_FROM
        if self._is_near_limit and not was_near:
            _log.warning(
                "%s: the list of %s has %d bytes; above %d it cannot be sent",
                self._resource, counted(len(self._entries), "device"), size, self._max_size,
            )  # fmt: skip
