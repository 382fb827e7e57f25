"""Names from matches, directories as devices, and files that come along under their own paths."""

from pathlib import Path

import pytest

from kubedevices.errors import ConfigError
from kubedevices.expose.config import ExposeConfig, load_expose_config
from kubedevices.expose.names import name_of
from kubedevices.expose.scanner import ExposeScanner
from kubedevices.expose.tree import MOST_NAMES
from kubedevices.values.device_tree import DeviceTree


class PretendHost:
    """A /dev of plain files, and one scanner that looks at it."""

    def __init__(self, root: Path) -> None:
        self.root, self.dev = root, root / "dev"
        self.dev.mkdir()
        self.scanner: ExposeScanner | None = None
        self.now = 0.0

    def add(self, *names: str) -> None:
        for name in names:
            (self.dev / name).parent.mkdir(parents=True, exist_ok=True)
            (self.dev / name).touch()

    def configure(self, resources: str) -> ExposeConfig:
        file = self.root / "host.yaml"
        file.write_text(f"version: 1\nnamespace: a.b\ngoneGrace: 5s\nresources:\n{resources}")
        return load_expose_config(file)[0]

    def look(self, resources: str) -> DeviceTree:
        if self.scanner is None:
            self.scanner = ExposeScanner(
                self.configure(resources),
                dev_root=self.dev,
                sysfs_root=self.root / "sys",
                clock=lambda: self.now,
            )
        return self.scanner.list_devices()


@pytest.fixture
def host(tmp_path: Path) -> PretendHost:
    return PretendHost(tmp_path)


def ids(tree: DeviceTree) -> dict[str, list[str]]:
    return {resource: [*tree.devices(resource)] for resource in tree}


def files(tree: DeviceTree, resource: str) -> dict[str, list[str]]:
    return {
        device_id: [
            f"{spec.host_path} {spec.container_path} {spec.permissions}" for spec in device.specs
        ]
        for device_id, device in tree.devices(resource).items()
    }


def test_a_name_from_the_match_makes_a_resource_of_each(host: PretendHost) -> None:
    """A pod asks for one certain device; the rest of the rule holds for every name."""
    host.add("spidev0.0", "spidev0.1", "video0", "other")
    rules = (
        "- {name: '{name}', match: [{path: /dev/spidev*}], replicas: 2}\n"
        "- {name: 'camera-{n}', match: [{path: /dev/video*}], exclude: [/dev/video1]}\n"
    )
    found = {
        "spidev0.0": ["spidev0.0::0", "spidev0.0::1"],
        "spidev0.1": ["spidev0.1::0", "spidev0.1::1"],
        "camera-0": ["video0"],
    }
    assert ids(host.look(rules)) == found
    host.add("video1", "video2")
    assert ids(host.look(rules)) == {**found, "camera-2": ["video2"]}


def test_a_name_stays_when_its_device_is_gone(host: PretendHost) -> None:
    """With capacity 0, so that a pod waits for the device instead of being refused as unknown."""
    host.add("ttyUSB0")
    rules = "- {name: '{name}', match: [{path: /dev/ttyUSB*}]}\n"
    host.look(rules)
    (host.dev / "ttyUSB0").unlink()
    host.look(rules)
    host.now = 60
    assert ids(host.look(rules)) == {"ttyUSB0": []}


def test_several_matches_may_share_a_name(host: PretendHost) -> None:
    """And a name that a plain resource has is left to that resource."""
    host.add("a0x", "a0y", "a1x")
    rules = "- {name: 'pair{1}', match: [{path: '/dev/a[0-9]?'}]}\n"
    assert ids(host.look(rules.replace("{1}", "{n}"))) == {
        "pair0x": ["a0x"], "pair0y": ["a0y"], "pair1x": ["a1x"],
    }  # fmt: skip
    host.scanner = None
    rules = (
        "- {name: '{n}', match: [{path: /dev/a*x}, {path: /dev/a*y}]}\n"
        "- {name: '1', match: [{path: /dev/a1x}]}\n"
    )
    assert ids(host.look(rules)) == {"0": ["a0x", "a0y"], "1": ["a1x"]}


def test_an_ability_is_that_of_the_rule(host: PretendHost) -> None:
    """Replicas are preferred and limited for a name of a match as for any other."""
    host.add("fuse")
    rules = "- {name: 'x-{name}', match: [{path: /dev/f*}], replicas: 2}\n"
    host.look(rules)
    assert host.scanner is not None
    assert hasattr(host.scanner.abilities_of("x-fuse"), "get_preferred_allocation")


