"""The device files through which vfio gives a PCI function to a container or virtual machine.

Blocking file access. vfio isolates IOMMU groups, not single functions: a container with the group's
file can use all functions in the group. So check `members` before a device is offered, and
`not_viable`: the kernel opens no file of a group while one of its functions has another driver.
"""

from pathlib import Path

from kubedevices.errors import NoVfioGroup
from kubedevices.host.pci import target_name
from kubedevices.host.sysfs import DEV_ROOT, SYSFS_ROOT, list_entries
from kubedevices.values.device import DeviceSpec

CONTROL_FILE, IOMMU_FILE = "/dev/vfio/vfio", "/dev/iommu"

DRIVER = "vfio-pci"

_HARMLESS = (DRIVER, "pcieport", "pci-stub")
"""Drivers of functions that leave their group viable, as no driver does (drivers/vfio in Linux)."""


def nodes(
    pci_address: str,
    *,
    interface: str = "group",
    sysfs_root: Path = SYSFS_ROOT,
    dev_root: Path = DEV_ROOT,
) -> tuple[DeviceSpec, ...]:
    """Return the device files that give the function; raises `NoVfioGroup` if there is none.

    `interface` is `group`: the file of the IOMMU group, with /dev/vfio/vfio; or `cdev`: the file of
    the function, with /dev/iommu (iommufd, Linux 6.6); or `both`, as far as this host has them.
    Without an IOMMU, if the administrator allowed that, the group's file is `noiommu-<group>`.
    """
    group = group_of(pci_address, sysfs_root=sysfs_root)
    found: list[str] = []
    if interface != "cdev":
        names = [
            name for name in (group, f"noiommu-{group}") if (dev_root / "vfio" / name).exists()
        ]
        found += [f"/dev/vfio/{names[0]}", CONTROL_FILE] if names else []
    if interface != "group":
        directory = sysfs_root / "bus/pci/devices" / pci_address / "vfio-dev"
        own = [place.name for place in list_entries(directory)]
        if own and (dev_root / "vfio/devices" / own[0]).exists():
            found += [f"/dev/vfio/devices/{own[0]}", IOMMU_FILE]
    if found:
        return tuple(map(DeviceSpec, found))
    if interface == "cdev":
        raise NoVfioGroup(
            pci_address, "the kernel has no file for it in /dev/vfio/devices (iommufd, Linux 6.6)"
        )
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


def not_viable(group: str, *, sysfs_root: Path = SYSFS_ROOT) -> dict[str, str]:
    """Return address and driver of each function that keeps the kernel from opening the group."""
    known = sysfs_root / "bus/pci/devices"
    drivers = {
        address: target_name(known / address / "driver")
        for address in members(group, sysfs_root=sysfs_root)
    }
    return {address: name for address, name in drivers.items() if name and name not in _HARMLESS}
