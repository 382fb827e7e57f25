"""`kubedevices cdi`."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.command_line import CommandLine

GOOD = {
    "cdiVersion": "0.6.0",
    "kind": "v.com/c",
    "annotations": {"a": "b"},
    "devices": [{"name": "w", "containerEdits": {"deviceNodes": [{"path": "/dev/null"}]}}],
    "containerEdits": {"env": ["A=1"]},
}
BAD = {
    "cdiVersion": "0.3.0",
    "kind": "v.com/d",
    "devices": [{"name": "-", "containerEdits": {"env": ["x"]}}],
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A CDI directory with a good file, a bad one and one of another ending."""
    directory = tmp_path / "cdi"
    directory.mkdir()
    (directory / "bad.json").write_text(json.dumps(BAD))
    (directory / "good.yaml").write_text(json.dumps(GOOD))
    (directory / "x.yml").write_text("")
    return directory


@pytest.fixture
def cdi(cli: CommandLine) -> CommandLine:
    return cli.of("cdi")


def test_list_shows_devices_and_says_what_is_broken(directory: Path, cdi: CommandLine) -> None:
    """Devices on stdout, problems on stderr, and the code is 0: the question was answered."""
    done = cdi("list", "--cdi-dir", directory)
    assert done.lines == [
        "NAME       VERSION  DEVICE NODES  FILE",
        f"v.com/c=w  0.6.0    /dev/null     {directory}/good.yaml",
    ]
    assert f"{directory}/bad.json: /devices/0/name: the device name '-'" in done.err


def test_list_for_programs(directory: Path, cdi: CommandLine) -> None:
    """The keys are a promise, and errors are part of the document."""
    done = cdi("list", "--cdi-dir", directory, "-o", "json")
    assert done.data["devices"] == [
        {
            "name": "v.com/c=w",
            "kind": "v.com/c",
            "device": "w",
            "version": "0.6.0",
            "file": f"{directory}/good.yaml",
            "device_nodes": ["/dev/null"],
            "missing": [],
        }
    ]
    assert len(done.data["errors"][f"{directory}/bad.json"]) == 2
    assert done.err == ""


def test_an_empty_list_says_where_it_looked(tmp_path: Path, cdi: CommandLine) -> None:
    """Nothing on stdout, a word on stderr."""
    done = cdi("list", "--cdi-dir", tmp_path)
    assert (done.out, done.err) == ("", f"no CDI devices in {tmp_path}\n")


