"""Which devices a configuration makes of which files."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubedevices.expose.config import ExposeConfig, load_expose_config
from kubedevices.expose.found import Found, HostFile
from kubedevices.expose.match_keys import Match
from kubedevices.expose.path_patterns import PathPattern
from kubedevices.expose.recognition import DeviceMemory, Naming, make_ids
from kubedevices.expose.tree import make_tree, survey
from kubedevices.values.cdi import CdiMount, ContainerEdits, DeviceNode
from kubedevices.values.device import Device, DeviceSpec, Health, Mount, natural_key
from kubedevices.values.device_tree import DeviceTree


class PretendHost:
    """A host as a table: path to what it really is."""

    def __init__(self, *paths: str, links: dict[str, str] | None = None) -> None:
        self.files = {path: path for path in paths} | (links or {})
        self.usb: list[Found] = []
        self.stable: dict[str, str] = {}
        """All stable names of a path, with spaces between them."""

    def find(self, match: Match) -> Iterable[Found]:
        if match.path is None:
            return self.usb
        return [
            Found(path, HostFile(self.files[path], self.files[path]), captures)
            for path in sorted(self.files, key=natural_key)
            if (captures := match.path.match(path)) is not None
        ]

    def stable_names(self, found: Found) -> tuple[str, ...]:
        return (*filter(None, [found.stable]), *self.stable.get(found.path, "").split())

    def port_name(self, found: Found) -> str:
        return ""

    def paths(self, pattern: PathPattern) -> Iterable[str]:
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
    file: Path,
    resource: str,
    host: PretendHost,
    memory: DeviceMemory | None = None,
    now: float = 0,
) -> DeviceTree:
    config = configure(file, resource)
    exposed = survey(config, host, memory or DeviceMemory(), Naming(now))
    tree, problems = make_tree(config, exposed, lambda each: Health(HEALTH.get(each.id, "Healthy")))
    assert problems == []
    return tree


HEALTH: dict[str, str] = {}


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


def test_an_excluded_link_leaves_out_its_device_under_every_name(config_file: Path) -> None:
    """An adapter of a resource of its own does not come back through its device file."""
    link = "/dev/serial/by-id/usb-A"
    host = PretendHost("/dev/ttyUSB0", "/dev/ttyUSB1", links={link: "/dev/ttyUSB1"})
    match = "  match: [{path: /dev/serial/by-id/*}, {path: /dev/ttyUSB*}]\n"
    tree = scan(config_file, match + "  exclude: [/dev/serial/by-id/*-A]\n", host)
    assert list(devices(tree)) == ["ttyUSB0"]
    host.usb = [Found("/dev/ttyUSB0", HostFile("/dev/ttyUSB0", "/dev/ttyUSB0"), others=(link,))]
    usb = "  match: [{usb: {vendor: '0403'}}]\n"
    tree = scan(config_file, usb + "  exclude: [/dev/ttyUSB1]\n", host)
    assert [spec.host_path for spec in devices(tree)["ttyUSB0"].specs] == ["/dev/ttyUSB0"]


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


def test_a_device_keeps_its_index_when_another_device_is_removed(config_file: Path) -> None:
    """A new device gets the lowest free number; after a restart all are counted anew."""
    resource = (
        "  match: [{path: /dev/ttyUSB*}]\n  container: {path: '/dev/{index}'}\n  goneGrace: 0s\n"
    )
    memory = DeviceMemory()

    def places(*numbers: int) -> dict[str, str | None]:
        host = PretendHost(*(f"/dev/ttyUSB{number}" for number in numbers))
        found = devices(scan(config_file, resource, host, memory))
        return {id_: device.specs[0].container_path for id_, device in found.items()}

    assert places(0, 1) == {"ttyUSB0": "/dev/0", "ttyUSB1": "/dev/1"}
    assert places(1) == {"ttyUSB1": "/dev/1"}
    assert places(1, 2, 3) == {"ttyUSB1": "/dev/1", "ttyUSB2": "/dev/0", "ttyUSB3": "/dev/2"}
    memory = DeviceMemory()
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
    assert make_ids([("", path)]) == [device_id]


def test_ids_never_collide_and_are_never_too_long() -> None:
    """A hash of the path makes the difference, whatever the order."""
    twins = [("", path) for path in ("/dev/net-tun", "/dev/net/tun", "/net-tun", "/net/tun")]
    ids = make_ids(twins)
    assert ids[0] == "net-tun"
    assert len({*ids}) == 4
    assert make_ids(twins[::-1]) == ids[::-1]
    long = [("", f"/dev/serial/by-id/{'x' * 80}{i}") for i in range(2)]
    (first, second) = make_ids(long, limit=60)
    assert first != second
    assert {len(first), len(second)} == {60}
    assert make_ids(long[:1], limit=60) == [first]


def test_a_long_id_leaves_room_for_its_replica(config_file: Path) -> None:
    """63 characters with everything."""
    resource = "  match: [{path: '/dev/by-id/*'}]\n  replicas: 11\n"
    found = devices(scan(config_file, resource, PretendHost("/dev/by-id/" + "x" * 80)))
    assert {len(device_id) for device_id in found} == {62, 63}


def test_a_stable_name_outlives_its_path(config_file: Path) -> None:
    """A re-plugged adapter keeps ID and number, whatever its file is called now."""
    resource = "  match: [{path: /dev/ttyUSB*}]\n  env: {I: '{index}'}\n"
    memory = DeviceMemory()
    host = PretendHost("/dev/ttyUSB0", "/dev/ttyUSB1")
    host.stable = {"/dev/ttyUSB0": "usb-A", "/dev/ttyUSB1": "usb-B"}
    scan(config_file, resource, host, memory)
    host = PretendHost("/dev/ttyUSB0")
    host.stable = {"/dev/ttyUSB0": "usb-B"}
    found = devices(scan(config_file, resource, host, memory, 10))
    assert {id_: (device.health, device.env["I"]) for id_, device in found.items()} == {
        "usb-A": (Health.UNHEALTHY, "0"),
        "usb-B": (Health.HEALTHY, "1"),
    }
    assert found["usb-B"].specs == (DeviceSpec("/dev/ttyUSB0"),)


@pytest.mark.parametrize(
    ("style", "ids"), [("stable", ["usb-A"]), ("path", ["ttyUSB7"]), ("index", ["x-0"])]
)
def test_the_three_styles_of_ids(config_file: Path, style: str, ids: list[str]) -> None:
    """Identity, path or number."""
    host = PretendHost("/dev/ttyUSB7")
    host.stable = {"/dev/ttyUSB7": "usb-A"}
    resource = f"  match: [{{path: /dev/ttyUSB*}}]\n  id: {style}\n"
    assert list(devices(scan(config_file, resource, host))) == ids


def test_a_vanished_device_is_unhealthy_for_a_while(config_file: Path) -> None:
    """Then it is dropped; if it comes back before that, nothing else changed."""
    resource = "  match: [{path: /dev/ttyUSB*}]\n  goneGrace: 5s\n  replicas: 2\n"
    memory = DeviceMemory()

    def look(now: float, *names: str) -> dict[str, str]:
        host = PretendHost(*(f"/dev/{name}" for name in names))
        found = devices(scan(config_file, resource, host, memory, now))
        why = "" if names else "it is gone; its ID is kept for some time"
        assert {each.reason for each in found.values()} <= {why}
        return {id_: str(device.health) for id_, device in found.items()}

    healthy = {"ttyUSB0::0": "Healthy", "ttyUSB0::1": "Healthy"}
    unhealthy = dict.fromkeys(healthy, "Unhealthy")
    assert look(0, "ttyUSB0") == healthy
    assert look(1) == unhealthy
    assert look(5.9) == unhealthy
    assert look(5.95, "ttyUSB0") == healthy
    assert look(6) == unhealthy
    assert look(10.9) == unhealthy
    assert look(11) == {}


def test_a_number_is_not_reused_within_the_grace(config_file: Path) -> None:
    """Two devices must not be /dev/ttyS0 when the first one comes back."""
    resource = "  match: [{path: /dev/ttyUSB*}]\n  env: {I: '{index}'}\n"
    memory = DeviceMemory()
    scan(config_file, resource, PretendHost("/dev/ttyUSB0"), memory)
    scan(config_file, resource, PretendHost("/dev/ttyUSB1"), memory, 1)
    host = PretendHost("/dev/ttyUSB0", "/dev/ttyUSB1")
    found = devices(scan(config_file, resource, host, memory, 2))
    assert {id_: device.env["I"] for id_, device in found.items()} == {
        "ttyUSB0": "0",
        "ttyUSB1": "1",
    }


def test_a_resource_without_a_grace_has_that_of_the_file(config_file: Path) -> None:
    """30 seconds unless it says otherwise."""
    memory = DeviceMemory()
    resource = "  match: [{path: /dev/ttyUSB*}]\n"
    scan(config_file, resource, PretendHost("/dev/ttyUSB0"), memory)
    assert len(devices(scan(config_file, resource, PretendHost(), memory, 1))) == 1
    assert len(devices(scan(config_file, resource, PretendHost(), memory, 30.9))) == 1
    assert len(devices(scan(config_file, resource, PretendHost(), memory, 31))) == 0


def test_a_resource_that_is_no_longer_there_is_forgotten(config_file: Path) -> None:
    """Its devices do not come back with it."""
    memory = DeviceMemory()
    resource = "  match: [{path: /dev/ttyUSB*}]\n"
    scan(config_file, resource, PretendHost("/dev/ttyUSB0"), memory)
    config_file.write_text(
        "version: 1\nnamespace: example.com\nresources:\n- name: y\n  match: [{path: /dev/y}]\n"
    )
    survey(load_expose_config(config_file)[0], PretendHost(), memory, Naming(1))
    assert devices(scan(config_file, resource, PretendHost(), memory, 2)) == {}


def test_health_is_that_of_all_replicas(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No container gets a share of a broken device."""
    monkeypatch.setitem(HEALTH, "card0", "Unhealthy")
    resource = "  match: [{path: /dev/card*}]\n  replicas: 2\n  topology: [1]\n"
    found = devices(scan(config_file, resource, PretendHost("/dev/card0", "/dev/card1")))
    assert {id_: str(device.health) for id_, device in found.items()} == {
        "card0::0": "Unhealthy",
        "card0::1": "Unhealthy",
        "card1::0": "Healthy",
        "card1::1": "Healthy",
    }
    assert {device.numa_nodes for device in found.values()} == {(1,)}


