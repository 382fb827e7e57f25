"""What `kubedevices expose` does instead of serving."""

from pathlib import Path

import pytest
import yaml

from kubedevices.expose.config import load_expose_config
from kubedevices.expose.read_profiles import combine
from tests.command_line import CommandLine

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


@pytest.fixture
def expose(cli: CommandLine) -> CommandLine:
    return cli.of("expose", "--config", "host.yaml", "--dev-root", "dev")


def test_a_file_can_be_checked(directory: Path, expose: CommandLine) -> None:
    """Exit code 2 and every mistake, or 0."""
    assert expose("--check").out == "host.yaml: 2 resources, no mistakes\n"
    (directory / "host.yaml").write_text(SERIAL.replace("match", "mtach"))
    captured = expose("--check", code=2)
    assert captured.out == ""
    assert captured.err.startswith("kubedevices: 2 mistakes\n  host.yaml:5:3: resources[0].mtach")


def test_a_check_tells_of_a_device_in_two_resources(directory: Path, expose: CommandLine) -> None:
    """As far as the host has the device, by whatever name each resource finds it."""
    (directory / "dev/modem").symlink_to("ttyUSB1")
    (directory / "host.yaml").write_text(
        f"{SERIAL}- {{name: modem, match: [{{path: /dev/modem}}]}}\n"
    )
    captured = expose("--check")
    assert captured.out == "host.yaml: 3 resources, no mistakes\n"
    assert "/dev/ttyUSB1 is exposed as serial and as modem: two containers may" in captured.err
    assert "kvm" not in captured.err


def test_a_dry_run_prints_the_answer(expose: CommandLine) -> None:
    """What a container with these devices would get, in a table or for programs."""
    out = expose("--dry-run", "ttyUSB1", "ttyUSB0").out
    lines = [" ".join(line.split()) for line in out.splitlines()]
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
    assert expose("--dry-run", "kvm::1", "-o", "json").data == {
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
    inject: str, files: list[str], directory: Path, expose: CommandLine
) -> None:
    """Its name and all it gives, beside or instead of plain files; a flag says it for the rest."""
    (directory / "host.yaml").write_text(
        SERIAL.replace("- name: kvm", f"  inject: {inject}\n- name: kvm")
    )
    lines = [" ".join(line.split()) for line in expose("--dry-run", "ttyUSB0").lines]
    assert [line for line in lines if line.startswith(("env", "device"))] == [
        line if line.startswith("env") else f"{line} -> /dev/ttyS0 (rw)" for line in files
    ]
    assert lines[-1] == (
        "cdi example.com/serial=ttyUSB0: PORT_0=/dev/ttyS0, /dev/ttyUSB0 -> /dev/ttyS0 (rw), "
        "/run/udev (ro), /a -> /b"
    )
    assert expose("--dry-run", "kvm::1", "-o", "json").data["cdi_devices"] == {}
    assert expose("--dry-run", "kvm::1", "-o", "json", "--inject", "cdi").data == {
        "resource": "example.com/kvm",
        "devices": [],
        "mounts": [],
        "env": {},
        "cdi_devices": {
            "example.com/kvm=kvm::1": {"deviceNodes": [{"path": "/dev/kvm", "permissions": "rw"}]}
        },
    }


def test_a_resource_name_that_cdi_does_not_allow_is_reported(
    directory: Path, expose: CommandLine
) -> None:
    """When the flag makes CDI devices of it, too; `nodes` in the file is the way out."""
    (directory / "host.yaml").write_text(SERIAL.replace("name: kvm", "name: 3d"))
    err = expose("--check", "--inject", "cdi", code=2).err
    assert err.startswith("kubedevices: 3d: no CDI device can have the name example.com/3d=...: ")
    assert err.endswith("(give it the key 'inject: nodes')\n")
    (directory / "host.yaml").write_text(SERIAL.replace("name: kvm", "name: 3d\n  inject: nodes"))
    expose("--check", "--inject", "cdi")


