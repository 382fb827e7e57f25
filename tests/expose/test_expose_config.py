"""The schema of expose's YAML file."""

from pathlib import Path

import pytest

from kubedevices.config.durations import parse_duration
from kubedevices.errors import ConfigError
from kubedevices.expose.config import (
    ExposeConfig,
    ExposedHealthRule,
    load_expose_config,
)
from kubedevices.expose.match_keys import PciMatch, UsbMatch

FULL = """\
version: 1
namespace: devices.example.com
scanInterval: 500ms
resources:
- name: sound
  match:
  - path: /dev/snd/pcmC*D*p
  - path: /dev/snd/pcmC*D*c
  exclude: [/dev/snd/pcmC9*]
  container: {path: "/dev/snd/{name}", permissions: rwm}
  env:
    CARD: "{1}"
    PCM: "{container_path}"
    8080: "{id} {index} {path} {n} {2} {{literal}}"
  mounts:
  - {host: /run/udev, container: "/run/udev{n}", readOnly: true}
  - host: "/var/lib/{name}"
  with: ["/dev/snd/controlC{n}", /dev/snd/timer]
  optional: true
  replicas: 2
  id: index
  renameShared: true
  failRequestsGreaterThanOne: true
  allocation: distributed
  topology: [0, 1]
  goneGrace: 0s
  health: {file: "/sys/{name}", equals: "ok", interval: 1m, failAfter: 1, okAfter: 5}
- name: nic
  match:
  - pci: {vendor: "8086", device: "0x10ed", class: "02*", driver: vfio-pci}
  - usb: {vendor: 04E8, product: "68*", serial: "?*"}
  env: {ADDRESS: "{address}"}
  health: {command: [check, "{address}"]}
"""

RESOURCE = "version: 1\nnamespace: example.com\nresources:\n- name: x\n  match: [{path: /dev/x*}]\n"


def load(tmp_path: Path, text: str) -> ExposeConfig:
    file = tmp_path / "host.yaml"
    file.write_text(text)
    return load_expose_config(file)[0]