@pytest.mark.parametrize(
    ("topology", "nodes"), [("auto", None), ("none", ()), ("[]", ()), ("[1, 0]", (0, 1))]
)
def test_topology(config_file: Path, topology: str, nodes: tuple[int, ...] | None) -> None:
    """Looked up, none, or as given."""
    resource = f"  match: [{{path: /dev/x}}]\n  topology: {topology}\n"
    (device,) = devices(scan(config_file, resource, PretendHost("/dev/x"))).values()
    assert device.numa_nodes == nodes


def test_a_shared_resource_can_be_renamed(config_file: Path) -> None:
    """Only if it is shared."""
    resource = "  match: [{path: /dev/kvm}]\n  renameShared: true\n"
    assert list(scan(config_file, resource, PretendHost("/dev/kvm"))) == ["x"]
    tree = scan(config_file, resource + "  replicas: 2\n", PretendHost("/dev/kvm"))
    assert list(tree) == ["x.shared"]
    assert list(tree.devices("x.shared")) == ["kvm::0", "kvm::1"]


def test_a_device_of_a_bus_has_all_its_files(config_file: Path) -> None:
    """But those that are excluded; its address fills a placeholder."""
    host = PretendHost()
    main = HostFile("tty", "/dev/ttyUSB0")
    others = ("/dev/bus/usb/001/004", "/dev/hidraw0")
    host.usb = [Found("/dev/ttyUSB0", main, (), "1-2", others, "usb-0403-6001-A10")]
    resource = (
        "  match: [{usb: {vendor: '0403'}}]\n  exclude: [/dev/hidraw*]\n"
        "  container: {path: '/dev/ttyS{index}'}\n  env: {PORT: '{address}'}\n"
    )
    assert devices(scan(config_file, resource, host)) == {
        "usb-0403-6001-A10": Device(
            "usb-0403-6001-A10",
            specs=[DeviceSpec("/dev/ttyUSB0", "/dev/ttyS0"), DeviceSpec("/dev/bus/usb/001/004")],
            env={"PORT": "1-2"},
        )
    }


