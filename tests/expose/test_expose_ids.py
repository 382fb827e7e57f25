"""How long a device keeps its ID: a container holds it by that (see the rules of `expose_tree`)."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from kubedevices.expose.config import load_expose_config
from kubedevices.expose.found import Found, HostFile
from kubedevices.expose.host import HostDevices
from kubedevices.expose.match_keys import Match
from kubedevices.expose.path_patterns import PathPattern
from kubedevices.expose.recognition import DeviceMemory, Naming, make_ids
from kubedevices.expose.scanner import ExposeScanner
from kubedevices.expose.tree import survey
from tests.host.sysfs_trees import add_usb, write

HEAD = "version: 1\nnamespace: example.com\nresources:\n- name: x\n"


class Machine:
    """A host as tables, and one resource of it by `match`."""

    def __init__(self, file: Path) -> None:
        self.files: dict[str, object] = {}
        """What is at a path: the identity of a device file, or the path that a link leads to."""
        self.names: dict[str, tuple[str, ...]] = {}
        """Stable names by the path of a device file."""
        self.rule = "  match: [{path: '/dev/*'}]\n"
        self._file = file
        self._memory = DeviceMemory()

    def find(self, match: Match) -> Iterable[Found]:
        for path in sorted(self.files):
            file = self.identify(path)
            if file and match.path and match.path.match(path) is not None:
                yield Found(path, file)

    def paths(self, pattern: PathPattern) -> list[str]:
        return []

    def identify(self, path: str) -> HostFile | None:
        there = self.files.get(path)
        if there in self.files:
            return self.identify(str(there))
        return None if there is None else HostFile(there, path)

    def stable_names(self, found: Found) -> tuple[str, ...]:
        return self.names.get(found.file.real_path, ())

    def port_name(self, found: Found) -> str:
        return ""

    def look(self, now: float = 0) -> dict[str, str]:
        """Return the path at which each listed device was found, with a `-` if it is gone."""
        self._file.write_text(HEAD + self.rule)
        exposed = survey(load_expose_config(self._file)[0], self, self._memory, Naming(now))
        return {each.id: "-" * (not each.is_there) + each.part.found.path for each in exposed}

    def restart(self) -> None:
        self._memory = DeviceMemory()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "host.yaml")


@pytest.mark.parametrize(
    ("more", "first", "restarted"),
    [
        ("", ["ttyUSB0"], ["usb-X-1"]),
        ("  replicas: 2\n", ["ttyUSB0::0", "ttyUSB0::1"], ["usb-X-1::0", "usb-X-1::1"]),
        ("  id: path\n", ["ttyUSB0"], ["ttyUSB0"]),
        ("  id: index\n", ["x-0"], ["x-0"]),
    ],
)
def test_a_link_that_comes_later_renames_nothing(
    more: str, first: list[str], restarted: list[str], tmp_path: Path
) -> None:
    """The rules of udev make it after the device file; the next process begins with it."""
    dev, file = tmp_path / "dev", tmp_path / "host.yaml"
    (dev / "serial/by-id").mkdir(parents=True)
    (dev / "ttyUSB0").touch()
    file.write_text(HEAD + "  match: [{path: /dev/ttyUSB*}]\n" + more)
    scanner = ExposeScanner.from_file(file, dev_root=dev)
    before = scanner.list_devices()
    (dev / "serial/by-id/usb-X-1").symlink_to("../../ttyUSB0")
    assert list(before.devices("x")) == first
    assert scanner.list_devices() == before
    again = ExposeScanner.from_file(file, dev_root=dev).list_devices()
    assert list(again.devices("x")) == restarted


def test_a_second_device_with_the_same_serial_renames_nothing(tmp_path: Path) -> None:
    """Neither when it comes nor when it goes, whichever of the two goes."""
    dev, sysfs, file = tmp_path / "dev", tmp_path / "sys", tmp_path / "host.yaml"
    dev.mkdir()
    file.write_text(HEAD + "  match: [{usb: {vendor: '0403'}}]\n  goneGrace: 0s\n")

    def plug(i: int) -> None:
        adapter = add_usb(sysfs, f"1-{i}", serial="A10", number=i)
        write(adapter / f"ttyUSB{i}", {"dev": f"188:{i}", "uevent": f"DEVNAME=ttyUSB{i}"})
        (dev / f"ttyUSB{i}").touch()

    config, memory = load_expose_config(file)[0], DeviceMemory()

    def look(memory: DeviceMemory) -> dict[str, str]:
        exposed = survey(config, HostDevices(dev, sysfs), memory)
        return {each.part.found.path: each.id for each in exposed}

    plug(1)
    assert look(memory) == {"/dev/ttyUSB1": "usb-0403-6001-A10"}
    plug(2)
    both = look(memory)
    assert both["/dev/ttyUSB1"] == "usb-0403-6001-A10"
    assert both["/dev/ttyUSB2"].startswith("usb-0403-6001-A10-")
    assert look(DeviceMemory()) == both
    (dev / "ttyUSB1").unlink()
    assert look(memory) == {"/dev/ttyUSB2": both["/dev/ttyUSB2"]}


def test_another_name_at_a_place_is_another_device(machine: Machine) -> None:
    """Also where the first name came after the ID; what was there before is gone."""
    machine.files = {"/dev/tty0": 1}
    assert machine.look() == {"tty0": "/dev/tty0"}
    machine.names = {"/dev/tty0": ("A",)}
    assert machine.look() == {"tty0": "/dev/tty0"}
    machine.names = {"/dev/tty0": ("B",)}
    assert machine.look() == {"tty0": "-/dev/tty0", "B": "/dev/tty0"}
    assert machine.look(31) == {"B": "/dev/tty0"}


def test_a_device_is_recognized_by_any_of_its_names(machine: Machine) -> None:
    """A disk has many links, made one by one; the one that names it best may come last."""
    machine.files = {"/dev/sda": 1}
    machine.names = {"/dev/sda": ("wwn-1",)}
    assert machine.look() == {"wwn-1": "/dev/sda"}
    machine.names = {"/dev/sda": ("ata-1", "wwn-1")}
    assert machine.look() == {"wwn-1": "/dev/sda"}
    machine.names = {"/dev/sda": ("ata-1",)}
    assert machine.look() == {"wwn-1": "/dev/sda"}


def test_a_returning_device_is_recognized_before_its_name_is_known(machine: Machine) -> None:
    """At its old place; as soon as there is a name, the name says where it is."""
    machine.files, machine.names = {"/dev/tty0": 1}, {"/dev/tty0": ("A",)}
    assert machine.look() == {"A": "/dev/tty0"}
    machine.files, machine.names = {}, {}
    assert machine.look(1) == {"A": "-/dev/tty0"}
    machine.files = {"/dev/tty0": 1}
    assert machine.look(2) == {"A": "/dev/tty0"}
    machine.files, machine.names = {"/dev/tty1": 2}, {"/dev/tty1": ("A",)}
    assert machine.look(3) == {"A": "/dev/tty1"}


def test_a_returning_name_wins_over_a_former_place(machine: Machine) -> None:
    """A name counts more than the place of something that is gone."""
    machine.files, machine.names = {"/dev/tty0": 1, "/dev/tty1": 2}, {"/dev/tty1": ("A",)}
    assert machine.look() == {"tty0": "/dev/tty0", "A": "/dev/tty1"}
    machine.files = {}
    machine.look(1)
    machine.files, machine.names = {"/dev/tty0": 1}, {"/dev/tty0": ("A",)}
    assert machine.look(2) == {"tty0": "-/dev/tty0", "A": "/dev/tty0"}


def test_twins_that_come_back_keep_their_ids(machine: Machine) -> None:
    """Each at its place; a third one gets an ID that neither of them has."""
    machine.files, machine.names = {"/dev/tty1": 1}, {f"/dev/tty{i}": ("A",) for i in range(3)}
    machine.look()
    machine.files = {"/dev/tty0": 0, "/dev/tty1": 1}
    both = machine.look()
    machine.files = {}
    machine.look(1)
    machine.files = {"/dev/tty1": 1}
    assert machine.look(2)["A"] == "/dev/tty1"
    machine.files = {"/dev/tty0": 0, "/dev/tty1": 1}
    assert machine.look(2) == both
    machine.files = {"/dev/tty1": 1, "/dev/tty2": 2}
    moved = machine.look(3)
    assert moved.keys() == both.keys()
    machine.files = {"/dev/tty0": 0, "/dev/tty1": 1, "/dev/tty2": 2}
    third = machine.look(4)
    assert third.keys() > moved.keys()
    assert sorted(third.values()) == ["/dev/tty0", "/dev/tty1", "/dev/tty2"]


def test_the_number_of_a_file_is_used_again(machine: Machine) -> None:
    """As the kernel does: what is somewhere else with it, and without a name, is another device."""
    machine.files = {"/dev/foo": 1}
    assert machine.look() == {"foo": "/dev/foo"}
    machine.files = {"/dev/bar": 1}
    assert machine.look(1) == {"foo": "-/dev/foo", "bar": "/dev/bar"}


def test_a_device_found_by_a_link_is_where_the_link_leads(machine: Machine) -> None:
    """A rule of udev may tell two cameras from each other by nothing but links of its own."""
    machine.rule = "  match: [{path: /dev/cam-*}]\n"
    cameras: dict[str, object] = {"/dev/video0": 0, "/dev/video1": 1}
    machine.files = cameras | {"/dev/cam-a": "/dev/video0", "/dev/cam-b": "/dev/video1"}
    both = {"cam-a": "/dev/cam-a", "cam-b": "/dev/cam-b"}
    assert machine.look() == both
    machine.files = cameras | {"/dev/cam-a": "/dev/video1", "/dev/cam-b": "/dev/video0"}
    assert machine.look() == both
    machine.files = cameras
    machine.look()
    machine.files = cameras | {"/dev/cam-c": "/dev/video0"}
    assert machine.look() == {f"cam-{i}": f"{'-' * (i != 'c')}/dev/cam-{i}" for i in "abc"}


@pytest.mark.parametrize("style", ["stable", "path"])
def test_another_link_to_a_device_renames_nothing(machine: Machine, style: str) -> None:
    """Whether one comes that stands first, or the one goes that it was found by."""
    machine.rule = f"  match: [{{path: /dev/cam-*}}, {{path: /dev/video0}}]\n  id: {style}\n"
    machine.files = {"/dev/video0": 0}
    assert machine.look() == {"video0": "/dev/video0"}
    machine.files = {"/dev/video0": 0, "/dev/cam-a": "/dev/video0"}
    assert machine.look() == {"video0": "/dev/cam-a"}
    machine.restart()
    assert machine.look() == {"cam-a": "/dev/cam-a"}
    machine.files = {"/dev/video0": 0}
    assert machine.look() == {"cam-a": "/dev/video0"}


def test_a_change_of_the_file_renames_what_it_must(machine: Machine) -> None:
    """Another `match` nothing, another `id` everything, replicas only what gets too long."""
    machine.files, machine.names = {"/dev/tty0": 0}, {"/dev/tty0": ("A",)}
    assert machine.look() == {"A": "/dev/tty0"}
    machine.rule = "  match: [{path: /dev/tty0}]\n"
    assert machine.look() == {"A": "/dev/tty0"}
    machine.rule += "  id: path\n"
    assert machine.look() == {"tty0": "/dev/tty0"}
    machine.files = {"/dev/tty0": 0, "/dev/tty1": 1}
    machine.names = {"/dev/tty0": ("A",), "/dev/tty1": ("x" * 60,)}
    machine.rule = "  match: [{path: /dev/*}]\n  replicas: 2\n"
    assert machine.look() == {"A": "/dev/tty0", "x" * 60: "/dev/tty1"}
    machine.rule = machine.rule.replace("2", "11")
    assert [len(device_id) for device_id, path in machine.look().items() if path[0] == "/"] == [
        1,
        59,
    ]


def test_a_name_that_is_not_utf_8_has_an_id_too() -> None:
    """It is refused later, and for its device alone."""
    (device_id,) = make_ids([("", "/dev/" + "\udcff" * 70)])
    assert len(device_id) == 63


def test_the_first_of_twins_has_the_plain_name() -> None:
    """The others a hash of their path, whatever the order they are found in; none that is taken."""
    twins = [("A", f"/dev/tty{i}") for i in (2, 10, 1)]
    second, third, first = make_ids(twins)
    assert first == "A"
    assert len({first, second, third}) == 3
    assert make_ids(twins[::-1]) == [first, third, second]
    (other,) = make_ids(twins[:1], taken=["A", second])
    assert other.startswith("A-")
    assert other != second
