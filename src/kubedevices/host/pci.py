"""PCI functions of this host, selected by their attributes in /sys. Blocking file access.

For scanners: `pci.devices(vendor="8086", driver="vfio-pci")`. To find the device files of a
function, call `device_files.device_files_below(function.directory)`; for vfio see `host.vfio`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from kubedevices.host.sysfs import (
    DEV_ROOT,
    SYSFS_ROOT,
    DeviceNumber,
    list_entries,
    own_device_number,
    read_attribute,
)
from kubedevices.values.wildcards import Wanted, fits, fits_hex

Sriov = Literal["pf", "vf", "undivided"]
"""`pf`: a physical function, which can have virtual functions. `vf`: a virtual function.
`undivided`: no virtual functions are enabled.

A plugin must not offer a physical function together with its virtual functions.
"""

_ROOT = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")


@dataclass(frozen=True)
class PciDevice:
    """One PCI function. IDs are hexadecimal in lower case without 0x, as `lspci -n` shows them."""

    address: str
    directory: Path
    vendor: str
    device: str
    device_class: str
    revision: str = ""
    subsystem_vendor: str = ""
    subsystem_device: str = ""
    driver: str | None = None
    iommu_group: str | None = None
    numa_node: int | None = None
    total_vfs: int = 0
    num_vfs: int = 0
    physical_function: str | None = None
    virtual_functions: tuple[str, ...] = ()

    def is_sriov(self, kind: Sriov) -> bool:
        """Whether the function is of this kind."""
        if kind == "pf":
            return self.total_vfs > 0
        if kind == "vf":
            return self.physical_function is not None
        return self.num_vfs == 0


def devices(
    *,
    vendor: Wanted = None,
    device: Wanted = None,
    device_class: Wanted = None,
    driver: Wanted = None,
    sriov: Sriov | None = None,
    sysfs_root: Path = SYSFS_ROOT,
) -> tuple[PciDevice, ...]:
    """Return the functions that match all arguments, sorted by address.

    `device_class` may be the beginning of a class: `03` matches all display controllers. An empty
    `driver` matches functions without a driver. A function that disappears during the call is left
    out.
    """
    places = list_entries(sysfs_root / "bus/pci/devices")
    found = [each for place in places if (each := _read(place)) is not None]
    return tuple(
        each
        for each in sorted(found, key=lambda each: (len(each.address), each.address))
        if fits_hex(each.vendor, vendor)
        and fits_hex(each.device, device)
        and fits_hex(each.device_class, device_class, prefix=True)
        and fits(each.driver or "", driver)
        and (sriov is None or each.is_sriov(sriov))
    )


def find(address: str, *, sysfs_root: Path = SYSFS_ROOT) -> PciDevice | None:
    """Return the function at `address`, None if it does not exist."""
    return _read(sysfs_root / "bus/pci/devices" / address)


class PciPlace(NamedTuple):
    """The place of a device file among the PCI functions.

    `address`: the nearest function above the device. `root`: its PCI root, such as `pci0000:3a`, if
    any. `is_behind_bus`: the device is on another bus behind the function, such as a USB stick.
    """

    address: str
    root: str | None
    is_behind_bus: bool


def place_of_file(
    path: str,
    *,
    sysfs_root: Path = SYSFS_ROOT,
    dev_root: Path = DEV_ROOT,
    stat_device: Callable[[Path], DeviceNumber | None] = own_device_number,
) -> PciPlace | None:
    """Return the place of a device file, None if no PCI function is above its device.

    For the file of a vfio group, returns the place of the group's first function.
    """
    place = Path(path)
    if place.is_relative_to(DEV_ROOT):
        place = dev_root / place.relative_to(DEV_ROOT)
    try:
        if (number := stat_device(place)) is None:
            return None
        directory = (sysfs_root / f"dev/{number.kind}/{number.major}:{number.minor}").resolve()
        group = sysfs_root / "kernel/iommu_groups" / directory.name / "devices"
        members = list_entries(group) if directory.parent.name == "vfio" else ()
        known = sysfs_root / "bus/pci/devices"
        is_behind = False
        for each in (*members, directory, *directory.parents):
            if each.name and (known / each.name).exists():
                return PciPlace(each.name, _root_of(each.resolve()), is_behind)
            is_behind = is_behind or _is_on_another_bus(each)
    except (OSError, RuntimeError):  # the device disappeared, or a loop of links
        pass
    return None


def _root_of(directory: Path) -> str | None:
    """Return the PCI root of a function: the outermost, since a function behind a VMD has two."""
    return next(filter(_ROOT.fullmatch, directory.parts), None)


def _is_on_another_bus(directory: Path) -> bool:
    """Whether a device is on a bus other than PCI; virtio devices of a VM are PCI functions."""
    try:
        subsystem = (directory / "subsystem").readlink()
    except OSError:
        return False
    return subsystem.parent.name == "bus" and subsystem.name not in ("pci", "virtio")


def _read(place: Path) -> PciDevice | None:
    try:
        directory = place.resolve(strict=True)
        virtual = [each for each in list_entries(directory) if each.name.startswith("virtfn")]
        if not (vendor := read_hex(directory / "vendor")):
            return None
        return PciDevice(
            address=place.name,
            directory=directory,
            vendor=vendor,
            device=read_hex(directory / "device"),
            device_class=read_hex(directory / "class"),
            revision=read_hex(directory / "revision"),
            subsystem_vendor=read_hex(directory / "subsystem_vendor"),
            subsystem_device=read_hex(directory / "subsystem_device"),
            driver=target_name(directory / "driver"),
            iommu_group=target_name(directory / "iommu_group"),
            numa_node=_number(directory / "numa_node", below_zero=None),
            total_vfs=_number(directory / "sriov_totalvfs") or 0,
            num_vfs=_number(directory / "sriov_numvfs") or 0,
            physical_function=target_name(directory / "physfn"),
            virtual_functions=tuple(each.readlink().name for each in virtual),
        )
    except OSError:  # unplugged during the call
        return None


def read_hex(path: Path) -> str:
    """Return a hexadecimal attribute in lower case without 0x, empty if it does not exist."""
    return (read_attribute(path) or "").lower().removeprefix("0x")


def target_name(link: Path) -> str | None:
    """Return the last part of the target of a link in /sys, None if there is no link."""
    try:
        return link.readlink().name
    except (FileNotFoundError, NotADirectoryError):
        return None


def _number(path: Path, below_zero: int | None = 0) -> int | None:
    text = read_attribute(path) or ""
    try:
        number = int(text)
    except ValueError:
        return None
    return number if number >= 0 else below_zero