CDI = """\
  match: [{path: /dev/ttyUSB*}]
  container: {path: '/dev/ttyS{index}', permissions: r}
  env: {'PORT{index}': '{id}@{container_path}'}
  mounts: [{host: '/run/{n}', container: '/run{container_path}', readOnly: true}]
  with: ['/dev/control{n}']
  optional: true
  replicas: 2
"""


def test_a_cdi_device_has_all_that_the_device_gives(config_file: Path) -> None:
    """With `cdi` nowhere else, with `both` beside; placeholders, replicas and companions too."""
    host = PretendHost("/dev/ttyUSB7", "/dev/control7", "/dev/ttyUSB8")
    plain = devices(scan(config_file, CDI, host))
    both = devices(scan(config_file, CDI + "  inject: both\n", host))
    cdi = devices(scan(config_file, CDI + "  inject: cdi\n", host))
    assert {replace(each, cdi=None) for each in both.values()} == set(plain.values())
    assert cdi == {
        device_id: Device(device_id, cdi=device.cdi) for device_id, device in both.items()
    }
    assert cdi["ttyUSB7::1"].cdi == ContainerEdits(
        env=("PORT0=ttyUSB7::1@/dev/ttyS0",),
        device_nodes=(
            DeviceNode("/dev/ttyS0", "/dev/ttyUSB7", permissions="r"),
            DeviceNode("/dev/control7", permissions="r"),
        ),
        mounts=(CdiMount("/run/7", "/run/dev/ttyS0", ("ro", "nosuid", "nodev", "bind")),),
    )
    assert [node.path for node in cdi["ttyUSB8::0"].cdi.device_nodes] == ["/dev/ttyS1"]


