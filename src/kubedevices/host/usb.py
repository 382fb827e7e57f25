"""USB devices of this host, selected by their attributes in /sys. Blocking file access.

For scanners: `usb.devices(vendor="0403", serial="A*")`. A device has a device file below
/dev/bus/usb, and usually more device files of its drivers, such as /dev/ttyUSB0:
`device_files.device_files_below(device.directory)` finds all of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kubedevices.host.pci import read_hex
from kubedevices.host.sysfs import SYSFS_ROOT, list_entries, read_attribute
from kubedevices.values.wildcards import Wanted, fits, fits_hex

_CLASS_PARTS = ("Class", "SubClass", "Protocol")


@dataclass(frozen=True)
class UsbDevice:
    """One USB device; `port` is its place (`1-1.4`), which stays the same after a re-plug.

    `file` is its host path below /dev/bus/usb; the number in it changes with each re-plug.
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
    device_class: Wanted = None,
    sysfs_root: Path = SYSFS_ROOT,
) -> tuple[UsbDevice, ...]:
    """Return the devices that match all arguments, sorted by port. Root hubs are devices too.

    A device without a serial number matches no `serial` except `*`. `device_class` is the class of
    the device or of one of its interfaces, and may be its beginning: `e0` matches all wireless
    controllers, `e00101` (class, subclass, protocol) Bluetooth. A device that is unplugged during
    the call is left out.
    """
    places = list_entries(sysfs_root / "bus/usb/devices")
    found = [each for place in places if (each := _read(place)) is not None]
    return tuple(
        each
        for each in found
        if fits_hex(each.vendor, vendor)
        and fits_hex(each.product, product)
        and fits(each.serial or "", serial)
        and (
            device_class is None
            or any(fits_hex(text, device_class, prefix=True) for text in _classes(each))
        )
    )


def _classes(device: UsbDevice) -> Iterator[str]:
    """Yield class, subclass and protocol of the device and of its interfaces, as six digits.

    Most devices have the class 00 or ef and say by their interfaces what they are.
    """
    below = list_entries(device.directory)
    interfaces = [each for each in below if each.name.startswith(f"{device.port}:")]
    for place, of in (device.directory, "bDevice"), *((each, "bInterface") for each in interfaces):
        parts = (read_attribute(place / f"{of}{part}") for part in _CLASS_PARTS)
        yield "".join(each or "" for each in parts).lower()


def _read(place: Path) -> UsbDevice | None:
    """Return the device; None for USB interfaces, which /sys lists too: they have no vendor."""
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
    except OSError:  # unplugged during the call
        return None
