"""The device files through which vfio gives a PCI function to a container or virtual machine.

Blocking file access. vfio isolates IOMMU groups, not single functions: a container with the group's
file can use all functions in the group. So check `members` before a device is offered.
"""

from pathlib import Path

from kubedevices.errors import NoVfioGroup
from kubedevices.host.pci import target_name
from kubedevices.host.sysfs import DEV_ROOT, SYSFS_ROOT, list_entries
from kubedevices.values.device import DeviceSpec

CONTROL_FILE = "/dev/vfio/vfio"


def nodes(
    pci_address: str, *, sysfs_root: Path = SYSFS_ROOT, dev_root: Path = DEV_ROOT
) -> tuple[DeviceSpec, ...]:
    """Return the device file of the function's group and /dev/vfio/vfio; raises `NoVfioGroup`.

    Without an IOMMU, if the administrator allowed that, the group's file is `noiommu-<group>`.
    """
    group = group_of(pci_address, sysfs_root=sysfs_root)
    for name in (group, f"noiommu-{group}"):
        if (dev_root / "vfio" / name).exists():
            return DeviceSpec(f"/dev/vfio/{name}"), DeviceSpec(CONTROL_FILE)
    raise NoVfioGroup(
        pci_address,
        f"/dev/vfio/{group} does not exist (bind every function of the group to vfio-pci: "
        f"{', '.join(members(group, sysfs_root=sysfs_root))})",
    )


def group_of(pci_address: str, *, sysfs_root: Path = SYSFS_ROOT) -> str:
    """Return the number of the function's IOMMU group; raises `NoVfioGroup`."""
    directory = sysfs_root / "bus/pci/devices" / pci_address
    if not directory.exists():
        raise NoVfioGroup(pci_address, "this device does not exist")
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