def mistakes(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    return [str(problem).removeprefix(f"{tmp_path}/") for problem in caught.value.problems]


def test_every_key_is_read(tmp_path: Path) -> None:
    """The whole form, with all placeholders."""
    config = load(tmp_path, FULL)
    sound, nic = config.resources
    assert (config.namespace, config.scan_interval) == ("devices.example.com", 0.5)
    assert [match.text for match in sound.match] == [
        "/dev/snd/pcmC*D*p",
        "/dev/snd/pcmC*D*c",
    ]
    assert [pattern.text for pattern in sound.exclude] == ["/dev/snd/pcmC9*"]
    assert (sound.container.path, sound.container.permissions) == ("/dev/snd/{name}", "rwm")
    assert sound.env["8080"] == "{id} {index} {path} {n} {2} {{literal}}"
    assert [(m.host, m.container, m.read_only) for m in sound.mounts] == [
        ("/run/udev", "/run/udev{n}", True),
        ("/var/lib/{name}", "", False),
    ]
    assert sound.with_ == ("/dev/snd/controlC{n}", "/dev/snd/timer")
    assert (sound.optional, sound.replicas) == (True, 2)
    assert (sound.id, sound.device_type) == ("index", "sound.shared")
    assert sound.fail_requests_greater_than_one
    assert (sound.allocation, sound.numa_nodes) == ("distributed", (0, 1))
    assert (config.gone_grace_of(sound), config.gone_grace_of(nic)) == (0.0, 30.0)
    assert sound.health == ExposedHealthRule(
        file="/sys/{name}", equals="ok", interval=60.0, fail_after=1, ok_after=5
    )
    assert nic.health == ExposedHealthRule(command=("check", "{address}"))
    assert config.scan_interval == 0.5
    assert [match.pci for match in nic.match] == [
        PciMatch(vendor="8086", device="0x10ed", class_="02*", driver="vfio-pci"),
        None,
    ]
    assert nic.match[1].usb == UsbMatch(vendor="04E8", product="68*", serial="?*")


def test_a_short_file_gets_the_defaults(tmp_path: Path) -> None:
    """Name and match are enough."""
    (resource,) = load(tmp_path, RESOURCE).resources
    assert (resource.container.path, resource.container.permissions) == ("{path}", "rw")
    assert (resource.exclude, resource.env, resource.mounts, resource.with_) == ((), {}, (), ())
    assert (resource.optional, resource.replicas) == (False, 1)
    assert (resource.id, resource.device_type, resource.numa_nodes) == ("stable", "x", None)
    assert (resource.allocation, resource.health) == ("none", None)
    assert not resource.fail_requests_greater_than_one
    assert load(tmp_path, RESOURCE).scan_interval == 5.0


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("  usb: {vendor: '0403'}", "6:3: resources[0].usb: unknown key (known: "),
        ("  inject: node", "resources[0].inject: 'node' is not known, did you mean 'nodes'?"),
        ("  inject: false", "resources[0].inject: must be text, not true or false"),
        (
            "- {name: 3d, match: [{path: /y}], inject: cdi}",
            "resources[1].inject: no CDI device can have the name example.com/3d=...: the class ",
        ),
        ("  id: stabel", "resources[0].id: 'stabel' is not known, did you mean 'stable'?"),
        ("  topology: yes", "resources[0].topology: must be text, not true or false (auto, none"),
        ("  topology: 0", "resources[0].topology: must be text, not a number (auto, none, or a"),
        ("  topology: any", "resources[0].topology: 'any' is not known, must be auto or none"),
        ("  topology: [-1]", "resources[0].topology[0]: -1 is negative; a NUMA node is 0 or more"),
        ("  topology: [a]", "resources[0].topology[0]: must be a whole number, not text"),
        ("  allocation: pack", "allocation: 'pack' is not known, did you mean 'packed'?"),
        ("  renameShared: 1", "resources[0].renameShared: must be true or false, not a number"),
        ("  failRequestsGreaterThanOne: 1", "failRequestsGreaterThanOne: must be true or false"),
        ("  goneGrace: 5", "resources[0].goneGrace: must be text, not a number (for example 30s"),
        ("  health: {}", "resources[0].health: one of file, command is needed (write 'health: "),
        ("  health: ok", "resources[0].health: must be keys and values, not text"),
        ("  health: {file: /x, command: [a]}", "health: use only one of file and command"),
        ("  health: {command: []}", "resources[0].health.command: this list is empty (a list: the"),
        ("  health: {command: [a, '{x}']}", "health.command[1]: unknown placeholder {x}"),
        ("  health: {command: [a], equals: b}", "health.equals: only the exit code of a command"),
        ("  health: {file: x}", "resources[0].health.file: 'x' must be an absolute path"),
        ("  health: {file: '/x{3}'}", "resources[0].health.file: {3} has no value"),
        ("  health: {file: /x, failAfter: 0}", "health.failAfter: must be from 1 to 1000, not 0"),
        ("  health: {file: /x, interval: 1ms}", "health.interval: shorter than 100ms"),
        ("  env: {A: '{address}'}", "env.A: {address} has no value: /dev/x* is a path"),
        ("  permissions: rw", "resources[0].permissions: unknown key"),
        ("  exclude: [ttyUSB*]", "resources[0].exclude[0]: 'ttyUSB*' must be an absolute path"),
        ("  exclude: /dev/x9", "resources[0].exclude: must be a list, not text"),
        ("  container: /dev/y", "resources[0].container: must be keys and values, not text"),
        ("  container: {path: y}", "resources[0].container.path: 'y' must be an absolute path"),
        ("  container: {path: /dev/}", "resources[0].container.path: '/dev/' is a directory"),
        ("  container: {path: '/dev/{idx}'}", "unknown placeholder {idx}, did you mean {id}?"),
        ("  container: {path: '/dev/{foo}'}", "unknown placeholder {foo}, known: {n}, {name}"),
        ("  container: {path: '{container_path}'}", "unknown placeholder {container_path}, known"),
        ("  container: {path: '/dev/{'}", "resources[0].container.path: a single '{'"),
        ("  container: {permissions: rx}", "permissions 'rx' must be letters of 'rwm'"),
        ("  container: {permissions: rr}", "permissions 'rr' must be letters of 'rwm'"),
        ("  container: {perm: r}", "resources[0].container.perm: unknown key (known: path,"),
        ("  env: {'': a}", "'' cannot name an environment variable"),
        ("  env: {'A{': b}", "resources[0].env.A{: a single '{': write it twice"),
        ("  env: {'A{b}': b}", "resources[0].env.A{b}: unknown placeholder {b}, known: {n}"),
        ("  env: {'A{2}': b}", "resources[0].env.A{2}: {2} has no value: /dev/x* has 1"),
        ("  env: {A: 5}", 'resources[0].env.A: must be text, not a number (write "5" in quotes)'),
        ("  env: {A: '{2}'}", "resources[0].env.A: {2} has no value: /dev/x* has 1 wildcard"),
        ("  mounts: [{host: run}]", "resources[0].mounts[0].host: 'run' must be an absolute path"),
        ("  mounts: [{container: /run}]", "resources[0].mounts[0].host: this key is missing"),
        ("  mounts: [/run]", "resources[0].mounts[0]: must be keys and values, not text"),
        ("  with: [/dev/**]", "resources[0].with[0]: '**' is not supported, name every directory"),
        ("  with: ['/dev/y{index}']", "resources[0].with[0]: unknown placeholder {index}, known"),
        ("  with: ['/dev/y{3}']", "resources[0].with[0]: {3} has no value"),
        ("  optional: 1", "resources[0].optional: must be true or false, not a number"),
        ("  replicas: 0", "resources[0].replicas: must be from 1 to 1000, not 0"),
        ("  replicas: 1.5", "resources[0].replicas: must be a whole number, not a decimal"),
        ("- name: x\n  match: [{path: /dev/y}]", "6:9: resources[1].name: 'x' is there already"),
        ("- name: x_\n  match: [{path: /dev/y}]", "resources[1].name: 'x_' must be letters"),
        ("- name: foo/x\n  match: [{path: /dev/y}]", "write only the part after the slash"),
        ("- name: y\n  match: [{path: dev/y}]", "'dev/y' must be an absolute path"),
        ("- name: y\n  match: [{path: '/dev/y['}]", "the '[' in 'y[' is never closed"),
        ("- name: y\n  match: [{usb: {vendor: 0403}}]", 'must be text, not a number (write "0403"'),
        (
            "- name: y\n  match: [{usb: {}}]",
            "match[0].usb: one of vendor, product, serial, class is",
        ),
        ("- name: y\n  match: [{usb: {vendor: xy}}]", "vendor: 'xy' is not a hexadecimal number"),
        ("- name: y\n  match: [{pci: {driver: ''}}]", "match[0].pci.driver: this text is empty"),
        ("- name: y\n  match: [{pci: {class: display}}]", "class: 'display' is not a hexadecimal"),
        ("- name: y\n  match: [{}]", "resources[1].match[0]: one of path, directory, usb, pci is"),
        ("- name: y\n  match: [{path: /y, pci: {class: '03'}}]", "use only one of path and pci"),
        (
            "- name: y\n  match: [{usb: {serial: A}}]\n  env: {N: '{n}'}",
            "a match by usb has no wild",
        ),
        (
            "- name: y\n  wiht: []\n  match: [{path: /y}]",
            "resources[1].wiht: unknown key (did you mean 'with'?)",
        ),
        ("- name: y\n  match: []", "resources[1].match: this list is empty"),
        ("- name: y", "6:3: resources[1].match: this key is missing"),
        ("scanInterval: 5", "scanInterval: must be text, not a number (for example 5s or 500ms)"),
        ("scanInterval: fast", "scanInterval: 'fast' is not a duration (for example 5s or 500ms)"),
        ("scanInterval: 9999h", "scanInterval: 9999h is longer than a year (for example 5s"),
        ('  env: {A: "a\\0b"}', r"resources[0].env.A: 'a\x00b' contains a NUL character"),
        ("  topology: [1024]", "topology[0]: 1024: NUMA nodes go up to 1023"),
        ("  health: {command: ['']}", "health.command[0]: this text is empty (the program's name"),
        (
            f"- {{name: {'y' * 60}, match: [{{path: /y}}], replicas: 2, renameShared: true}}",
            ".shared': the part after the slash has 67 characters, at most 63 are allowed",
        ),
        ("scanInterval: 1ms", "scanInterval: shorter than 100ms"),
        ("resource: []", "resource: unknown key (did you mean 'resources'?)"),
    ],
)
def test_one_mistake_gives_one_message(tmp_path: Path, line: str, expected: str) -> None:
    """With file, line, column and key."""
    (found,) = mistakes(tmp_path, RESOURCE + line)
    assert found.startswith("host.yaml:6:") or line.startswith("-")
    assert expected in found


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("version: 1", "version: 2", "host.yaml:1:10: version: version 2 is not known"),
        ("version: 1\n", "", "host.yaml:1:1: version: this key is missing (write 'version: 1')"),
        ("example.com", "Example", "host.yaml:2:12: namespace: 'Example' is not a domain"),
        ("example.com", "kubernetes.io", "namespace: domains ending in kubernetes.io"),
        ("example.com", "''", "namespace: a namespace is needed"),
        ("example.com", "a.com/b", "namespace: 'a.com/b': write only the part before the slash"),
    ],
)
def test_the_head_of_the_file_is_checked(tmp_path: Path, old: str, new: str, expected: str) -> None:
    """Version and namespace."""
    (found,) = mistakes(tmp_path, RESOURCE.replace(old, new))
    assert expected in found