def test_the_default_applies_only_without_a_key(config_file: Path) -> None:
    """`nodes` in the file stays `nodes`."""
    host = PretendHost("/dev/ttyUSB0")
    for said, has_cdi in (("", True), ("  inject: nodes\n", False)):
        config = configure(config_file, "  match: [{path: /dev/ttyUSB*}]\n" + said)
        exposed = survey(config, host, DeviceMemory())
        tree, _ = make_tree(config, exposed, lambda _: Health.HEALTHY, "cdi")
        (device,) = devices(tree).values()
        assert (device.cdi is not None, device.specs == ()) == (has_cdi, has_cdi)


@pytest.mark.parametrize(
    ("with_", "expected"),
    [
        (
            '["/dev/snd/pcmC{n}D*"]',
            ["/dev/snd/pcmC0D0p", "/dev/snd/pcmC0D3p", "/dev/snd/pcmC0D10c"],
        ),
        (
            '[{path: "/dev/snd/pcmC{n}D*c", container: /dev/in}]',
            [("/dev/snd/pcmC0D10c", "/dev/in/pcmC0D10c")],
        ),
        ('["/dev/snd/*C{n}", /dev/snd/seq]', ["/dev/snd/seq"]),
    ],
)
def test_a_glob_of_with_gives_every_file_that_matches(
    config_file: Path, with_: str, expected: list[Any]
) -> None:
    """In natural order, not the files of another card, and not the device itself once more."""
    files = ("controlC0", "pcmC0D3p", "pcmC0D0p", "pcmC0D10c", "pcmC1D0p", "pcmC10D0p", "seq")
    match = f'  match: [{{path: "/dev/snd/controlC*"}}]\n  with: {with_}\n'
    is_optional = "  optional: true\n" if "*C{n}" in with_ else ""
    host = PretendHost(*(f"/dev/snd/{name}" for name in files))
    device = devices(scan(config_file, match + is_optional, host))["snd-controlC0"]
    others = [(each.host_path, each.container_path) for each in device.specs[1:]]
    assert others == [each if isinstance(each, tuple) else (each, each) for each in expected]


def test_a_glob_of_with_must_match_a_file_unless_it_is_optional(config_file: Path) -> None:
    """As a file that is named: a device is there when its files are."""
    text = '  match: [{path: /dev/a0}]\n  with: [{path: "/dev/b*", optional: %s}]\n'
    host = PretendHost("/dev/a0")
    assert not devices(scan(config_file, text % "false", host))
    assert devices(scan(config_file, text % "true", host))


def test_wildcards_in_the_name_of_a_file_are_no_wildcards(config_file: Path) -> None:
    """Somebody who may create files chooses the names, and no other files."""
    text = '  match: [{path: "/dev/c*"}]\n  with: ["/dev/x{n}*"]\n  optional: true\n'
    host = PretendHost("/dev/c[0-9]", "/dev/x5", "/dev/x[0-9]y")
    (device,) = devices(scan(config_file, text, host)).values()
    assert [each.host_path for each in device.specs[1:]] == ["/dev/x[0-9]y"]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((1, 3, 1), [["a0"], ["a0", "a0::1", "a0::2"], ["a0"]]),
        ((2, 1, 2), [["a0::0", "a0::1"], ["a0::0"], ["a0::0", "a0::1"]]),
    ],
)
def test_the_first_replica_keeps_its_id_when_their_number_changes(
    counts: tuple[int, ...], expected: list[list[str]], config_file: Path
) -> None:
    """A container may hold it: a second ID would give the device to somebody else too."""
    memory, host = DeviceMemory(), PretendHost("/dev/a0")
    text = "  match: [{path: '/dev/a?'}]\n  replicas: %d\n"
    seen = [[*devices(scan(config_file, text % count, host, memory))] for count in counts]
    assert seen == expected
    new = PretendHost("/dev/a0", "/dev/a1")
    ids = {*devices(scan(config_file, text % 2, new, memory))}
    assert ids == {expected[0][0], "a0::1", "a1::0", "a1::1"}, "new devices are named as usual"


def test_replicas_name_the_device_that_they_share(config_file: Path) -> None:
    """A DRA driver publishes the device once, with a capacity of shares."""
    host = PretendHost("/dev/a0")
    found = devices(scan(config_file, "  match: [{path: /dev/a0}]\n  replicas: 2\n", host))
    assert {each.replica_of for each in found.values()} == {"a0"}
    found = devices(scan(config_file, "  match: [{path: /dev/a0}]\n", host))
    assert {each.replica_of for each in found.values()} == {""}
