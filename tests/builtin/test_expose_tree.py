"""Which devices a configuration makes of which files."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from kubedevices.builtin.expose_config import ExposeConfig, load_expose_config
from kubedevices.builtin.expose_tree import HostFile, Indexes, make_ids, make_tree
from kubedevices.builtin.path_patterns import PathPattern
from kubedevices.device import Device, DeviceSpec, Mount
from kubedevices.device_tree import DeviceTree


class PretendHost:
    """A host as a table: path to what it really is."""

    def __init__(self, *paths: str, links: dict[str, str] | None = None) -> None:
        self.files = {path: path for path in paths} | (links or {})

    def find(self, pattern: PathPattern) -> Iterable[str]:
        return [path for path in self.files if pattern.match(path) is not None]

    def identify(self, path: str) -> HostFile | None:
        real = self.files.get(path)
        return None if real is None else HostFile(real, real)


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    return tmp_path / "host.yaml"


def configure(file: Path, resource: str) -> ExposeConfig:
    file.write_text(f"version: 1\nnamespace: example.com\nresources:\n- name: x\n{resource}")
    return load_expose_config(file)[0]


def scan(
    file: Path, resource: str, host: PretendHost, indexes: Indexes | None = None
) -> DeviceTree:
    return make_tree(configure(file, resource), host, indexes or Indexes())


def devices(tree: DeviceTree) -> dict[str, Device]:
    return dict(tree.devices("x"))


def test_every_match_becomes_a_device_in_natural_order(config_file: Path) -> None:
    """ttyUSB10 comes after ttyUSB9, and everything a container gets is filled in."""
    tree = scan(
        config_file,
        "  match: [{path: /dev/ttyUSB*}]\n"
        "  container: {path: '/dev/ttyS{index}', permissions: rwm}\n"
        "  env: {'PORT{index}': '{container_path}', WHO: '{id}={path}={name}={n}'}\n"
        "  mounts: [{host: '/run/{n}', container: '/run{container_path}', readOnly: true},"
        " {host: /etc/serial}]\n",
        PretendHost("/dev/ttyUSB10", "/dev/ttyUSB9", "/dev/ttyS0"),
    )
    assert list(tree.devices("x")) == ["ttyUSB9", "ttyUSB10"]
    assert tree.devices("x")["ttyUSB10"] == Device(
        "ttyUSB10",
        specs=[DeviceSpec("/dev/ttyUSB10", "/dev/ttyS1", "rwm")],
        env={"PORT1": "/dev/ttyS1", "WHO": "ttyUSB10=/dev/ttyUSB10=ttyUSB10=10"},
        mounts=[Mount("/run/10", "/run/dev/ttyS1", True), Mount("/etc/serial", "/etc/serial")],
    )


def test_a_resource_without_devices_is_declared(config_file: Path) -> None:
    """It is registered with capacity 0, ready for a hot-plugged device."""
    tree = scan(config_file, "  match: [{path: /dev/ttyUSB*}]\n", PretendHost())
    assert list(tree) == ["x"]
    assert tree.count("x") == 0


def test_two_names_of_one_device_make_one_device(config_file: Path) -> None:
    """The match that stands first names it; the container gets the real file by that name."""
    host = PretendHost("/dev/ttyUSB0", links={"/dev/by-id/usb-A": "/dev/ttyUSB0"})
    by_id = "{path: /dev/by-id/usb-*}"
    tree = scan(config_file, f"  match: [{by_id}, {{path: /dev/ttyUSB*}}]\n", host)
    assert {id_: device.specs for id_, device in devices(tree).items()} == {
        "by-id-usb-A": (DeviceSpec("/dev/ttyUSB0", "/dev/by-id/usb-A"),)
    }
    tree = scan(config_file, f"  match: [{{path: /dev/ttyUSB*}}, {by_id}]\n", host)
    assert list(devices(tree)) == ["ttyUSB0"]


def test_excluded_are_paths_and_what_they_lead_to(config_file: Path) -> None:
    """A symbolic link does not get around `exclude`."""
    host = PretendHost("/dev/ttyUSB0", "/dev/ttyUSB1", links={"/dev/link": "/dev/ttyUSB1"})
    match = "  match: [{path: /dev/ttyUSB*}, {path: /dev/link}]\n"
    assert list(devices(scan(config_file, match, host))) == ["ttyUSB0", "ttyUSB1"]
    tree = scan(config_file, match + "  exclude: ['/dev/ttyUSB[1-9]']\n", host)
    assert list(devices(tree)) == ["ttyUSB0"]
    tree = scan(config_file, match + "  exclude: [/dev/ttyUSB0]\n", host)
    assert list(devices(tree)) == ["ttyUSB1"]


def test_a_device_needs_all_its_companions(config_file: Path) -> None:
    """Unless they are optional: then it brings those that are there."""
    resource = (
        "  match: [{path: '/dev/snd/pcmC*D0p'}]\n"
        "  with: ['/dev/snd/controlC{n}', /dev/snd/timer]\n"
        "  container: {permissions: r}\n"
    )
    host = PretendHost(
        "/dev/snd/pcmC0D0p", "/dev/snd/pcmC1D0p", "/dev/snd/controlC1", "/dev/snd/timer"
    )
    complete = tuple(
        DeviceSpec(path, permissions="r")
        for path in ("/dev/snd/pcmC1D0p", "/dev/snd/controlC1", "/dev/snd/timer")
    )
    found = devices(scan(config_file, resource, host))
    assert {id_: device.specs for id_, device in found.items()} == {"snd-pcmC1D0p": complete}
    found = devices(scan(config_file, resource + "  optional: true\n", host))
    assert {id_: [spec.host_path for spec in device.specs] for id_, device in found.items()} == {
        "snd-pcmC0D0p": ["/dev/snd/pcmC0D0p", "/dev/snd/timer"],
        "snd-pcmC1D0p": ["/dev/snd/pcmC1D0p", "/dev/snd/controlC1", "/dev/snd/timer"],
    }


def test_replicas_share_the_device(config_file: Path) -> None:
    """Same file, same index, IDs of their own."""
    resource = "  match: [{path: /dev/kvm}]\n  replicas: 3\n  env: {ID: '{id}', I: '{index}'}\n"
    found = devices(scan(config_file, resource, PretendHost("/dev/kvm")))
    assert list(found) == ["kvm::0", "kvm::1", "kvm::2"]
    assert {device.specs for device in found.values()} == {(DeviceSpec("/dev/kvm"),)}
    assert found["kvm::2"].env == {"ID": "kvm::2", "I": "0"}


def test_a_device_keeps_its_index_when_another_one_goes(config_file: Path) -> None:
    """A new device gets the lowest free number; after a restart all are counted anew."""
    resource = "  match: [{path: /dev/ttyUSB*}]\n  container: {path: '/dev/{index}'}\n"
    indexes = Indexes()

    def places(*numbers: int) -> dict[str, str | None]:
        host = PretendHost(*(f"/dev/ttyUSB{number}" for number in numbers))
        found = devices(scan(config_file, resource, host, indexes))
        return {id_: device.specs[0].container_path for id_, device in found.items()}

    assert places(0, 1) == {"ttyUSB0": "/dev/0", "ttyUSB1": "/dev/1"}
    assert places(1) == {"ttyUSB1": "/dev/1"}
    assert places(1, 2, 3) == {"ttyUSB1": "/dev/1", "ttyUSB2": "/dev/0", "ttyUSB3": "/dev/2"}
    indexes = Indexes()
    assert places(1, 3) == {"ttyUSB1": "/dev/0", "ttyUSB3": "/dev/1"}


@pytest.mark.parametrize(
    ("path", "device_id"),
    [
        ("/dev/ttyUSB0", "ttyUSB0"),
        ("/dev/net/tun", "net-tun"),
        ("/dev/bus/usb/001/002", "bus-usb-001-002"),
        ("/run/thing", "run-thing"),
        ("/dev/loop-control", "loop-control"),
    ],
)
def test_an_id_is_the_path_below_dev(path: str, device_id: str) -> None:
    """It follows from the path alone."""
    assert make_ids([path]) == [device_id]


def test_ids_never_collide_and_are_never_too_long() -> None:
    """A hash of the path makes the difference, whatever the order."""
    twins = ["/dev/net-tun", "/dev/net/tun", "/net-tun", "/net/tun"]
    ids = make_ids(twins)
    assert ids[0] == "net-tun"
    assert len({*ids}) == 4
    assert make_ids(twins[::-1]) == ids[::-1]
    long = [f"/dev/serial/by-id/{'x' * 80}{i}" for i in range(2)]
    (first, second) = make_ids(long, limit=60)
    assert first != second
    assert {len(first), len(second)} == {60}
    assert make_ids(long[:1], limit=60) == [first]


def test_a_long_id_leaves_room_for_its_replica(config_file: Path) -> None:
    """63 characters with everything."""
    resource = "  match: [{path: '/dev/by-id/*'}]\n  replicas: 11\n"
    found = devices(scan(config_file, resource, PretendHost("/dev/by-id/" + "x" * 80)))
    assert {len(device_id) for device_id in found} == {62, 63}
