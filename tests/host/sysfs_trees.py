"""Small trees like /sys and /dev, written as the kernel documents its own.

Documentation/ABI/testing/sysfs-bus-pci, sysfs-bus-usb, Documentation/driver-api/vfio.rst.
"""

import os
from collections.abc import Mapping
from pathlib import Path


def write(directory: Path, attributes: Mapping[str, object]) -> Path:
    """Make `directory` with one file per attribute, each ending in a line break."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, value in attributes.items():
        (directory / name).write_text(f"{value}\n")
    return directory


def link(at: Path, to: Path) -> None:
    """Make a relative link, as all links of /sys are."""
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(os.path.relpath(to, at.parent))


def add_pci(
    sys: Path,
    address: str,
    *,
    vendor: str = "0x8086",
    device: str = "0x1563",
    device_class: str = "0x020000",
    driver: str = "",
    group: str = "",
    **attributes: object,
) -> Path:
    """Add a PCI function, in a root bus of its domain and bus number."""
    bus = f"pci{address.rsplit(':', 1)[0]}"
    directory = write(
        sys / "devices" / bus / address,
        {
            "vendor": vendor,
            "device": device,
            "class": device_class,
            "revision": "0x01",
            "subsystem_vendor": vendor,
            "subsystem_device": "0x0001",
            "numa_node": "-1",
        }
        | attributes,
    )
    link(sys / "bus/pci/devices" / address, directory)
    if driver:
        link(directory / "driver", write(sys / "bus/pci/drivers" / driver, {}))
    if group:
        place = write(sys / "kernel/iommu_groups" / group / "devices", {})
        link(directory / "iommu_group", place.parent)
        link(place / address, directory)
    return directory


def add_virtual_functions(sys: Path, physical: str, *virtual: str) -> None:
    """Link a physical function with its virtual ones, which are there already."""
    parent = (sys / "bus/pci/devices" / physical).resolve()
    write(parent, {"sriov_numvfs": len(virtual)})
    for i, address in enumerate(virtual):
        child = (sys / "bus/pci/devices" / address).resolve()
        link(parent / f"virtfn{i}", child)
        link(child / "physfn", parent)


def add_usb(
    sys: Path,
    port: str,
    *,
    vendor: str = "0403",
    product_id: str = "6001",
    bus: int = 1,
    number: int = 4,
    device_class: str = "000000",
    interface_class: str = "ff0000",
    **texts: str,
) -> Path:
    """Add a USB device with one interface; `texts` are serial, manufacturer, product."""
    directory = write(
        sys / f"devices/pci0000:00/0000:00:14.0/usb{bus}" / port,
        {"idVendor": vendor, "idProduct": product_id, "busnum": bus, "devnum": number}
        | texts
        | _class("bDevice", device_class),
    )
    interface = write(
        directory / f"{port}:1.0",
        {"bInterfaceNumber": "00"} | _class("bInterface", interface_class),
    )
    link(sys / "bus/usb/devices" / port, directory)
    link(sys / "bus/usb/devices" / interface.name, interface)
    return directory


def _class(of: str, digits: str) -> dict[str, str]:
    names = (f"{of}Class", f"{of}SubClass", f"{of}Protocol")
    return dict(zip(names, (digits[:2], digits[2:4], digits[4:]), strict=True))
