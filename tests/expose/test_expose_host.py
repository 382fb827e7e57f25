"""What the host has, on trees of the form that the kernel documents."""

import os
import stat
from pathlib import Path
from typing import Literal

import pytest

from kubedevices.expose.config import load_expose_config
from kubedevices.expose.found import Found, HostFile
from kubedevices.expose.host import HostDevices
from kubedevices.expose.match_keys import Match, PciMatch, UsbMatch
from kubedevices.expose.path_patterns import PathPattern
from kubedevices.expose.recognition import DeviceMemory
from kubedevices.expose.tree import survey
from tests.host.sysfs_trees import add_pci, add_usb, add_virtual_functions, link, write


class PretendMachine:
    """A /sys and a /dev below a temporary directory; device files are regular ones."""

    def __init__(self, root: Path) -> None:
        self.sys, self.dev = root / "sys", root / "dev"
        self.dev.mkdir()
        self.host = HostDevices(self.dev, self.sys)

    def file(self, *names: str) -> None:
        for name in names:
            (self.dev / name).parent.mkdir(parents=True, exist_ok=True)
            (self.dev / name).touch()

    def device_file(self, directory: Path, name: str, number: str = "188:0") -> None:
        """Let a driver make a device file of `directory`."""
        write(directory, {"dev": number, "uevent": f"DEVNAME={name}"})
        self.file(name)

    def find(self, match: Match) -> list[Found]:
        return list(self.host.find(match))


@pytest.fixture
def machine(tmp_path: Path) -> PretendMachine:
    return PretendMachine(tmp_path)


def test_a_usb_device_has_its_drivers_file_first(machine: PretendMachine) -> None:
    """The file of the bus comes along; a device without any file is none."""
    adapter = add_usb(machine.sys, "1-2", serial="A10 #1")
    machine.device_file(adapter, "bus/usb/001/004", "189:3")
    machine.device_file(adapter / "1-2:1.0/ttyUSB0/tty/ttyUSB0", "ttyUSB0")
    bare = add_usb(machine.sys, "1-3", number=5)
    machine.device_file(bare, "bus/usb/001/005", "189:4")
    add_usb(machine.sys, "1-4", number=6)
    first, second = machine.find(Match(usb=UsbMatch(vendor="0403")))
    assert (first.path, first.others) == ("/dev/ttyUSB0", ("/dev/bus/usb/001/004",))
    assert (first.address, first.stable) == ("1-2", "usb-0403-6001-A10__1")
    assert (second.path, second.others) == ("/dev/bus/usb/001/005", ())
    assert machine.host.stable_names(second) == ("usb-0403-6001-1-3", "port-1-3")
    assert "port-1-2" not in machine.host.stable_names(first), "it has a serial number"


def test_a_stick_that_changes_its_numbers_is_the_same_device(
    machine: PretendMachine, tmp_path: Path
) -> None:
    """Some load their program at the first use; the container that holds it keeps it."""
    file = tmp_path / "host.yaml"
    usb = ", ".join(f"{{usb: {{vendor: '{vendor}'}}}}" for vendor in ("1a6e", "18d1"))
    file.write_text(
        f"version: 1\nnamespace: a.com\nresources:\n- {{name: stick, match: [{usb}]}}\n"
    )
    config, memory = load_expose_config(file)[0], DeviceMemory()

    def ids() -> list[str]:
        return [each.id for each in survey(config, machine.host, memory) if each.is_there]

    for number, (vendor, product) in enumerate([("1a6e", "089a"), ("18d1", "9302")], start=2):
        for name in ("2-1", "2-1:1.0"):  # unplugged
            (machine.sys / "bus/usb/devices" / name).unlink(missing_ok=True)
        stick = add_usb(machine.sys, "2-1", vendor=vendor, product_id=product, number=number)
        machine.device_file(stick, f"bus/usb/002/00{number}", f"189:{127 + number}")
        assert ids() == ["usb-1a6e-089a-2-1"]
    other = add_usb(machine.sys, "2-2", vendor="18d1", product_id="9302", number=9)
    machine.device_file(other, "bus/usb/002/009", "189:136")
    assert ids() == ["usb-1a6e-089a-2-1", "usb-18d1-9302-2-2"]
    assert machine.find(Match(usb=UsbMatch(serial="B*"))) == []


def test_a_pci_function_has_the_files_of_its_driver(
    machine: PretendMachine, caplog: pytest.LogCaptureFixture
) -> None:
    """One without any is warned of, once, because somebody expects it."""
    gpu = add_pci(machine.sys, "0000:a1:00.0", device_class="0x030200", driver="i915")
    machine.device_file(gpu / "drm/renderD128", "dri/renderD128")
    machine.device_file(gpu / "drm/card0", "dri/card0")
    add_pci(machine.sys, "0000:3b:00.0", device_class="0x030000")
    match = Match(pci=PciMatch(class_="03"))
    for _ in range(2):
        (found,) = machine.find(match)
        assert (found.path, found.others) == ("/dev/dri/card0", ("/dev/dri/renderD128",))
        assert found.address == "0000:a1:00.0"
        assert machine.host.stable_names(found) == ("0000:a1:00.0",)
    assert caplog.messages == [
        "PCI function 0000:3b:00.0: no device file, so it cannot be exposed (its driver: none)"
    ]