def test_a_placeholder_needs_its_wildcard_in_every_match(tmp_path: Path) -> None:
    """`{n}` of an exact path has no value, wherever it is used."""
    text = RESOURCE.replace("[{path: /dev/x*}]", "[{path: /dev/x*}, {path: /dev/y}]") + (
        "  with: ['/dev/c{n}']\n  mounts: [{host: '/run/{n}'}]\n  container: {path: '/dev/{1}'}\n"
    )
    nothing = "has no value: /dev/y has no wildcard"
    assert mistakes(tmp_path, text) == [
        "host.yaml:6:10: resources[0].with[0]: {n} " + nothing,
        "host.yaml:7:19: resources[0].mounts[0].host: {n} " + nothing,
        "host.yaml:8:21: resources[0].container.path: {1} " + nothing,
    ]


@pytest.mark.parametrize(
    ("text", "seconds"), [("5s", 5.0), ("500ms", 0.5), ("1.5m", 90.0), ("2h", 7200.0)]
)
def test_durations_have_a_unit(text: str, seconds: float) -> None:
    """As in Go."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "-5s", "5 s", "1h30m"])
def test_other_durations_are_refused(text: str) -> None:
    """One number, one unit."""
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


def test_a_renamed_resource_must_not_meet_another(tmp_path: Path) -> None:
    """`x`, shared and renamed, is what `x.shared` is already called."""
    text = RESOURCE.replace("name: x\n", "name: x.shared\n") + (
        "- name: x\n  match: [{path: /dev/y}]\n  replicas: 2\n  renameShared: true\n"
    )
    (found,) = mistakes(tmp_path, text)
    assert found == (
        "host.yaml:6:9: resources[1].name: the resource 'x.shared' already has the name 'x.shared'"
    )
