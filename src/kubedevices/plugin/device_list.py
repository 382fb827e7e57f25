"""The devices of one resource in the form ListAndWatch sends them. For the plugin server.

Each device is encoded once; a list joins the encoded devices. With many thousands of devices this
takes a while, so the caller builds a list in a thread. The result is frozen.
"""

import logging
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from kubedevices.errors import DeviceListTooLarge
from kubedevices.errors.words import counted
from kubedevices.kubelet_api.convert import device_list_to_wire, device_to_wire
from kubedevices.values.device import Device, natural_order
from kubedevices.values.device_tree import changed_devices

MAX_LIST_SIZE = 4 * 1024 * 1024
"""Most bytes of a message that a kubelet receives; it drops a plugin that sends more."""

_WARN_FROM = 0.75

_log = logging.getLogger(__name__)


class DeviceList(NamedTuple):
    """One state of a resource: what Allocate works with and what ListAndWatch sends."""

    devices: Mapping[str, Device]
    """In natural order of their IDs."""

    encoded: bytes
    """One ListAndWatchResponse."""

    too_large: DeviceListTooLarge | None = None
    """Why some devices are not in the list; None if all are."""

    @property
    def left_out(self) -> int:
        """How many devices are not in the list."""
        return self.too_large.devices - len(self.devices) if self.too_large else 0

    def __repr__(self) -> str:
        healthy = sum(device.is_healthy for device in self.devices.values())
        return f"<DeviceList {healthy} of {len(self.devices)} healthy, {len(self.encoded)} bytes>"


class DeviceListBuilder:
    """Builds the `DeviceList`s of `resource`, one after the other. Not for two threads at once.

    When the devices no longer fit into a list, the list has the devices of the last list in their
    present state, until all devices fit again: a pod must not lose its device because other
    devices appeared.
    """

    def __init__(self, resource: str, max_size: int = MAX_LIST_SIZE) -> None:
        self._resource, self._max_size = resource, max_size
        self._given: Mapping[str, Device] = {}
        self._entries: dict[str, bytes] = {}
        self._listed: Collection[str] = ()
        self._has_list = self._is_near_limit = False

    def build(self, devices: Mapping[str, Device], sent: bytes = b"") -> DeviceList:
        """Return the list of `devices` (by ID), whose NUMA nodes are known (None counts as `()`).

        `devices` must not change afterwards: the next mapping is compared with it. `sent` is the
        encoded list if another plugin sent it. Raises `DeviceListTooLarge` for a first list.
        If the IDs are the same as before, only devices that are other objects are encoded.
        """
        if 0 < len(sent) <= self._max_size:
            self._warn_near_limit(len(devices), len(sent))
            self._given, self._entries, self._listed = {}, {}, devices
            self._has_list = True
            return DeviceList(devices, sent)
        changed = {each.id: _entry(each) for each in changed_devices(self._given, devices)}
        known, order, given_order = self._entries, list(self._entries), list(devices)
        # The same IDs as before: their order is known, so no IDs are compared.
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
            entries = self._still_listed(entries, in_order)
            in_order = {name: in_order[name] for name in entries}
            encoded = device_list_to_wire(entries.values())
        else:
            self._warn_near_limit(len(entries), len(encoded))
        self._given, self._entries, self._listed = devices, entries, entries
        self._has_list = True
        return DeviceList(MappingProxyType(in_order), encoded, problem)

    def _still_listed(
        self, entries: Mapping[str, bytes], devices: Mapping[str, Device]
    ) -> dict[str, bytes]:
        """Return the entries of devices that are in the last list and still exist.

        If these are too large (`Unhealthy` is longer than `Healthy`), return as many as fit, the
        healthy devices first.
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