def test_vfio_gives_the_file_of_the_group(machine: PretendMachine) -> None:
    """Two functions of one group lead to one file, so that they become one device."""
    for function in (0, 1):
        add_pci(machine.sys, f"0000:3b:00.{function}", driver="vfio-pci", group="42")
    machine.file("vfio/42", "vfio/vfio")
    found = machine.find(Match(pci=PciMatch(driver="vfio-pci")))
    assert [each.address for each in found] == ["0000:3b:00.0", "0000:3b:00.1"]
    assert {each.path for each in found} == {"/dev/vfio/42"}
    assert {each.others for each in found} == {("/dev/vfio/vfio",)}
    assert found[0].file == found[1].file
    (machine.dev / "vfio/42").unlink()
    assert machine.find(Match(pci=PciMatch(driver="vfio-pci"))) == []


def test_only_a_match_that_names_the_driver_offers_vfio(
    machine: PretendMachine, caplog: pytest.LogCaptureFixture
) -> None:
    """A pod that asks for a GPU must not get direct access to memory: it is warned of, once."""
    add_pci(machine.sys, "0000:3b:00.0", device_class="0x030000", driver="vfio-pci", group="42")
    machine.file("vfio/42", "vfio/vfio")
    for _ in range(2):
        assert machine.find(Match(pci=PciMatch(class_="03"))) == []
    assert len(machine.find(Match(pci=PciMatch(class_="03", driver="vfio-pci")))) == 1
    (message,) = caplog.messages
    assert "is bound to vfio-pci and left out" in message


@pytest.mark.parametrize(
    ("of_virtual", "offered"),
    [("i915", ["0000:00:02.1", "0000:00:02.2"]), ("vfio-pci", ["0000:00:02.0"])],
)
def test_a_divided_function_is_not_offered_beside_its_parts(
    machine: PretendMachine, caplog: pytest.LogCaptureFixture, of_virtual: str, offered: list[str]
) -> None:
    """It can reset them. If they are for virtual machines, pods may have its render node."""
    addresses = [f"0000:00:02.{number}" for number in range(3)]
    for number, address in enumerate(addresses):
        driver = of_virtual if number else "i915"
        gpu = add_pci(machine.sys, address, device_class="0x030000", driver=driver)
        if driver == "i915":
            name = f"renderD{128 + number}"
            machine.device_file(gpu / f"drm/{name}", f"dri/{name}")
    add_virtual_functions(machine.sys, *addresses)
    match = Match(pci=PciMatch(class_="03"))
    assert [each.address for each in machine.find(match)] == offered
    assert ("0000:00:02.0: is left out" in caplog.text) is (len(offered) == 2)


