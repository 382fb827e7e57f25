"""Device files: numbers, links, and those below a directory of /sys."""

import os
from pathlib import Path

import pytest

from kubedevices.errors import CannotAsk, NotADeviceFile
from kubedevices.host.device_files import (
    char_link,
    device_files_below,
    read_device_file,
    read_device_files,
)
from kubedevices.values.cdi import DeviceFile


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    """A /dev with links to the real /dev/null and /dev/zero: making device files needs root."""
    dev = tmp_path / "dev"
    (dev / "char").mkdir(parents=True)
    for name in ("null", "zero"):
        (dev / name).symlink_to(f"/dev/{name}")
    (dev / "text").write_text("x")
    return dev


def test_the_numbers_of_a_device_file() -> None:
    """Type, numbers, mode and owner are the kernel's."""
    status = Path("/dev/null").stat()
    assert read_device_file("/dev/null") == DeviceFile(
        "c", 1, 3, status.st_mode & 0o7777, status.st_uid, status.st_gid
    )
    assert read_device_files(["/dev/null", "/dev/zero"])["/dev/zero"].minor == 5


def test_a_fifo_is_a_device_file_too(tmp_path: Path) -> None:
    """Its CDI type is p; only paths below /dev are replaced by `dev_root`."""
    os.mkfifo(tmp_path / "pipe", 0o640)
    assert read_device_file(tmp_path / "pipe").type == "p"
    assert read_device_file(tmp_path / "pipe", dev_root=tmp_path).type == "p"


def test_a_link_is_followed_only_for_device_plugins(dev: Path) -> None:
    """Engines refuse a link as the host path of a CDI device."""
    assert read_device_file("/dev/null", dev_root=dev).minor == 3
    with pytest.raises(NotADeviceFile, match="/dev/null: not a device node"):
        read_device_file("/dev/null", follow=False, dev_root=dev)


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/dev/text", "not a device node"), ("/dev/gone", "No such file"), ("/dev", "not a device")],
)
def test_a_path_that_is_not_a_device_file_is_an_error(dev: Path, path: str, reason: str) -> None:
    """The error carries the path and the reason."""
    with pytest.raises(NotADeviceFile, match=reason) as caught:
        read_device_file(path, dev_root=dev)
    assert caught.value.path == path
    assert isinstance(caught.value, CannotAsk)


def test_a_char_link_must_lead_to_the_device(dev: Path) -> None:
    """A link to another device counts like a missing link."""
    assert char_link("/dev/null", dev_root=dev) is None
    (dev / "char/1:3").symlink_to("../zero")
    assert char_link("/dev/null", dev_root=dev) is None
    (dev / "char/1:3").unlink()
    (dev / "char/1:3").symlink_to("../null")
    assert char_link("/dev/null", dev_root=dev) == "/dev/char/1:3"


def test_a_fifo_has_no_link(tmp_path: Path) -> None:
    """Only block and character devices have numbers."""
    os.mkfifo(tmp_path / "pipe")
    assert char_link(tmp_path / "pipe") is None


def add_class_device(directory: Path, dev: Path, name: str) -> None:
    """Write what the kernel puts into the directory of a device that has a file in /dev."""
    directory.mkdir(parents=True)
    (directory / "dev").write_text("226:0\n")
    (directory / "uevent").write_text(f"MAJOR=226\nMINOR=0\nDEVNAME={name}\nDEVTYPE=x\nrubbish\n")
    (dev / name).parent.mkdir(parents=True, exist_ok=True)
    (dev / name).touch()


def test_all_device_files_of_a_gpu_are_found(tmp_path: Path, dev: Path) -> None:
    """Each class below the PCI device may add some; links and drivers are not followed."""
    pci = tmp_path / "sys/devices/pci0000:00/0000:00:02.0"
    add_class_device(pci / "drm/card10", dev, "dri/card10")
    add_class_device(pci / "drm/card2", dev, "dri/card2")
    add_class_device(pci / "drm/renderD128", dev, "dri/renderD128")
    (pci / "drm/card2/device").symlink_to("../..")
    (pci / "drm/card2/status").write_text("connected\n")
    assert device_files_below(pci, dev_root=dev) == (
        "/dev/dri/card2",
        "/dev/dri/card10",
        "/dev/dri/renderD128",
    )


def test_a_device_behind_another_one_does_not_belong_to_it(tmp_path: Path, dev: Path) -> None:
    """Devices behind a hub or bridge are other devices; interfaces and disks belong to it."""
    hub = tmp_path / "sys/devices/pci0000:00/usb1/1-1"
    add_class_device(hub / "1-1:1.0/ttyUSB0/tty/ttyUSB0", dev, "ttyUSB0")
    add_class_device(hub / "1-1.4/1-1.4:1.0/ttyUSB1/tty/ttyUSB1", dev, "ttyUSB1")
    (hub / "1-1.4/idVendor").write_text("0403\n")
    bridge = tmp_path / "sys/devices/pci0000:00/0000:00:01.0"
    add_class_device(bridge / "0000:01:00.0/nvme/nvme0", dev, "nvme0")
    for name in ("vendor", "class"):
        (bridge / f"0000:01:00.0/{name}").write_text("0x8086\n")
    disk = bridge / "ata1/host0/target0:0:0/0:0:0:0"
    add_class_device(disk / "block/sda", dev, "sda")
    (disk / "vendor").write_text("ATA\n")
    assert device_files_below(hub, dev_root=dev) == ("/dev/ttyUSB0",)
    assert device_files_below(bridge, dev_root=dev) == ("/dev/sda",)


def test_a_device_file_that_is_not_there_yet_is_left_out(tmp_path: Path, dev: Path) -> None:
    """udev creates the file shortly after the kernel's event; DEVNAME may be absent."""
    directory = tmp_path / "sys/devices/virtual/misc/gadget"
    directory.mkdir(parents=True)
    (directory / "dev").write_text("10:1\n")
    assert device_files_below(directory, dev_root=dev) == ()
    (dev / "gadget").touch()
    assert device_files_below(directory, dev_root=dev) == ("/dev/gadget",)


def test_a_directory_that_vanished_has_no_device_files(tmp_path: Path) -> None:
    """Unplugging during a scan is no error."""
    assert device_files_below(tmp_path / "gone") == ()
