"""Looks up the NUMA nodes of devices whose author did not set them (`numa_nodes=None`).

It reads files, so callers run it in a hook thread.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from kubedevices.host.sysfs import NumaReader
from kubedevices.values.device import Device
from kubedevices.values.device_tree import DeviceTree, changed_devices

_log = logging.getLogger(__name__)


class _Known(NamedTuple):
    """The devices of one type as given, and the completed devices among them (with NUMA nodes)."""

    given: Mapping[str, Device]
    looked_up: Mapping[str, Device]


_NOTHING_KNOWN = _Known({}, {})
_Read = dict[tuple[str, ...], tuple[int, ...]]
"""Paths of device files -> NUMA nodes, within one call: replicas of a device share its files."""


class NumaLookup:
    """Reads the nodes of a device when it appears, returns, recovers, or has other paths.

    For one caller at a time.
    """

    def __init__(self, reader: NumaReader | None = None) -> None:
        self._reader = reader or NumaReader()
        self._known: dict[str, _Known] = {}

    def complete(self, tree: DeviceTree) -> DeviceTree:
        """Return `tree` with the NUMA nodes of every device. Blocks: it reads /sys."""
        self._known = {name: self._known[name] for name in tree if name in self._known}
        read: _Read = {}
        return DeviceTree(
            {name: self._complete(name, tree.devices(name), read).values() for name in tree}
        )

    def complete_type(
        self, device_type: str, devices: Mapping[str, Device]
    ) -> Mapping[str, Device]:
        """Do the same for one type; `devices` (by ID) must not change afterwards."""
        return self._complete(device_type, devices, {})

    def _complete(
        self, device_type: str, devices: Mapping[str, Device], read: _Read
    ) -> Mapping[str, Device]:
        given, looked_up = self._known.get(device_type, _NOTHING_KNOWN)
        completed = dict(looked_up)
        for name in looked_up.keys() - devices.keys():
            del completed[name]
        for device in changed_devices(given, devices):
            before = given.get(device.id)
            known = None if before is None else (before, looked_up.get(device.id, before))
            completed[device.id] = self._complete_device(device, known, read)
            if completed[device.id] is device:
                del completed[device.id]
        self._known[device_type] = _Known(devices, completed)
        return {**devices, **completed} if completed else devices

    def _complete_device(
        self,
        device: Device,
        before: tuple[Device, Device] | None,
        read: _Read,
    ) -> Device:
        if device.numa_nodes is not None:
            return device
        paths = files_of(device)
        if not paths:
            return replace(device, numa_nodes=())
        if before is not None and _is_still_valid(before[0], device, paths):
            return replace(device, numa_nodes=before[1].numa_nodes)
        if paths not in read:
            read[paths] = self._reader.nodes_of(paths)
        return replace(device, numa_nodes=read[paths])


def _is_still_valid(before: Device, now: Device, paths: tuple[str, ...]) -> bool:
    """Whether the nodes of `before` are still right for `now`, whose files have these `paths`.

    False for a device that recovered: its file may have been missing, or it may have moved.
    """
    has_recovered = now.is_healthy and not before.is_healthy
    return before.numa_nodes is None and paths == files_of(before) and not has_recovered


def files_of(device: Device) -> tuple[str, ...]:
    """Return the device files that lead to the NUMA nodes; else the files of its CDI edits."""
    if device.specs or device.paths or device.cdi is None or isinstance(device.cdi, str):
        return tuple(spec.host_path for spec in device.all_specs)
    edits = getattr(device.cdi, "container_edits", device.cdi)
    return tuple(node.host_path or node.path for node in edits.device_nodes)