@pytest.mark.parametrize(
    ("driver", "is_viable"),
    [
        ("snd_hda_intel", False),
        ("vfio-pci", True),
        ("pcieport", True),
        ("pci-stub", True),
        ("", True),
    ],
)
def test_a_group_is_viable_if_vfio_has_all_of_it(
    driver: str, is_viable: bool, machine: PretendMachine, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel opens no file of a group while one of its functions has another driver."""
    add_pci(machine.sys, "0000:3b:00.0", driver="vfio-pci", group="42")
    add_pci(machine.sys, "0000:3b:00.1", driver=driver, group="42")
    machine.file("vfio/42", "vfio/vfio")
    found = machine.find(Match(pci=PciMatch(driver="vfio-pci")))[0]
    missing = "bind 0000:3b:00.1 (snd_hda_intel) to vfio-pci"
    assert (found.problem == "") == is_viable
    assert (missing in found.problem) == (missing in caplog.text) == (not is_viable)


@pytest.mark.parametrize(
    ("interface", "is_new", "files"),
    [
        ("both", True, ["/dev/vfio/42", "/dev/vfio/vfio", "/dev/vfio/devices/vfio3", "/dev/iommu"]),
        ("both", False, ["/dev/vfio/42", "/dev/vfio/vfio"]),
        ("cdev", True, ["/dev/vfio/devices/vfio3", "/dev/iommu"]),
        ("cdev", False, []),
        ("group", True, ["/dev/vfio/42", "/dev/vfio/vfio"]),
    ],
)
def test_a_function_of_vfio_has_the_files_of_the_interface(
    interface: Literal["group", "cdev", "both"],
    is_new: bool,
    files: list[str],
    machine: PretendMachine,
) -> None:
    """The group's, or that of iommufd, which a newer kernel has for each function."""
    directory = add_pci(machine.sys, "0000:3b:00.0", driver="vfio-pci", group="42")
    machine.file("vfio/42", "vfio/vfio")
    if is_new:
        (directory / "vfio-dev/vfio3").mkdir(parents=True)
        (machine.dev / "vfio/devices").mkdir()
        machine.file("vfio/devices/vfio3")
        machine.file("iommu")
    found = machine.find(Match(pci=PciMatch(driver="vfio-pci", vfio=interface)))
    assert [name for each in found for name in (each.path, *each.others)] == files


def test_a_by_id_link_names_a_file(machine: PretendMachine) -> None:
    """Found anew at each look; a match by the link itself is named by it too."""
    machine.file("ttyUSB0")
    by_path = Match(path=PathPattern("/dev/ttyUSB*"))
    (found,) = machine.find(by_path)
    assert machine.host.stable_names(found) == ()
    links = machine.dev / "serial/by-id"
    links.mkdir(parents=True)
    (links / "usb-FTDI A10-if00").symlink_to("../../ttyUSB0")
    (links / "usb-Z").symlink_to("../../ttyUSB0")
    assert machine.host.stable_names(found) == ()
    machine.host.look_again()
    assert machine.host.stable_names(found) == ("usb-FTDI_A10-if00", "usb-Z")
    by_link = machine.find(Match(path=PathPattern("/dev/serial/by-id/*")))
    assert [machine.host.stable_names(each) for each in by_link] == [
        ("usb-FTDI_A10-if00", "usb-Z"),
        ("usb-Z", "usb-FTDI_A10-if00"),
    ]


def test_a_usb_serial_number_names_the_file_of_an_interface(machine: PretendMachine) -> None:
    """By the device's number, so that no udev is needed; two interfaces stay apart."""
    adapter = add_usb(machine.sys, "1-2", serial="A10")
    names: list[str] = []
    for i in (0, 1):
        interface = write(adapter / f"1-2:1.{i}", {"bInterfaceNumber": f"0{i}"})
        tty = write(interface / f"ttyUSB{i}/tty/ttyUSB{i}", {})
        link(machine.sys / f"dev/char/188:{i}", tty)
        file = HostFile((stat.S_IFCHR, (188 << 8) | i), f"/dev/ttyUSB{i}")
        names += machine.host.stable_names(Found(f"/dev/ttyUSB{i}", file))
    assert names == ["usb-0403-6001-A10-if1.0", "usb-0403-6001-A10-if1.1"]
    unknown = HostFile((stat.S_IFBLK, 7 << 8), "/dev/loop0")
    assert machine.host.stable_names(Found("/dev/loop0", unknown)) == ()


def test_an_adapter_without_a_serial_number_is_named_by_its_port(
    machine: PretendMachine,
) -> None:
    """Not the number of its file, and not the serial number of a hub."""
    hub = add_usb(machine.sys, "usb1", serial="0000:00:14.0")
    adapter = hub / "1-2"
    write(adapter, {"idVendor": "1a86", "idProduct": "7523"})
    tty = write(adapter / "1-2:1.0/ttyUSB0/tty/ttyUSB0", {})
    write(adapter / "1-2:1.0", {"bInterfaceNumber": "00"})
    link(machine.sys / "dev/char/188:0", tty)
    file = HostFile((stat.S_IFCHR, 188 << 8), "/dev/ttyUSB0")
    assert machine.host.stable_names(Found("/dev/ttyUSB0", file)) == (
        "usb-1a86-7523-1-2-if1.0",
        "port-1-2-if1.0",
    )


def test_a_match_that_is_not_a_device_is_logged_once(
    machine: PretendMachine, caplog: pytest.LogCaptureFixture
) -> None:
    """A directory in place of a device, as some engines make it; a wildcard passes over such."""
    (machine.dev / "ttyUSB0").mkdir()
    os.mkfifo(machine.dev / "fifo")
    machine.file("plain")
    for _ in range(2):
        for name in ("ttyUSB0", "ttyUSB*", "fifo", "none"):
            assert machine.find(Match(path=PathPattern(f"/dev/{name}"))) == []
        assert machine.find(Match(path=PathPattern("/dev/plain")))  # all of this /dev is pretended
    assert caplog.messages == [
        "/dev/ttyUSB0 is not a device but a directory: it is left out",
        "/dev/fifo is not a device but a pipe: it is left out",
    ]


def test_a_regular_file_in_a_real_dev_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A container with it would not start, whichever match found it."""
    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "card0").touch()
    host = HostDevices(tmp_path)
    assert [found.path for found in host.find(Match(path=PathPattern("/dev/card*")))]
    assert [found.path for found in host.find(Match(path=PathPattern("/dev/null")))]
    (message,) = caplog.messages
    assert message.startswith("/dev/card0 is not a device but a regular file: a container with it")
