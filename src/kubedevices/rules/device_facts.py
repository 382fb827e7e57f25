"""Looks up on the host what rules need to know of devices: NUMA nodes and PCI functions.

Reads files, so calls block. A result is remembered as long as the device is listed.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from kubedevices.host import pci
from kubedevices.host.sysfs import DEV_ROOT, SYSFS_ROOT, NumaReader
from kubedevices.plugin.numa_lookup import NumaLookup
from kubedevices.values.device import Device
from kubedevices.values.device_tree import DeviceTree

_ADDRESS = re.compile(r"(?<![0-9a-f])(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?!\w)")


class DeviceFacts:
    """For devices of all types; `sysfs_root` and `dev_root` replace /sys and /dev."""

    def __init__(self, sysfs_root: Path = SYSFS_ROOT, dev_root: Path = DEV_ROOT) -> None:
        self._sysfs_root, self._dev_root = sysfs_root, dev_root
        self._numa = NumaLookup(NumaReader(sysfs_root=sysfs_root, dev_root=dev_root))
        self._functions: dict[Device, pci.PciDevice] = {}

    def with_numa_nodes(
        self, device_type: str, devices: Mapping[str, Device]
    ) -> Mapping[str, Device]:
        """Return `devices` by ID, with NUMA nodes looked up where `numa_nodes` is None."""
        return self._numa.complete_type(device_type, devices)

    def pci_function(self, device: Device) -> pci.PciDevice | None:
        """Return the PCI function of a device; None if neither its ID nor its files lead to one."""
        known = self._functions.get(device)
        if known is None and (address := self._address_of(device)):
            known = pci.find(address, sysfs_root=self._sysfs_root)
            if known is not None:
                self._functions[device] = known
        return known

    def keep_only(self, tree: DeviceTree) -> None:
        """Forget the PCI functions of devices that are not in `tree` any more."""
        if self._functions:
            listed = {each for name in tree for each in tree.devices(name).values()}
            self._functions = {
                each: found for each, found in self._functions.items() if each in listed
            }

    def _address_of(self, device: Device) -> str | None:
        if address := pci_address_in(device.id):
            return address
        for spec in device.all_specs:
            found = pci.place_of_file(
                spec.host_path, sysfs_root=self._sysfs_root, dev_root=self._dev_root
            )
            if found is not None:
                return found.address
        return None


def pci_address_in(text: str) -> str | None:
    """Return the PCI address in an ID, with its domain: `0000:3b:00.0` for `gpu-3b:00.0`."""
    found = _ADDRESS.search(text.lower())
    return f"{found[1] or '0000'}:{found[2]}" if found else None
