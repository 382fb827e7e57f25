"""Adds to devices where they are: NUMA nodes, PCI function and root. Blocking file access.

`resource.kubernetes.io/pciBusID` and `pcieRoot` are what claims align devices of several drivers by
(KEP-4381). An author who says them keeps them.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from kubedevices.device import Device
from kubedevices.device_tree import DeviceTree
from kubedevices.dra.slices import PCI_BUS_ID, PCIE_ROOT
from kubedevices.host.pci import PciPlace, place_of_file
from kubedevices.host.sysfs import DEV_ROOT, SYSFS_ROOT, NumaReader
from kubedevices.plugin.numa_lookup import NumaLookup, files_of


class TreeLookup:
    """Looks a device up when it appears or changes. For one caller at a time."""

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
        """Return `tree` with the places of its devices; blocks while it reads /sys."""
        tree = self._numa.complete(tree)
        # Only devices of this tree stay: a device that comes back may be in another slot.
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
        """Say only what is true of all files of the device."""
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