def test_later_directories_override(directory: Path, tmp_path: Path, cdi: CommandLine) -> None:
    """`--cdi-dir` comes several times, as directories do for engines."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "good.json").write_text(json.dumps(GOOD))
    done = cdi("list", "--cdi-dir", directory, "--cdi-dir", other, "-o", "json")
    assert [each["file"] for each in done.data["devices"]] == [f"{other}/good.json"]


def test_validate_shows_every_problem_with_its_place(directory: Path, cdi: CommandLine) -> None:
    """The code is 1 as soon as one file is invalid."""
    done = cdi("validate", directory, "-o", "json", code=1)
    bad, good = done.data
    assert [each["pointer"] for each in bad["problems"]] == [
        "/devices/0/name",
        "/devices/0/containerEdits/env/0",
    ]
    assert (bad["valid"], bad["kind"], bad["version"]) == (False, "v.com/d", None)
    assert good == {
        "path": f"{directory}/good.yaml",
        "valid": True,
        "kind": "v.com/c",
        "version": "0.6.0",
        "devices": 1,
        "problems": [],
        "missing": [],
        "warnings": ["podman 4.3 reads versions up to 0.5.0"],
    }


def test_validate_prints_a_line_per_finding(directory: Path, cdi: CommandLine) -> None:
    """Valid, invalid and warning can be found by grep."""
    lines = cdi("validate", directory, code=1).lines
    assert [line.split()[1] for line in lines[1:]] == ["invalid", "invalid", "valid", "warning"]
    assert lines[3].endswith("v.com/c, 1 device")


def test_validate_takes_files_and_the_code_is_0_when_all_are_valid(
    directory: Path, cdi: CommandLine
) -> None:
    """A warning is no mistake."""
    cdi("validate", directory / "good.yaml")


def test_validate_finds_conflicts(directory: Path, cdi: CommandLine) -> None:
    """Two valid files of one directory may make a name unusable."""
    (directory / "bad.json").write_text(json.dumps(GOOD))
    done = cdi("validate", directory, "-o", "json", code=1)
    assert [each["problems"][0]["problem"] for each in done.data] == [
        f"v.com/c=w is also defined in {directory}/good.yaml",
        f"v.com/c=w is also defined in {directory}/bad.json",
    ]


def test_validate_can_be_strict(directory: Path, cdi: CommandLine) -> None:
    """Readers take a mount without `bind`, containers do not start with it."""
    edits = {"mounts": [{"hostPath": "/a", "containerPath": "/b"}]}
    data = GOOD | {"devices": [{"name": "w", "containerEdits": edits}]}
    path = directory / "good.yaml"
    path.write_text(json.dumps(data))
    cdi("validate", path)
    done = cdi("validate", "--strict", path, code=1)
    assert "/devices/0/containerEdits/mounts/0/options" in done.out


def test_validate_refuses_a_missing_file(tmp_path: Path, cdi: CommandLine) -> None:
    """A path that is not there could not be asked; an empty directory is no mistake."""
    done = cdi("validate", tmp_path / "nope.json", code=3)
    assert done.err == (
        f"kubedevices: cannot read {tmp_path}/nope.json: no such file or directory\n"
    )
    done = cdi("validate", tmp_path)
    assert done.err == f"no CDI files in {tmp_path}\n"
    (tmp_path / "link").symlink_to(tmp_path)
    cdi("validate", tmp_path / "link", code=3)


def test_resolve_says_why(directory: Path, cdi: CommandLine) -> None:
    """One line per name, a reason for each, and code 1 when one does not resolve."""
    names = ["v.com/c=w", "v.com/c=x", "v.com/d=y", "v.com/z=y", "/dev/null"]
    done = cdi("resolve", "--cdi-dir", directory, "-o", "json", *names, code=1)
    assert [each["resolves"] for each in done.data] == [True, False, False, False, False]
    reasons = [each["reason"] for each in done.data]
    assert reasons[0] == f"defined in {directory}/good.yaml"
    assert "no such device of v.com/c" in reasons[1]
    assert f"{directory}/bad.json is invalid" in reasons[2]
    assert f"no file defines the kind v.com/z (looked in {directory}" in reasons[3]
    assert f"{directory}/x.yml" in reasons[3]
    assert "it is a path" in reasons[4]


def test_resolve_prints_warnings_as_lines(directory: Path, cdi: CommandLine) -> None:
    """A name that resolves may still be invisible to some runtime."""
    (directory / "good.yaml").chmod(0o600)
    done = cdi("resolve", "v.com/c=w", "--cdi-dir", directory)
    assert "resolves" in done.lines[1]
    assert "podman 4.3" in done.lines[2]
    assert "mode 0600" in done.lines[3]


def test_resolve_shows_the_edits_of_a_name(directory: Path, cdi: CommandLine) -> None:
    """The edits of the file and of the device, in YAML as well."""
    done = cdi("resolve", "v.com/c=w", "--cdi-dir", directory, "-o", "yaml")
    [found] = yaml.safe_load(done.out)
    assert found["edits"] == {"env": ["A=1"], "deviceNodes": [{"path": "/dev/null"}]}


def test_inject_puts_the_device_into_a_configuration(
    directory: Path, cdi: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From standard input to standard output, for runtimes that do not know CDI."""
    monkeypatch.setattr("sys.stdin", io.StringIO('{"process": {"env": ["A=0"]}}'))
    done = cdi("inject", "v.com/c=w", "--cdi-dir", directory)
    assert done.data["process"] == {"env": ["A=1"]}
    [device] = done.data["linux"]["devices"]
    assert (device["path"], device["major"], device["minor"]) == ("/dev/null", 1, 3)


