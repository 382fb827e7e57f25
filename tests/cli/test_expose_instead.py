"""What `kubedevices expose` does instead of serving."""

import json
from pathlib import Path

import pytest
import yaml

from kubedevices.cli import main
from kubedevices.expose.config import load_expose_config
from kubedevices.expose.read_profiles import combine

SERIAL = """\
version: 1
namespace: example.com
resources:
- name: serial
  match: [{path: /dev/ttyUSB*}]
  container: {path: "/dev/ttyS{index}", permissions: rw}
  env: {"PORT_{index}": "{container_path}"}
  mounts: [{host: /run/udev, readOnly: true}, {host: /a, container: /b}]
- name: kvm
  match: [{path: /dev/kvm}]
  replicas: 2
  failRequestsGreaterThanOne: true
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "dev").mkdir()
    for name in ("ttyUSB0", "ttyUSB1", "kvm"):
        (tmp_path / "dev" / name).touch()
    (tmp_path / "host.yaml").write_text(SERIAL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def expose(*arguments: str) -> int:
    return main(["expose", "--config", "host.yaml", "--dev-root", "dev", *arguments])


def test_a_file_can_be_checked(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and every mistake, or 0."""
    assert expose("--check") == 0
    assert capsys.readouterr().out == "host.yaml: 2 resources, no mistakes\n"
    (directory / "host.yaml").write_text(SERIAL.replace("match", "mtach"))
    assert expose("--check") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("kubedevices: 2 mistakes\n  host.yaml:5:3: resources[0].mtach")


def test_a_dry_run_prints_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """What a container with these devices would get, in a table or for programs."""
    assert expose("--dry-run", "ttyUSB1", "ttyUSB0") == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "OPTION VALUE",
        "resource example.com/serial",
        "env PORT_0=/dev/ttyS0",
        "env PORT_1=/dev/ttyS1",
        "device /dev/ttyUSB0 -> /dev/ttyS0 (rw)",
        "device /dev/ttyUSB1 -> /dev/ttyS1 (rw)",
        "mount /run/udev (ro)",
        "mount /a -> /b (rw)",
    ]
    assert expose("--dry-run", "kvm::1", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "resource": "example.com/kvm",
        "devices": [{"host_path": "/dev/kvm", "container_path": "/dev/kvm", "permissions": "rw"}],
        "mounts": [],
        "env": {},
        "cdi_devices": {},
    }


