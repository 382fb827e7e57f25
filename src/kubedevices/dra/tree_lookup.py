"""Adds NUMA nodes, PCI address and PCIe root to devices. Blocking file access.

With the attributes `resource.kubernetes.io/pciBusID` and `pcieRoot` a claim can align devices of
several drivers (KEP-4381). Attributes that the author has set are not replaced.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from kubedevices.dra.slices import PCI_BUS_ID, PCIE_ROOT
from kubedevices.host.pci import PciPlace, place_of_file
from kubedevices.host.sysfs import DEV_ROOT, SYSFS_ROOT, NumaReader
from kubedevices.plugin.numa_lookup import NumaLookup, files_of
from kubedevices.values.device import Device
from kubedevices.values.device_tree import DeviceTree


class TreeLookup:
    """Looks up a device when it appears or changes. Not safe for two calls at the same time."""

    def __init__(
        self,
        sysfs_root: Path = SYSFS_ROOT,
        dev_root: Path = DEV_ROOT,
        numa_reader: NumaReader | None = None,
        place_of: Callable[[str], PciPlace | None] | None = None,
    ) -> None:
        reader = numa_reader or NumaReader(sysfs_root=sysfs_root, dev_root=dev_root)
        self._numa = NumaLookup(reader)
        self._place_of = place_of or partial(
            place_of_file, sysfs_root=sysfs_root, dev_root=dev_root
        )
        self._known: dict[tuple[str, str], tuple[Device, Device]] = {}

    def complete(self, tree: DeviceTree) -> DeviceTree:
        """Return `tree` with NUMA nodes and PCI attributes; blocks while it reads /sys."""
        tree = self._numa.complete(tree)
        # Forget devices that are not in this tree: a device may come back in another slot.
        before, self._known = self._known, {}
        for device_type in tree:
            for name, device in tree.devices(device_type).items():
                known = before.get((device_type, name))
                is_known = known is not None and known[0] == device
                found = known[1] if known and is_known else self._complete(device)
                self._known[device_type, name] = device, found
        return DeviceTree(
            {each: [self._known[each, name][1] for name in tree.devices(each)] for each in tree}
        )

    def _complete(self, device: Device) -> Device:
        """Add an attribute only if all files of the device agree on its value."""
        places = list(filter(None, map(self._place_of, files_of(device))))
        roots = {each.root for each in places}
        addresses = {None if each.is_behind_bus else each.address for each in places}
        attributes = {}
        if len(roots) == 1 and (root := roots.pop()):
            attributes[PCIE_ROOT] = root
        if len(addresses) == 1 and (address := addresses.pop()):
            attributes[PCI_BUS_ID] = address
        missing = {name: text for name, text in attributes.items() if name not in device.attributes}
        return replace(device, attributes={**device.attributes, **missing}) if missing else device