@pytest.mark.parametrize(
    ("text", "name", "code", "message"),
    [
        ("{}", "v.com/c=x", 1, "unresolvable CDI devices v.com/c=x (v.com/c=x: no such device"),
        ("[", "v.com/c=w", 2, "no OCI configuration on standard input: not JSON"),
        ("[]", "v.com/c=w", 2, "not a JSON object"),
    ],
)
def test_inject_changes_nothing_on_failure(
    *,
    text: str,
    name: str,
    code: int,
    message: str,
    directory: Path,
    cdi: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is printed to stdout, one line to stderr."""
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    done = cdi("inject", name, "--cdi-dir", directory, code=code)
    assert done.out == ""
    assert message in done.err
    assert len(done.err.splitlines()) == 1


def test_an_action_is_needed(cdi: CommandLine) -> None:
    """Wrong usage is one line and code 2."""
    assert len(cdi(code=2).err.splitlines()) == 1
    cdi("lst", code=2)


def test_what_the_host_does_not_have_is_a_warning(tmp_path: Path, cdi: CommandLine) -> None:
    """The file is valid and the name resolves, but no container with the device works."""
    (tmp_path / "plain").touch()
    edits = {
        "deviceNodes": [
            {"path": "/dev/null"},
            {"path": "/dev/gone"},
            {"path": "/dev/x", "hostPath": str(tmp_path / "plain")},
            {"path": "/dev/made", "type": "c", "major": 1, "minor": 3},
            {"path": "/dev/null", "type": "b"},
            {"path": "/dev/null", "type": "u", "major": 1, "minor": 3},
            {"path": "/dev/null", "type": "c", "major": 510, "minor": 0},
        ],
        "mounts": [
            {"hostPath": "/usr", "containerPath": "/u"},
            {"hostPath": "/usr/lib/gone.so.1", "containerPath": "/l"},
            {"hostPath": "tmpfs", "containerPath": "/t", "type": "tmpfs"},
        ],
        "hooks": [
            {"hookName": "createContainer", "path": "/usr/bin/gone-hook"},
            {"hookName": "createContainer", "path": str(tmp_path / "plain")},
        ],
    }
    content: dict[str, Any] = {"cdiVersion": "0.5.0", "kind": "v.com/c"}
    content |= {"devices": [{"name": "w", "containerEdits": edits}]}
    (tmp_path / "gone.json").write_text(json.dumps(content))
    texts = [
        "this host has no /dev/gone",
        f"{tmp_path}/plain is no device file on this host",
        "/dev/null has the type c on this host, not b",
        "/dev/null is 1:3 on this host, not 510:0",
        "this host has no /usr/lib/gone.so.1",
        "this host has no /usr/bin/gone-hook",
        f"{tmp_path}/plain is no program on this host",
    ]
    places = [f"deviceNodes/{number}" for number in (1, 2, 4, 6)]
    places += ["mounts/1/hostPath", "hooks/0/path", "hooks/1/path"]
    listed = cdi("list", "--cdi-dir", tmp_path, "-o", "json")
    assert listed.data["devices"][0]["missing"] == texts
    checked = cdi("validate", tmp_path, "-o", "json")
    assert checked.data[0]["valid"] is True
    assert [each["problem"] for each in checked.data[0]["missing"]] == texts
    assert [each["pointer"] for each in checked.data[0]["missing"]] == [
        f"/devices/0/containerEdits/{place}" for place in places
    ]
    resolved = cdi("resolve", "v.com/c=w", "--cdi-dir", tmp_path, "-o", "json")
    assert resolved.data[0]["warnings"] == texts
    for verb in (["list"], ["resolve", "v.com/c=w"]):
        shown = cdi(*verb, "--cdi-dir", tmp_path)
        for text in texts:
            assert f"{text}: no container with it works" in shown.out + shown.err
