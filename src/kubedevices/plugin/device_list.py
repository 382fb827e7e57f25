"""The devices of one resource in the form ListAndWatch sends them. For the plugin server.

Each device is encoded once and kept; a list is a join of bytes. Building one may take a while
with many thousands of devices, so the caller does it in a thread; the result is frozen.
"""

import logging
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from kubedevices.device import Device, natural_order
from kubedevices.device_tree import changed_devices
from kubedevices.errors import DeviceListTooLarge
from kubedevices.kubelet_api.convert import device_list_to_wire, device_to_wire
from kubedevices.words import counted

MAX_LIST_SIZE = 4 * 1024 * 1024
"""What a kubelet receives in one message; it drops a plugin that sends more, without a word."""

_WARN_FROM = 0.75

_log = logging.getLogger(__name__)


class DeviceList(NamedTuple):
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
        self._given: Mapping[str, Device] = {}
        self._entries: dict[str, bytes] = {}
        self._listed: Collection[str] = ()
        self._has_list = self._is_near_limit = False

    def build(self, devices: Mapping[str, Device], sent: bytes = b"") -> DeviceList:
        """Return the list of `devices` by ID, whose NUMA nodes are known (None counts as none).

        The mapping is kept and must not change afterwards: the next one is compared with it.
        `sent` is the list itself, as the plugin that it comes from sent it.
        Raises `DeviceListTooLarge` for a first list. Only devices that are other objects than
        before are looked at, unless there are other IDs.
        """
        if 0 < len(sent) <= self._max_size:
            self._warn_near_limit(len(devices), len(sent))
            self._given, self._entries, self._listed = {}, {}, devices
            self._has_list = True
            return DeviceList(devices, sent)
        changed = {each.id: _entry(each) for each in changed_devices(self._given, devices)}
        known, order, given_order = self._entries, list(self._entries), list(devices)
        # The same IDs as before: the order is known, and no ID has to be compared with others.
        if order == given_order or known.keys() == devices.keys():
            entries = {**known, **changed}
        else:
            order = natural_order(given_order)
            entries = {
                name: changed.get(name) or known.get(name) or _entry(devices[name])
                for name in order
            }
        in_order = devices
        if order != given_order:
            in_order = dict(zip(order, map(devices.__getitem__, order), strict=True))
        encoded, problem = device_list_to_wire(entries.values()), None
        if len(encoded) > self._max_size:
            problem = DeviceListTooLarge(self._resource, len(entries), len(encoded), self._max_size)
            if not self._has_list:
                raise problem
            entries = self._those_of_before(entries, in_order)
            in_order = {name: in_order[name] for name in entries}
            encoded = device_list_to_wire(entries.values())
        else:
            self._warn_near_limit(len(entries), len(encoded))
        self._given, self._entries, self._listed = devices, entries, entries
        self._has_list = True
        return DeviceList(MappingProxyType(in_order), encoded, problem)

    def _those_of_before(
        self, entries: Mapping[str, bytes], devices: Mapping[str, Device]
    ) -> dict[str, bytes]:
        """Return the entries of the list before whose devices are still there.

        If even that is too much now (`Unhealthy` is longer than `Healthy`), as many as there is
        room for, the healthy ones first.
        """
        kept = {name: each for name, each in entries.items() if name in self._listed}
        room = self._max_size - sum(map(len, kept.values()))
        for device_id in sorted(kept, key=lambda each: devices[each].is_healthy):
            if room >= 0:
                break
            room += len(kept.pop(device_id))
        return kept

    def _warn_near_limit(self, devices: int, size: int) -> None:
        was_near, self._is_near_limit = self._is_near_limit, size > self._max_size * _WARN_FROM
        if self._is_near_limit and not was_near:
            _log.warning(
                "%s: the list of %s has %d bytes; above %d it cannot be sent",
                self._resource, counted(devices, "device"), size, self._max_size,
            )  # fmt: skip


def _entry(device: Device) -> bytes:
    return device_to_wire(device, tuple(device.numa_nodes or ()))