@pytest.mark.parametrize(
    ("inject", "files"), [("cdi", []), ("both", ["env PORT_0=/dev/ttyS0", "device /dev/ttyUSB0"])]
)
def test_a_dry_run_prints_the_edits_of_a_cdi_device(
    inject: str, files: list[str], directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its name and all it gives, beside or instead of plain files; a flag says it for the rest."""
    (directory / "host.yaml").write_text(
        SERIAL.replace("- name: kvm", f"  inject: {inject}\n- name: kvm")
    )
    assert expose("--dry-run", "ttyUSB0") == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line.startswith(("env", "device"))] == [
        line if line.startswith("env") else f"{line} -> /dev/ttyS0 (rw)" for line in files
    ]
    assert lines[-1] == (
        "cdi example.com/serial=ttyUSB0: PORT_0=/dev/ttyS0, /dev/ttyUSB0 -> /dev/ttyS0 (rw), "
        "/run/udev (ro), /a -> /b"
    )
    assert expose("--dry-run", "kvm::1", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["cdi_devices"] == {}
    assert expose("--dry-run", "kvm::1", "-o", "json", "--inject", "cdi") == 0
    assert json.loads(capsys.readouterr().out) == {
        "resource": "example.com/kvm",
        "devices": [],
        "mounts": [],
        "env": {},
        "cdi_devices": {
            "example.com/kvm=kvm::1": {"deviceNodes": [{"path": "/dev/kvm", "permissions": "rw"}]}
        },
    }


def test_a_resource_name_that_cdi_does_not_allow_is_reported(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """When the flag makes CDI devices of it, too; `nodes` in the file is the way out."""
    (directory / "host.yaml").write_text(SERIAL.replace("name: kvm", "name: 3d"))
    assert expose("--check", "--inject", "cdi") == 2
    err = capsys.readouterr().err
    assert err.startswith("kubedevices: 3d: no CDI device can have the name example.com/3d=...: ")
    assert err.endswith("(give it the key 'inject: nodes')\n")
    (directory / "host.yaml").write_text(SERIAL.replace("name: kvm", "name: 3d\n  inject: nodes"))
    assert expose("--check", "--inject", "cdi") == 0


@pytest.mark.parametrize(
    ("ids", "code", "message"),
    [
        (["ttyUSB9"], 2, "kubedevices: there is no device 'ttyUSB9', did you mean 'ttyUSB1'?"),
        (["ttyUSB0", "kvm::0"], 2, "kubedevices: ttyUSB0 and kvm::0 belong to different resources"),
        (["kvm::0", "kvm::1"], 1, "kubedevices: a container may have only one kvm, not 2"),
    ],
)  # fmt: skip
def test_a_dry_run_reports_wrong_devices(
    ids: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As an allocation would."""
    assert expose("--dry-run", *ids) == code
    assert message in capsys.readouterr().err


SHARED = (
    SERIAL
    + """\
- name: any
  match: [{path: /dev/ttyUSB0}, {path: /dev/kvm}]
  replicas: 2
  renameShared: true
- name: modem
  match: [{path: /dev/ttyUSB*}]
"""
)


@pytest.mark.parametrize(
    ("asked", "resource"),
    [
        (["serial/ttyUSB0"], "example.com/serial"),
        (["modem/ttyUSB0", "ttyUSB1"], "example.com/modem"),
        (["any/kvm::0"], "example.com/any.shared"),
        (["ttyUSB0::1"], "example.com/any.shared"),
    ],
)
def test_a_dry_run_of_one_of_several_resources(
    asked: list[str], resource: str, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its name in the file, before an ID, says which."""
    (directory / "host.yaml").write_text(SHARED)
    assert expose("--dry-run", *asked, "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["resource"] == resource


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["ttyUSB1", "ttyUSB0"],
         "several resources have ttyUSB1 and ttyUSB0: serial, modem (choose one: serial/ttyUSB1)"),
        (["kvm::0"], "several resources have kvm::0: kvm, any (choose one: kvm/kvm::0)"),
        (["serial/ttyUSB0", "modem/ttyUSB1"],
         "serial/ttyUSB0 and modem/ttyUSB1 belong to different resources"),
        (["serial/kvm::0"], "there is no device 'serial/kvm::0', did you mean 'any/kvm::0'?"),
        (["modme/ttyUSB0"], "there is no device 'modme/ttyUSB0', did you mean 'modem/ttyUSB0'?"),
    ],
)  # fmt: skip
def test_a_dry_run_refuses_an_ambiguous_device(
    asked: list[str], message: str, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answer of another one would mislead."""
    (directory / "host.yaml").write_text(SHARED)
    assert expose("--dry-run", *asked) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith(f"kubedevices: {message}\n")


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a file to check."""
    assert main(["expose", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "kubedevices expose"


def test_a_foreign_file_is_converted(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To one that can be used as it is, with its notes as comments."""
    (directory / "smarter.yaml").write_text("- {devicematch: '^video[0-9]*$', nummaxdevices: 3}\n")
    assert main(["expose", "--convert", "smarter.yaml"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# Converted from smarter.yaml.\n# Note: ^video[0-9]*$: a number has ")
    assert yaml.safe_load(out)["resources"][0]["replicas"] == 3
    (directory / "host.yaml").write_text(out)
    assert expose("--check") == 0


def test_serving_needs_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is served by default."""
    assert main(["expose"]) == 2
    assert capsys.readouterr().err == "kubedevices: expose needs --config FILE or --profile NAME\n"


def test_profiles_are_listed_with_the_devices_of_this_host(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that a user sees which profile the host needs, in a table or for programs."""
    (directory / "dev/fuse").touch()
    assert main(["expose", "--list-profiles", "--dev-root", "dev", "-o", "json"]) == 0
    listed = {each["profile"]: each for each in json.loads(capsys.readouterr().out)}
    assert (listed["fuse"]["here"], listed["fuse"]["resources"]) == (1, ["fuse"])
    assert (listed["kvm"]["here"], listed["tun"]["here"]) == (1, 0)
    assert main(["expose", "--list-profiles", "--dev-root", "dev"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "loop loop 0 Loop devices: files as disks" in lines
    assert main(["expose", "--list-profiles", "--dev-root", "none"]) == 3
    assert "none: this is not a directory" in capsys.readouterr().err


def test_several_profiles_are_one_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    """Served, scanned and tried like a file, with a domain of the user."""
    profiles = ("--profile", "kvm", "--profile", "loop", "--dev-root", "dev")
    assert main(["expose", *profiles, "--dry-run", "kvm::1", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["resource"] == "devices.example.com/kvm"
    assert main(["expose", *profiles, "--check", "--domain", "edge.example.com"]) == 0
    assert capsys.readouterr().out == "kvm, loop: 2 resources, no mistakes\n"
    assert main(["scan", *profiles, "--domain", "edge.example.com", "-o", "json"]) == 0
    found = {each["resource"]: each["devices"] for each in json.loads(capsys.readouterr().out)}
    assert [*found] == ["edge.example.com/kvm", "edge.example.com/loop"]
    assert len(found["edge.example.com/kvm"]) == 10


def test_a_profile_is_printed_as_a_file_to_change(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The printed file means the same, and says of each resource where its facts come from."""
    chosen = ("--profile", "kvm", "--profile", "serial", "--domain", "edge.example.com")
    assert main(["expose", *chosen, "--print"]) == 0
    text = capsys.readouterr().out
    assert text.count("# Source: ") == 2
    (directory / "host.yaml").write_text(text)
    config, _ = load_expose_config(directory / "host.yaml")
    assert config == combine(["kvm", "serial"], "edge.example.com")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--profile", "kmv", "--check"], "there is no profile 'kmv', did you mean 'kvm'?"),
        (["--profile", "kvm", "--domain", "a/b", "--check"], "--domain: 'a/b': write only"),
        (["--config", "host.yaml", "--print"], "--print needs --profile: a "),
        (["--config", "host.yaml", "--domain", "a.b"], "--domain needs --profile: a "),
    ],
)  # fmt: skip
def test_a_mistake_about_profiles_is_reported(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the name that was probably meant."""
    assert main(["expose", *arguments]) == 2
    assert f"kubedevices: {message}" in capsys.readouterr().err
