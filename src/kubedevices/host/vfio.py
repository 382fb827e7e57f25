"""The device files through which vfio gives a PCI function to a container or virtual machine.

Blocking file access. Isolation ends at the IOMMU group: whoever gets the group's file gets every
function in it, so `members` is to be looked at before one is handed out.
"""

from pathlib import Path

from kubedevices.device import DeviceSpec
from kubedevices.errors import NoVfioGroup
from kubedevices.host.pci import target_name
from kubedevices.host.sysfs import DEV_ROOT, SYSFS_ROOT, list_entries

CONTROL_FILE = "/dev/vfio/vfio"


def nodes(
    pci_address: str, *, sysfs_root: Path = SYSFS_ROOT, dev_root: Path = DEV_ROOT
) -> tuple[DeviceSpec, ...]:
    """Return the file of the function's group and vfio's own; raises `NoVfioGroup`.

    Without an IOMMU, which must be allowed explicitly, the group's file is `noiommu-<group>`.
    """
    group = group_of(pci_address, sysfs_root=sysfs_root)
    for name in (group, f"noiommu-{group}"):
        if (dev_root / "vfio" / name).exists():
            return DeviceSpec(f"/dev/vfio/{name}"), DeviceSpec(CONTROL_FILE)
    raise NoVfioGroup(
        pci_address,
        f"/dev/vfio/{group} is not there (bind every function of the group to vfio-pci: "
        f"{', '.join(members(group, sysfs_root=sysfs_root))})",
    )


def group_of(pci_address: str, *, sysfs_root: Path = SYSFS_ROOT) -> str:
    """Return the number of the function's IOMMU group; raises `NoVfioGroup`."""
    directory = sysfs_root / "bus/pci/devices" / pci_address
    if not directory.exists():
        raise NoVfioGroup(pci_address, "there is no such device")
    group = target_name(directory / "iommu_group")
    if group is None:
        raise NoVfioGroup(
            pci_address,
            "it is in no IOMMU group (switch the IOMMU on in firmware and kernel, or bind the "
            "device to vfio-pci without IOMMU)",
        )
    return group


def members(group: str, *, sysfs_root: Path = SYSFS_ROOT) -> tuple[str, ...]:
    """Return the addresses of all functions of an IOMMU group."""
    places = list_entries(sysfs_root / "kernel/iommu_groups" / group / "devices")
    return tuple(place.name for place in places)