@pytest.mark.parametrize(
    ("template", "values", "name"),
    [
        ("{name}", {"name": "usb-FTDI_A 10#1"}, "usb-FTDI_A-10-1"),
        ("{address}", {"address": "0000:3b:00.0"}, "0000-3b-00.0"),
        ("{name}", {"name": "-.-"}, ""),
        ("{name}", {"name": "a" * 80}, "a" * 63),
    ],
)
def test_a_name_gets_only_characters_that_kubernetes_allows(
    template: str, values: dict[str, str], name: str
) -> None:
    """Letters, digits, `-`, `_` and `.`, at most 63 characters."""
    assert name_of(template, values) == name


def test_a_directory_is_one_device_with_all_its_files(host: PretendHost) -> None:
    """Named by the directory; a link in it is no file of its own; an empty one is not a device."""
    host.add("snd/controlC0", "snd/pcmC0D0p", "snd/by/deep", "input/event0")
    (host.dev / "snd/link").symlink_to("controlC0")
    (host.dev / "empty").mkdir()
    tree = host.look(
        "- {name: sound, match: [{directory: /dev/snd}], exclude: [/dev/snd/by/*]}\n"
        "- {name: none, match: [{directory: /dev/empty}, {directory: /dev/missing}]}\n"
        "- {name: '{n}', match: [{directory: /dev/inp*}]}\n"
    )
    assert files(tree, "sound") == {
        "snd": [
            "/dev/snd/controlC0 /dev/snd/controlC0 rw",
            "/dev/snd/pcmC0D0p /dev/snd/pcmC0D0p rw",
        ]
    }
    assert files(tree, "none") == {}
    assert files(tree, "ut") == {"input": ["/dev/input/event0 /dev/input/event0 rw"]}


def test_a_companion_file_has_its_own_path_and_permissions(host: PretendHost) -> None:
    """And may be missing on its own, while the others may not."""
    host.add("ttyUSB0", "ttyUSB1", "gpio0", "gpio1", "log0")
    rules = (
        "- name: modem\n"
        "  match: [{path: /dev/ttyUSB*}]\n"
        "  container: {path: /dev/modem}\n"
        "  with:\n"
        "  - {path: '/dev/gpio{n}', container: '/dev/reset', permissions: w}\n"
        "  - {path: '/dev/log{n}', container: '/dev/log-{n}', optional: true}\n"
    )
    assert files(host.look(rules), "modem") == {
        "ttyUSB0": [
            "/dev/ttyUSB0 /dev/modem rw",
            "/dev/gpio0 /dev/reset w",
            "/dev/log0 /dev/log-0 rw",
        ],
        "ttyUSB1": ["/dev/ttyUSB1 /dev/modem rw", "/dev/gpio1 /dev/reset w"],
    }


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("{name: '{index}', match: [{path: /dev/x*}]}", "unknown placeholder {index}"),
        ("{name: '{n}', match: [{path: /dev/x}]}", "{n} has no value: /dev/x has no wild"),
        ("{name: '{name}_', match: [{path: /dev/x}]}", "'x_'"),
        ("{name: x, match: [{path: /a, directory: /b}]}", "use only one of path and directory"),
        ("{name: x, match: [{path: /a}], with: [{container: /b}]}", "with[0].path: this key is"),
        ("{name: '{name}', match: [{path: /a}], inject: cdi}", "no CDI device can have the name"),
    ],
)
def test_a_mistake_is_reported_with_its_place(host: PretendHost, rule: str, problem: str) -> None:
    """At the key, in the words of the file."""
    with pytest.raises(ConfigError) as caught:
        host.configure(f"- {rule}\n")
    assert any(problem in str(each) for each in caught.value.problems), caught.value


def test_two_rules_may_name_their_matches_alike(host: PretendHost) -> None:
    """Each device has what its own rule says."""
    host.add("a1", "b1")
    rules = (
        "- {name: '{name}', match: [{path: '/dev/a*'}], replicas: 2}\n"
        "- {name: '{name}', match: [{path: '/dev/b*'}]}\n"
    )
    assert ids(host.look(rules)) == {"a1": ["a1::0", "a1::1"], "b1": ["b1"]}


def test_names_of_removed_devices_are_limited(host: PretendHost) -> None:
    """A device with a new serial number at each plug does not make sockets without end."""
    rules = "- {name: '{name}', match: [{path: '/dev/a*'}]}\n"
    host.add("b", *(f"a{number}" for number in range(MOST_NAMES + 20)))
    assert len(ids(host.look(rules))) == MOST_NAMES + 20
    for number in range(10, MOST_NAMES + 20):
        (host.dev / f"a{number}").unlink()
    host.add("anew")
    found = ids(host.look(rules))
    assert len(found) == MOST_NAMES
    assert {f"a{number}" for number in range(10)} | {"anew"} <= found.keys()
