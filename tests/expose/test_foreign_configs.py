"""Files of other device plugins, in the forms that they document."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kubedevices.errors import ConfigError
from kubedevices.expose.config import load_expose_config
from kubedevices.expose.foreign_configs import Converted, convert


def converted(tmp_path: Path, text: str) -> Converted:
    """Convert `text`, and see that expose takes the result."""
    file = tmp_path / "foreign.yaml"
    file.write_text(text)
    result = convert(file)
    ours = tmp_path / "ours.yaml"
    ours.write_text(yaml.safe_dump(result.document))
    load_expose_config(ours)
    return result


GENERIC: list[tuple[str, dict[str, Any]]] = [
    (
        (
            '{"name": "serial", "groups": [{"paths": [{"path": "/dev/ttyUSB*"}]}, '
            '{"paths": [{"path": "/dev/ttyACM*"}]}]}'
        ),
        {
            "name": "serial",
            "match": [{"path": "/dev/ttyUSB*"}, {"path": "/dev/ttyACM*"}],
            "container": {"permissions": "mrw"},
        },
    ),
    (
        (
            '{"name": "capture", "groups": [{"paths": [{"path": "/dev/snd/pcmC0D0c"}, '
            '{"path": "/dev/snd/controlC0"}]}]}'
        ),
        {
            "name": "capture",
            "match": [{"path": "/dev/snd/pcmC0D0c"}],
            "container": {"permissions": "mrw"},
            "with": ["/dev/snd/controlC0"],
        },
    ),
    (
        '{"name": "ch340", "groups": [{"usb": [{"vendor": "1a86", "product": "7523"}]}]}',
        {"name": "ch340", "match": [{"usb": {"vendor": "1a86", "product": "7523"}}]},
    ),
    (
        '{"name": "fuse", "groups": [{"count": 10, "paths": [{"path": "/dev/fuse"}]}]}',
        {
            "name": "fuse",
            "match": [{"path": "/dev/fuse"}],
            "container": {"permissions": "mrw"},
            "replicas": 10,
        },
    ),
    (
        "name: ftdi\ngroups: [{usb: [{vendor: 0403, product: 6001, serial: A10}]}]",
        {
            "name": "ftdi",
            "match": [{"usb": {"vendor": "0403", "product": "6001", "serial": "A10"}}],
        },
    ),
    (
        (
            "name: cam\ngroups: [{paths: [{path: /dev/video0, mountPath: /dev/cam, permissions: rw}"
            ", {path: /run/udev/, type: Mount, readOnly: true}, {path: /dev/m, optional: true, "
            "permissions: rw}, {path: /etc/cam, mountPath: /etc/c/, type: Mount}]}]"
        ),
        {
            "name": "cam",
            "match": [{"path": "/dev/video0"}],
            "container": {"path": "/dev/cam"},
            "with": ["/dev/m"],
            "optional": True,
            "mounts": [
                {"host": "/run/udev", "readOnly": True},
                {"host": "/etc/cam", "container": "/etc/c"},
            ],
        },
    ),
]


UNKNOWN_DOMAIN = (
    "the file names no domain: devic.es is the default of generic-device-plugin since 0.2; before, "
    "it was squat.ai. Take the one that your pods ask for (line 1)"
)


@pytest.mark.parametrize(("text", "resource"), GENERIC)
def test_a_resource_of_generic_device_plugin(
    tmp_path: Path, text: str, resource: dict[str, Any]
) -> None:
    """As the value of a `--device` flag, in a list of them, and in a configuration file."""
    expected = {"version": 1, "namespace": "devic.es", "resources": [resource]}
    assert converted(tmp_path, text) == Converted(expected, (UNKNOWN_DOMAIN,))
    for flag in ("0403", "6001"):
        text = text.replace(flag, f"'{flag}'")
    data = yaml.safe_load(text)
    assert converted(tmp_path, yaml.safe_dump([data])).document == expected
    document = yaml.safe_dump({"domain": "example.com", "devices": [data]})
    assert converted(tmp_path, document).document == expected | {"namespace": "example.com"}


def test_a_path_may_be_shared_up_to_its_limit(tmp_path: Path) -> None:
    """What the limit was is told; the path with the wildcard makes the devices, also as second."""
    result = converted(
        tmp_path,
        "domain: a.com\ndevices:\n- name: a\n  groups:\n  - paths:\n"
        "    - {path: /dev/kvm, limit: 10}\n    - {path: /dev/ttyUSB*}\n"
        "    - {path: /run/udev, type: Mount, limit: 5}\n",
    )
    assert result.document["resources"] == [
        {
            "name": "a",
            "match": [{"path": "/dev/ttyUSB*"}],
            "container": {"permissions": "mrw"},
            "with": ["/dev/kvm"],
            "mounts": [{"host": "/run/udev"}],
        }
    ]
    assert result.notes == (
        "/dev/kvm belongs to every /dev/ttyUSB*, no longer to 10 of them at most (line 6)",
        "/run/udev belongs to every /dev/ttyUSB*, no longer to 5 of them at most (line 8)",
    )


@pytest.mark.parametrize("paths", ["{path: /a}, {path: /b, limit: 2}", "{path: /a*, limit: 2}"])
def test_a_limit_without_effect_is_ignored(tmp_path: Path, paths: str) -> None:
    """There is one device of files without wildcards, and one of each match of a lone glob."""
    result = converted(tmp_path, f"{{name: a, groups: [{{paths: [{paths}]}}]}}")
    assert result.notes == (UNKNOWN_DOMAIN,)


def test_keys_are_read_in_upper_and_lower_case(tmp_path: Path) -> None:
    """As by the plugin, whose own options are no matter; so is what comes by an anchor."""
    result = converted(
        tmp_path,
        "Domain: a.b\nlog-level: debug\nDEVICES:\n- Name: a\n  Groups:\n"
        "  - {Count: 2, USB: [&one {Vendor: 0403}, {<<: *one, PRODUCT: 6001}]}\n"
        "- name: b\n  groups: [{paths: [{path: /dev/b, mountpath: /dev/c/, PERMISSIONS: rw}]}]\n",
    )
    assert result.document["namespace"] == "a.b"
    assert result.document["resources"] == [
        {
            "name": "a",
            "match": [
                {"usb": {"vendor": "0403"}},
                {"usb": {"vendor": "0403", "product": "6001"}},
            ],
            "replicas": 2,
        },
        {"name": "b", "match": [{"path": "/dev/b"}], "container": {"path": "/dev/c/{name}"}},
    ]
    assert result.notes[0] == "log-level is left out: it does not concern devices (line 2)"


def test_globs_of_go_become_globs_of_expose(tmp_path: Path) -> None:
    """There, `[^0]` is what `[!0]` is here; wildcards side by side are one."""
    text = (
        "{name: a, groups: [{paths: [{path: '/dev/a[^0][0-9]'}, {path: '/dev/b[1-9][0-9]'}, "
        "{path: '/run/c*', type: Mount}]}]}"
    )
    [resource] = converted(tmp_path, text).document["resources"]
    assert resource["match"] == [{"path": "/dev/a[!0][0-9]"}]
    assert resource["with"] == ["/dev/b{n}"]
    assert resource["mounts"] == [{"host": "/run/c{n}"}]


def test_a_changed_meaning_becomes_a_comment(tmp_path: Path) -> None:
    """Companions by wildcard, one place for many devices, several USB devices in one."""
    result = converted(
        tmp_path,
        "domain: a.com\n"
        "devices:\n- name: a\n  groups: [{paths: [{path: /dev/snd/pcmC*D0p}, "
        "{path: /dev/snd/controlC*}]}]\n"
        "- name: b\n  groups: [{paths: [{path: /dev/video*, mountPath: /dev/cam}]}]\n"
        "- name: c\n  groups: [{usb: [{vendor: '0403'}, {vendor: '1a86'}]}]\n",
    )
    assert result.document["resources"][0]["with"] == ["/dev/snd/controlC{n}"]
    first, second, third = result.notes
    assert first.startswith(
        "/dev/snd/controlC* belongs to the /dev/snd/pcmC*D0p with the same text"
    )
    assert second.startswith(
        'every device of /dev/video* has the path /dev/cam in the container: write "/dev/cam{in'
    )
    assert third.startswith("the plugin made one device from several USB")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("device:\n- name: a\n  groups:\n  - paths: [path: /a]\n  - {count: 2, paths: [{path: b}]}",
         ":5:5: device[0].groups[1]: this group differs from the first group (replicas)"),
        ("devices:\n- groups: []", ":2:3: devices[0]: a name and a list of groups are needed"),
        ("{name: a, groups: [{}]}", ":1:20: groups[0]: a group needs a list of paths or of usb"),
        ("{name: a, groups: [{paths: [{path: /a, type: Mount}]}]}", "a group needs a device file"),
        ("{name: a, groups: [{paths: [{path: '/a*'}, {path: /b*c*}]}]}", "which file of /b*c*"),
        ("{name: a, groups: [5]}", "groups[0]: a group needs a list of paths or of usb"),
        ("{name: a, groups: [{paths: [x]}]}", "groups[0]: a group needs a list of paths or of usb"),
        ("{name: a, groups: [{paths: [{path: 5}]}]}", "groups[0].paths: every entry needs a path"),
        ("{name: a, groups: [{count: x, paths: [{path: /a}]}]}", "count: 'x' is not a number of"),
        ("- {devicematch: ^a$, nummaxdevices: 0}", "nummaxdevices: 0 is not a number of devices"),
        ("{name: a, groups: [{paths: [{path: '/a*'},\n{path: /b}]}]}",
         ":2:1: groups[0].paths[1]: /b belongs to one device, but expose would give it to every"),
        ("{name: a, groups: [{paths: [{path: '/a*'}, {path: /b, type: Mount}]}]}",
         "groups[0].paths[1]: /b belongs to one device"),
        ("{name: a, groups: [{paths: [{path: '/a*'}, {path: /b*, limit: 2}]}]}",
         "groups[0].paths[1].limit: expose cannot use each match of /b*"),
        ("{name: a, groups: [{paths: [{path: /a, limit: x}]}]}", "limit: 'x' is not a number of"),
        ("{name: a, groups: [{paths: [{path: /a,\nlimt: 3}]}]}",
         ":2:1: groups[0].paths[0].limt: unknown key (did you mean 'limit'?)"),
        ("{name: a, groups: [{paths: [path: /a], cuont: 3}]}", "unknown key (did you mean 'count'"),
        ("{name: a, groups: [{usb: [{vendr: '1'}]}]}", "unknown key (did you mean 'vendor'?)"),
        ("{name: a, group: []}", ":1:1: a name and a list of groups are needed"),
        ("devices: []\ndomian: x", ":2:1: domian: unknown key (did you mean 'domain'?)"),
        ("{name: a, groups: [{paths: [{path: /a, Path: /b}]}]}", "this key stands twice"),
        ("- name: {? [b] : 3}\n  groups: []", ":1:12: not valid YAML"),
        ("{name: a, groups: [{paths: [path: /a], usb: [vendor: '1']}]}", "paths or of usb"),
        ("{name: a, groups: [{paths: [{path: /a, type: mount}]}]}",
         "type: 'mount' is neither 'Device' nor 'Mount'"),
        ("{name: a, groups: [{paths: [{path: /a, type: [Mount]}]}]}", "type: must be text"),
        ("{name: a, groups: [{paths: [{path: /a, mountPath: 5}]}]}", "mountPath: must be text"),
        ("{name: a, groups: [{paths: [{path: /a, optional: 'no'}]}]}", "must be true or false"),
        ("{name: a, groups: [{paths: [{path: /a, permissions: rx}]}]}", "must be letters of 'rwm'"),
        ("{name: a, groups: []}", ":1:1: a name and a list of groups are needed"),
        ("{name: a, groups: [{paths: [{path: '/a[!b]'}]}]}", "[!...] and \\ have another meaning"),
        ("{name: a, groups: [{paths: [{path: '/a**'}]}]}", "'**' is not supported"),
        ("{name: a, groups: [{paths: [{path: /dev/snd}, {path: /dev/kvm}]}]}",
         "/dev/snd is a directory, which expose serves only alone and at its own path"),
        ("{name: a, groups: [{paths: [{path: /dev/snd, mountPath: /dev/audio}]}]}", "a directory"),
        ("{name: a, groups: [{paths: [{path: /a}, {path: /b, type: Mount, optional: true}]}]}",
         "a mount cannot be optional"),
        ("{name: a, groups: [{paths: [{path: /a, optional: true}, {path: /b, optional: true}]}]}",
         "expose needs one file of a group that is not optional"),
        ("- devicematch: ^a$\n  nummax: 3", ":2:3: [0].nummax: unknown key (did you mean 'nummaxd"),
        ("hello", ":1:1: this is not a file of generic-device-plugin or smarter"),
        ("hello: world", ":1:1: this is not a file of generic-device-plugin"),
        ("- devicematch: ^(a|b)$", ":1:16: [0].devicematch: '^(a|b)$' cannot be written with *"),
        ("- devicematch: ^ab*$", "'^ab*$' cannot be written with *, ? and [...]"),
        ("- devicematch: .*", ":1:16: [0].devicematch: '.*' would serve every file"),
        ("- devicematch: ^b/.*$", "expose has no names for files in directories"),
    ],
)  # fmt: skip
def test_an_inexpressible_entry_is_refused_with_its_line(
    tmp_path: Path, text: str, expected: str
) -> None:
    """Instead of a file that means something else."""
    with pytest.raises(ConfigError) as caught:
        converted(tmp_path, text)
    assert expected in str(caught.value.problems[0])


SMARTER = """\
- devicematch: ^snd$
  nummaxdevices: 20