@pytest.mark.parametrize(
    ("ids", "code", "message"),
    [
        (["ttyUSB9"], 2, "kubedevices: there is no device 'ttyUSB9', did you mean 'ttyUSB1'?"),
        (["ttyUSB0", "kvm::0"], 2, "kubedevices: ttyUSB0 and kvm::0 belong to different resources"),
        (["kvm::0", "kvm::1"], 1, "kubedevices: a container may have only one kvm, not 2"),
    ],
)  # fmt: skip
def test_a_dry_run_reports_wrong_devices(
    ids: list[str], code: int, message: str, expose: CommandLine
) -> None:
    """As an allocation would."""
    assert message in expose("--dry-run", *ids, code=code).err


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
    asked: list[str], resource: str, directory: Path, expose: CommandLine
) -> None:
    """Its name in the file, before an ID, says which."""
    (directory / "host.yaml").write_text(SHARED)
    assert expose("--dry-run", *asked, "-o", "json").data["resource"] == resource


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
    asked: list[str], message: str, directory: Path, expose: CommandLine
) -> None:
    """The answer of another one would mislead."""
    (directory / "host.yaml").write_text(SHARED)
    captured = expose("--dry-run", *asked, code=2)
    assert captured.out == ""
    assert captured.err.endswith(f"kubedevices: {message}\n")


def test_the_schema_is_printed(cli: CommandLine) -> None:
    """Without a file to check."""
    assert cli("expose", "--schema").data["title"] == "kubedevices expose"


def test_a_foreign_file_is_converted(
    directory: Path, cli: CommandLine, expose: CommandLine
) -> None:
    """To one that can be used as it is, with its notes as comments."""
    (directory / "smarter.yaml").write_text("- {devicematch: '^video[0-9]*$', nummaxdevices: 3}\n")
    out = cli("expose", "--convert", "smarter.yaml").out
    assert out.startswith("# Converted from smarter.yaml.\n# Note: ^video[0-9]*$: a number has ")
    assert yaml.safe_load(out)["resources"][0]["replicas"] == 3
    (directory / "host.yaml").write_text(out)
    expose("--check")


def test_serving_needs_a_file(cli: CommandLine) -> None:
    """Nothing is served by default."""
    err = cli("expose", code=2).err
    assert err == "kubedevices: expose needs --config FILE or --profile NAME\n"


def test_profiles_are_listed_with_the_devices_of_this_host(
    directory: Path, cli: CommandLine
) -> None:
    """So that a user sees which profile the host needs, in a table or for programs."""
    (directory / "dev/fuse").touch()
    shown = cli("expose", "--list-profiles", "--dev-root", "dev", "-o", "json")
    listed = {each["profile"]: each for each in shown.data}
    assert (listed["fuse"]["here"], listed["fuse"]["resources"]) == (1, ["fuse"])
    assert (listed["kvm"]["here"], listed["tun"]["here"]) == (1, 0)
    out = cli("expose", "--list-profiles", "--dev-root", "dev").out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "loop loop 0 Loop devices: files as disks" in lines
    err = cli("expose", "--list-profiles", "--dev-root", "none", code=3).err
    assert "none: this is not a directory" in err


def test_several_profiles_are_one_configuration(cli: CommandLine) -> None:
    """Served, scanned and tried like a file, with a domain of the user."""
    profiles = ("--profile", "kvm", "--profile", "loop", "--dev-root", "dev")
    shown = cli("expose", *profiles, "--dry-run", "kvm::1", "-o", "json")
    assert shown.data["resource"] == "devices.example.com/kvm"
    out = cli("expose", *profiles, "--check", "--domain", "edge.example.com").out
    assert out == "kvm, loop: 2 resources, no mistakes\n"
    shown = cli("scan", *profiles, "--domain", "edge.example.com", "-o", "json")
    found = {each["resource"]: each["devices"] for each in shown.data}
    assert [*found] == ["edge.example.com/kvm", "edge.example.com/loop"]
    assert len(found["edge.example.com/kvm"]) == 10


def test_a_profile_is_printed_as_a_file_to_change(directory: Path, cli: CommandLine) -> None:
    """The printed file means the same, and says of each resource where its facts come from."""
    chosen = ("--profile", "kvm", "--profile", "serial", "--domain", "edge.example.com")
    text = cli("expose", *chosen, "--print").out
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
    arguments: list[str], message: str, cli: CommandLine
) -> None:
    """With the name that was probably meant."""
    assert f"kubedevices: {message}" in cli("expose", *arguments, code=2).err
