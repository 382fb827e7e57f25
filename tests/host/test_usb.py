"""USB devices, on trees of the form that the kernel documents."""

from pathlib import Path
from typing import Any

import pytest

from kubedevices.host import usb
from tests.host.sysfs_trees import add_usb


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    """A host with two equal serial adapters, one without a serial number, and a camera."""
    sys = tmp_path / "sys"
    add_usb(sys, "1-10", number=12, serial="A10", manufacturer="FTDI", product="FT232R  UART")
    add_usb(sys, "1-2", number=7)
    add_usb(
        sys,
        "2-1.4",
        vendor="046D",
        product_id="0825",
        bus=2,
        number=123,
        serial=" ",
        device_class="ef0201",
        interface_class="0E0100",
    )
    return sys


def ports(sys: Path, **wanted: Any) -> list[str]:
    return [each.port for each in usb.devices(sysfs_root=sys, **wanted)]


def test_everything_known_of_a_device_is_read(sys: Path) -> None:
    """USB interfaces are not devices; the file's name has the bus and device numbers."""
    _, adapter, camera = usb.devices(sysfs_root=sys)
    assert adapter == usb.UsbDevice(
        port="1-10",
        directory=(sys / "devices/pci0000:00/0000:00:14.0/usb1/1-10").resolve(),
        vendor="0403",
        product="6001",
        file="/dev/bus/usb/001/012",
        serial="A10",
        manufacturer="FTDI",
        product_name="FT232R  UART",
    )
    assert (camera.vendor, camera.file, camera.serial) == ("046d", "/dev/bus/usb/002/123", None)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, ["1-2", "1-10", "2-1.4"]),
        ({"vendor": "0403"}, ["1-2", "1-10"]),
        ({"vendor": "0x046d", "product": "0825"}, ["2-1.4"]),
        ({"vendor": ["0403", "046d"], "serial": "*"}, ["1-2", "1-10", "2-1.4"]),
        ({"serial": "A*"}, ["1-10"]),
        ({"serial": "?*"}, ["1-10"]),
        ({"serial": ""}, ["1-2", "2-1.4"]),
        ({"product": "6015"}, []),
        ({"device_class": "0e"}, ["2-1.4"]),
        ({"device_class": "EF02"}, ["2-1.4"]),
        ({"device_class": "ff", "serial": "?*"}, ["1-10"]),
        ({"device_class": "02"}, []),
    ],
)
def test_devices_are_chosen(sys: Path, wanted: dict[str, Any], found: list[str]) -> None:
    """Vendor, product and serial number, in natural order of the ports."""
    assert ports(sys, **wanted) == found


def test_a_device_unplugged_during_the_call_is_left_out(sys: Path) -> None:
    """Its link has no target, or its directory is incomplete."""
    (sys / "bus/usb/devices/3-1").symlink_to("../../../devices/gone")
    (sys / "bus/usb/devices/1-2/devnum").unlink()
    assert ports(sys) == ["1-10", "2-1.4"]


def test_a_host_without_usb_has_no_devices(tmp_path: Path) -> None:
    """Virtual machines are often like that."""
    assert usb.devices(sysfs_root=tmp_path) == ()
