"""USB devices of this host, chosen by what /sys says of them. Blocking file access.

For scanners: `usb.devices(vendor="0403", serial="A*")`. A device has a file of its own below
/dev/bus/usb, and mostly others made by drivers, such as /dev/ttyUSB0:
`device_files.device_files_below(device.directory)` finds all.
"""

from dataclasses import dataclass
from pathlib import Path

from kubedevices.host.pci import Wanted, fits, fits_hex, read_hex
from kubedevices.host.sysfs import SYSFS_ROOT, list_entries, read_attribute


@dataclass(frozen=True)
class UsbDevice:
    """One USB device; `port` is where it is plugged in (`1-1.4`), which survives a re-plug.

    `file` is its host path below /dev/bus/usb, whose number changes with every re-plug.
    """

    port: str
    directory: Path
    vendor: str
    product: str
    file: str
    serial: str | None = None
    manufacturer: str | None = None
    product_name: str | None = None


def devices(
    *,
    vendor: Wanted = None,
    product: Wanted = None,
    serial: Wanted = None,
    sysfs_root: Path = SYSFS_ROOT,
) -> tuple[UsbDevice, ...]:
    """Return the devices that fit everything given, by port.

    Without `serial` and with `*` a device without a serial number fits too. Root hubs are devices
    like others. One that is unplugged while we look is left out.
    """
    places = list_entries(sysfs_root / "bus/usb/devices")
    found = [each for place in places if (each := _read(place)) is not None]
    return tuple(
        each
        for each in found
        if fits_hex(each.vendor, vendor)
        and fits_hex(each.product, product)
        and fits(each.serial or "", serial)
    )


def _read(place: Path) -> UsbDevice | None:
    """Return the device; interfaces, which stand beside the devices, have no vendor."""
    try:
        directory = place.resolve(strict=True)
        vendor = read_hex(directory / "idVendor")
        bus, number = (read_attribute(directory / name) or "" for name in ("busnum", "devnum"))
        if not vendor or not bus.isdecimal() or not number.isdecimal():
            return None
        return UsbDevice(
            port=place.name,
            directory=directory,
            vendor=vendor,
            product=read_hex(directory / "idProduct"),
            file=f"/dev/bus/usb/{int(bus):03}/{int(number):03}",
            serial=read_attribute(directory / "serial") or None,
            manufacturer=read_attribute(directory / "manufacturer") or None,
            product_name=read_attribute(directory / "product") or None,
        )
    except OSError:  # unplugged while we looked
        return None