- devicematch: ^gpiomem$
  nummaxdevices: 40
- devicematch: ^gpiochip[0-9]*$
  nummaxdevices: 20
- devicematch: ^i2c-[0-9]*$
  nummaxdevices: 1
- devicematch: ^vcsm.*$
  nummaxdevices: 20
- devicematch: ^ttyUSB[0-9]*$
  nummaxdevices: 1
- devicematch: nvidia-gpu
  nummaxdevices: 10
"""


DIGITS = "a number has at most 3 digits"


def numbered(path: str) -> list[str]:
    """Return the globs of `path` with a number behind it, or none."""
    return [path + "[0-9]" * digits for digits in range(4)]


def test_a_file_of_smarter_device_manager(tmp_path: Path) -> None:
    """Its documented example: pods ask for the same names as before."""
    result = converted(tmp_path, SMARTER)
    assert result.document["namespace"] == "smarter-devices"
    found = [
        (each["name"], [*each["match"][0].items(), len(each["match"])], each.get("replicas", 1))
        for each in result.document["resources"]
    ]
    assert found == [
        ("snd", [("directory", "/dev/snd"), 1], 20),
        ("gpiomem", [("path", "/dev/gpiomem"), 1], 40),
        ("{name}", [("path", "/dev/gpiochip"), 4], 20),
        ("{name}", [("path", "/dev/i2c-"), 4], 1),
        ("{name}", [("path", "/dev/vcsm*"), 1], 20),
        ("{name}", [("path", "/dev/ttyUSB"), 4], 1),
    ]
    paths = [match["path"] for match in result.document["resources"][2]["match"]]
    assert paths == numbered("/dev/gpiochip")
    assert [*result.notes] == [
        f"^gpiochip[0-9]*$: {DIGITS} (line 5)",
        f"^i2c-[0-9]*$: {DIGITS} (line 7)",
        "^vcsm.*$: matches in lower directories are left out (line 9)",
        f"^ttyUSB[0-9]*$: {DIGITS} (line 11)",
        "nvidia-gpu is left out: it means the files of a Jetson board (line 13)",
    ]


def test_files_of_a_group_keep_their_paths_and_rights(tmp_path: Path) -> None:
    """Each with its mount path, its permissions, and whether it may be missing."""
    result = converted(
        tmp_path,
        "{name: a, groups: [{paths: [{path: /dev/ttyUSB*, mountPath: /dev/modem}, "
        "{path: /dev/gpio*, mountPath: /dev/reset, permissions: rw}, "
        "{path: /dev/log*, mountPath: /log/, optional: true}]}]}",
    )
    (resource,) = result.document["resources"]
    assert resource["with"] == [
        {"path": "/dev/gpio{n}", "container": "/dev/reset", "permissions": "rw"},
        {"path": "/dev/log{n}", "container": "/log/log{n}", "optional": True},
    ]
    assert "optional" not in resource
    text = "{name: b, groups: [{paths: [{path: /dev/snd}]}]}"
    (resource,) = converted(tmp_path, text).document["resources"]
    assert resource["match"] == [{"directory": "/dev/snd"}]


def test_entries_that_cannot_be_converted_are_reported_and_the_rest_converted(
    tmp_path: Path,
) -> None:
    """With its line; the other entries are converted."""
    result = converted(
        tmp_path,
        "devices:\n- {name: a, groups: [{paths: [{path: /a}]}]}\n"
        "- {name: b, groups: [{paths: [{path: '/b*'}, {path: '/c*d*'}]}]}\n",
    )
    assert [each["name"] for each in result.document["resources"]] == ["a"]
    (text,) = result.left_out
    assert text.startswith(
        "line 3: devices[1].groups[0].paths[1]: it is not clear which file of /c*d* belongs"
    )
    result = converted(tmp_path, "- devicematch: ^a0$\n- {}\n- devicematch: ^a0$")
    assert [*result.left_out] == [
        "line 2: [1]: a devicematch is needed",
        "line 3: [2].devicematch: this would be a second resource a0",
    ]
