"""Fills in the NUMA nodes of devices whose author left them to us. For the runner and `scan`.

Reads files, so it belongs into a hook thread, and not into the notifier.
"""

import logging
from dataclasses import replace

from kubedevices.device import Device
from kubedevices.device_tree import DeviceTree
from kubedevices.errors import NoTopology
from kubedevices.host.sysfs import NumaReader

_log = logging.getLogger(__name__)


class NumaLookup:
    """Looks a device up when it appears, gets other paths, comes back or recovers.

    For one caller at a time.
    """

    def __init__(self, reader: NumaReader | None = None) -> None:
        self._reader = reader or NumaReader()
        self._known: dict[tuple[str, str], tuple[Device, Device]] = {}

    def complete(self, tree: DeviceTree) -> DeviceTree:
        """Return `tree` with the NUMA nodes of every device; blocks while it reads /sys."""
        known: dict[tuple[str, str], tuple[Device, Device]] = {}
        read: dict[tuple[str, ...], tuple[int, ...]] = {}
        completed = DeviceTree()
        for device_type in tree:
            completed.declare(device_type)
            for device in tree.devices(device_type).values():
                key = (device_type, device.id)
                before = self._known.get(key)
                if before is None or before[0] is not device:
                    before = device, self._complete_device(device, before, read)
                known[key] = before
                completed.add(device_type, before[1])
        self._known = known
        return completed

    def _complete_device(
        self,
        device: Device,
        before: tuple[Device, Device] | None,
        read: dict[tuple[str, ...], tuple[int, ...]],
    ) -> Device:
        if device.numa_nodes is not None:
            return device
        paths = _paths_of(device)
        if not paths:
            return replace(device, numa_nodes=())
        if before is not None and _counts_still(before[0], device, paths):
            return replace(device, numa_nodes=before[1].numa_nodes)
        if paths not in read:  # replicas of one device share its paths
            read[paths] = self._read(device, paths)
        return replace(device, numa_nodes=read[paths])

    def _read(self, device: Device, paths: tuple[str, ...]) -> tuple[int, ...]:
        try:
            return self._reader.nodes_of(paths)
        except NoTopology as error:
            _log.warning("device %s is reported without topology: %s", device.id, error)
            return ()


def _counts_still(before: Device, now: Device, paths: tuple[str, ...]) -> bool:
    """Whether the look-up for `before` is good for `now`, which has these paths.

    Not for a device that recovered: its file may have been missing, or it may be elsewhere now.
    """
    has_recovered = now.is_healthy and not before.is_healthy
    return before.numa_nodes is None and paths == _paths_of(before) and not has_recovered


def _paths_of(device: Device) -> tuple[str, ...]:
    """Return the device files that say where a device is; in CDI if nowhere else."""
    if device.specs or device.paths or device.cdi is None or isinstance(device.cdi, str):
        return tuple(spec.host_path for spec in device.all_specs)
    edits = getattr(device.cdi, "container_edits", device.cdi)
    return tuple(node.host_path or node.path for node in edits.device_nodes)
