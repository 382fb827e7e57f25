"""CDI files on a host: reading like a runtime, writing so that no reader sees half a file."""

import errno
import fcntl
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kubedevices.errors import CannotAsk, CdiWriteFailed, InvalidCdiSpec
from kubedevices.host import cdi_specs
from kubedevices.host.cdi_specs import read_registry, read_spec_file, write_spec
from kubedevices.manifests import deployment
from kubedevices.plugin import options
from kubedevices.values.cdi import CdiDevice, CdiSpec, ContainerEdits, DeviceNode

EDITS: dict[str, Any] = {"env": ["A=1"]}


def content(*names: str, kind: str = "v.com/c", **more: Any) -> dict[str, Any]:
    devices = [{"name": name, "containerEdits": EDITS} for name in names]
    return {"cdiVersion": "0.5.0", "kind": kind, "devices": devices} | more


def put(path: Path, data: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def a_spec(*names: str, kind: str = "v.com/c") -> CdiSpec:
    devices = tuple(CdiDevice(name, container_edits=ContainerEdits(env=("A=1",))) for name in names)
    return CdiSpec(kind=kind, devices=devices)


DYING_WRITER = """
import os, pathlib, sys
from kubedevices.host import cdi_specs
os.rename = lambda *_, **__: os._exit(9)  # as if killed at the worst moment
cdi_specs.write_text(pathlib.Path(sys.argv[1], "kubedevices_v.com-c.json"), "{}")
"""


def state_of(path: Path) -> tuple[int, int]:
    """Return what changes with every write; reading may change the time of access."""
    status = path.stat()
    return status.st_ino, status.st_ctime_ns


# ---------------------------------------------------------------- reading


def test_directories_are_read_in_order_of_priority(tmp_path: Path) -> None:
    """The later directory wins, and JSON and YAML are equal."""
    etc, run = tmp_path / "etc", tmp_path / "run"
    put(etc / "a.json", content("w", "x"))
    put(run / "b.yaml", "cdiVersion: 0.5.0\nkind: v.com/c\ndevices:\n- name: w\n"
        "  containerEdits:\n    env: [A=2]\n")  # fmt: skip
    found = read_registry([etc, run])
    assert found.devices["v.com/c=w"].file.path == str(run / "b.yaml")
    assert found.devices["v.com/c=w"].device.container_edits.env == ("A=2",)
    assert found.devices["v.com/c=x"].file.path == str(etc / "a.json")
    assert found.errors == {}


def test_only_json_and_yaml_files_are_read(tmp_path: Path) -> None:
    """Temporary files, other endings and directories are ignored; .yml is reported."""
    for name in ("a.json.tmp", "b.yml", "c.txt", "sub.json/d.json"):
        put(tmp_path / name, content(name[0]))
    found = read_registry([tmp_path])
    assert not found.devices
    assert not found.errors
    assert found.ignored == (str(tmp_path / "b.yml"),)


def test_a_missing_directory_is_no_error(tmp_path: Path) -> None:
    """Most hosts have only one of the two."""
    put(tmp_path / "run/a.json", content("w"))
    found = read_registry([tmp_path / "etc", tmp_path / "run"])
    assert list(found.devices) == ["v.com/c=w"]
    assert found.errors == {}


def test_a_bad_file_harms_only_itself(tmp_path: Path) -> None:
    """The errors are stored with its path, and its kind is read if possible."""
    put(tmp_path / "good.json", content("w"))
    bad = put(tmp_path / "bad.json", content("x", kind="v.com/d", foo=1))
    broken = put(tmp_path / "broken.json", "{")
    found = read_registry([tmp_path])
    assert list(found.devices) == ["v.com/c=w"]
    assert found.errors[str(bad)] == ("/foo: unknown key",)
    assert found.errors[str(broken)][0].startswith("it is not JSON: ")
    assert found.explain("v.com/d=x").reason == f"{bad} is invalid: /foo: unknown key"


def test_the_same_name_in_two_files_of_a_directory_is_dropped(tmp_path: Path) -> None:
    """Both files get the error."""
    one = put(tmp_path / "a.json", content("w"))
    two = put(tmp_path / "b.json", content("w"))
    found = read_registry([tmp_path])
    assert not found.devices
    assert set(found.errors) == {str(one), str(two)}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it must be an object, not null"),
        ("[1]", "it must be an object, not a list"),
        ("a: b: c", "it is not YAML: mapping values"),
        ("kind: a/b\nkind: c/d\n", "it is not YAML: duplicate key"),
        ('{"kind": "a/b", "kind": "c/d"}', "it is not JSON: duplicate key 'kind'"),
        ("\x00", "it is not YAML"),
    ],
)
def test_text_that_is_not_a_spec_has_a_problem(tmp_path: Path, text: str, problem: str) -> None:
    """Every reader refuses these."""
    file = read_spec_file(put(tmp_path / "a.yaml", text))
    assert file.spec is None
    assert problem in file.problem


def test_a_file_that_breaks_a_rule_is_invalid(tmp_path: Path) -> None:
    """Right in form is not enough: no reader takes a version that is too low."""
    path = put(tmp_path / "a.json", content("0") | {"cdiVersion": "0.4.0"})
    file = read_spec_file(path)
    assert file.spec is None
    assert "the spec version must be at least v0.5.0" in file.problem
    assert file.kind == "v.com/c"


def test_yaml_in_a_json_file_is_read(tmp_path: Path) -> None:
    """Readers use one parser for both; a flow mapping looks like JSON first."""
    text = "{cdiVersion: 0.5.0, kind: v.com/c, devices: [{name: w, containerEdits: {env: [A=1]}}]}"
    assert read_spec_file(put(tmp_path / "a.json", text)).spec is not None


@pytest.mark.parametrize(
    "text",
    ["a: 0x_", "a: !!timestamp soon", "a: !!bool perhaps", '{"a":' * 5000 + "1" + "}" * 5000],
    ids=["number", "date", "truth", "depth"],
)
def test_text_that_crashes_its_parser_is_a_problem_too(tmp_path: Path, text: str) -> None:
    """A parser's unexpected exception for one file does not affect other files."""
    put(tmp_path / "bad.yaml", text)
    put(tmp_path / "good.json", content("g"))
    registry = read_registry([tmp_path])
    assert set(registry.errors) == {str(tmp_path / "bad.yaml")}
    assert set(registry.devices) == {"v.com/c=g"}


def test_dates_stay_text_in_yaml(tmp_path: Path) -> None:
    """YAML would read a date, which JSON does not have."""
    text = json.dumps(content("w"))[:-1] + ', "annotations": {"since": 2024-01-01}}'
    spec = read_spec_file(put(tmp_path / "a.yaml", text.replace("0.5.0", "0.6.0"))).spec
    assert spec is not None
    assert spec.annotations == (("since", "2024-01-01"),)


def test_an_unreadable_file_is_reported_with_its_path(tmp_path: Path) -> None:
    """A dangling link, a FIFO and other bytes than UTF-8 are problems of their file."""
    (tmp_path / "gone.json").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "latin.json").write_bytes(b'{"kind": "\xe4"}')
    errors = read_registry([tmp_path]).errors
    assert errors[str(tmp_path / "gone.json")] == ("No such file or directory",)
    assert errors[str(tmp_path / "pipe.json")] == ("it is a named pipe, not a regular file",)
    assert "it is not UTF-8" in errors[str(tmp_path / "latin.json")][0]


def test_a_directory_that_cannot_be_read_ends_the_scan(tmp_path: Path) -> None:
    """Runtimes stop there as well, so later directories do not count."""
    put(tmp_path / "file", "")
    put(tmp_path / "run/a.json", content("w"))
    found = read_registry([tmp_path / "file", tmp_path / "run"])
    assert not found.devices
    assert found.errors == {str(tmp_path / "file"): ("Not a directory",)}
    (tmp_path / "link").symlink_to("run")
    found = read_registry([tmp_path / "link"])
    assert "a symbolic link" in found.errors[str(tmp_path / "link")][0]


def test_the_mode_of_a_file_is_known(tmp_path: Path) -> None:
    """The explanation warns of files that only root reads."""
    put(tmp_path / "a.json", content("w")).chmod(0o600)
    [warning] = read_registry([tmp_path]).explain("v.com/c=w").warnings
    assert "mode 0600" in warning


# ---------------------------------------------------------------- writing


def test_a_file_is_written_for_everybody_in_the_lowest_version(tmp_path: Path) -> None:
    """Mode 0644 and a directory with 0755, whatever the umask; nothing else is left in it."""
    old = os.umask(0o077)
    try:
        assert write_spec(tmp_path / "cdi", "a.json", a_spec("w"))
    finally:
        os.umask(old)
    path = tmp_path / "cdi/a.json"
    assert json.loads(path.read_text())["cdiVersion"] == "0.3.0"
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.parent.stat().st_mode & 0o777 == 0o755
    assert list(path.parent.iterdir()) == [path]
    assert list(read_registry([tmp_path / "cdi"]).devices) == ["v.com/c=w"]


def test_the_same_content_is_not_written_again(tmp_path: Path) -> None:
    """Every write wakes every reader on the host."""
    write_spec(tmp_path, "a.json", a_spec("w"))
    before = state_of(tmp_path / "a.json")
    assert not write_spec(tmp_path, "a.json", a_spec("w"))
    assert state_of(tmp_path / "a.json") == before
    assert write_spec(tmp_path, "a.json", a_spec("w", "x"))


def test_a_file_is_replaced_by_rename(tmp_path: Path) -> None:
    """A reader with the old file open can read all of it."""
    write_spec(tmp_path, "a.json", a_spec("w"))
    with (tmp_path / "a.json").open() as reader:
        write_spec(tmp_path, "a.json", a_spec("x"))
        assert json.load(reader)["devices"][0]["name"] == "w"
    assert json.loads((tmp_path / "a.json").read_text())["devices"][0]["name"] == "x"


def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the content is synced, then the name; until then the file is no leftover."""
    steps: list[object] = []
    sync, rename = os.fsync, os.rename

    def seen_sync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        steps.append("directory" if stat.S_ISDIR(status.st_mode) else status.st_size)
        assert cdi_specs.remove_leftovers(tmp_path) == ()
        sync(descriptor)

    def seen_rename(old: str, new: str, **directories: int) -> None:
        steps.append("name")
        rename(old, new, **directories)

    monkeypatch.setattr("os.fsync", seen_sync)
    monkeypatch.setattr("os.rename", seen_rename)
    before = len(list(Path("/proc/self/fd").iterdir()))
    write_spec(tmp_path, "kubedevices_a.json", a_spec("w"))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert steps == [(tmp_path / "kubedevices_a.json").stat().st_size, "name", "directory"]


def test_an_invalid_file_is_not_written(tmp_path: Path) -> None:
    """The strict rules hold, and the directory stays untouched."""
    with pytest.raises(InvalidCdiSpec, match="DNS subdomain"):
        write_spec(tmp_path / "cdi", "a.json", a_spec("w", kind="Vendor/c"))
    assert not (tmp_path / "cdi").exists()


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk the old content stays, and no temporary file stays."""
    write_spec(tmp_path, "a.json", a_spec("w"))

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(CdiWriteFailed, match="No space left on device"):
        write_spec(tmp_path, "a.json", a_spec("x"))
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert list(read_registry([tmp_path]).devices) == ["v.com/c=w"]


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    """The error has the path and the reason of the system."""
    put(tmp_path / "cdi", "")
    with pytest.raises(CdiWriteFailed, match="cdi is a link or another file") as caught:
        write_spec(tmp_path / "cdi", "a.json", a_spec("w"))
    assert caught.value.path == str(tmp_path / "cdi/a.json")
    assert isinstance(caught.value, CannotAsk)


def test_a_crash_before_the_rename_leaves_a_file_that_the_next_start_removes(
    tmp_path: Path,
) -> None:
    """Readers ignore its ending; files of a living writer and of others are kept."""
    done = subprocess.run([sys.executable, "-c", DYING_WRITER, tmp_path], check=False, timeout=60)
    assert done.returncode == 9
    [left] = tmp_path.iterdir()
    assert left.name.startswith("kubedevices_v.com-c.json.")
    assert left.suffix == ".tmp"
    assert not read_registry([tmp_path]).files
    other = put(tmp_path / "other.tmp", "")
    held = put(tmp_path / "kubedevices_x.json.0123456789abcdef.tmp", "")
    with held.open() as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        assert cdi_specs.remove_leftovers(tmp_path) == (left,)
    assert sorted(tmp_path.iterdir()) == [held, other]


def test_leftovers_of_a_missing_directory_are_none(tmp_path: Path) -> None:
    """The first start finds no directory."""
    assert cdi_specs.remove_leftovers(tmp_path / "cdi") == ()


# ---------------------------------------------------------------- names and removal


def test_files_are_named_after_their_kind() -> None:
    """A transient file carries the ID of what it is bound to."""
    assert cdi_specs.file_name("v.com/gpu") == "kubedevices_v.com-gpu.json"
    assert cdi_specs.file_name("v.com/gpu", "a/1") == "kubedevices_v.com-gpu_a_1.json"


def test_a_long_kind_still_has_a_file_name() -> None:
    """File names end at 255 bytes, with a temporary ending as well."""
    one, two = (cdi_specs.file_name(f"{'a' * 253}/{end * 63}") for end in "bc")
    assert one != two
    assert max(len(one), len(two)) < 220
    assert cdi_specs.file_name("v/c", "x" * 300) != cdi_specs.file_name("v/c", "x" * 301)


def test_kinds_that_share_a_name_have_another_one_each() -> None:
    """The dash between vendor and class is ambiguous."""
    one, two = (cdi_specs.permanent_names(kind) for kind in ("a-b/c", "a/b-c"))
    assert one[0] == two[0]
    assert one[1] != two[1]


def test_stale_transient_files_are_removed(tmp_path: Path) -> None:
    """Only those of the kind, only ours, and not those whose IDs are still known."""
    for name in ("1", "2"):
        write_spec(tmp_path, cdi_specs.file_name("v.com/gpu", name), a_spec(name, kind="v.com/gpu"))
    write_spec(tmp_path, cdi_specs.file_name("v.com/gpu"), a_spec("p", kind="v.com/gpu"))
    write_spec(tmp_path, cdi_specs.file_name("v.com/gpu_x"), a_spec("q", kind="v.com/gpu_x"))
    write_spec(tmp_path, "v.com-gpu_1.json", a_spec("r", kind="v.com/gpu"))
    removed = cdi_specs.remove_transient(tmp_path, "v.com/gpu", keep={"2"})
    assert [path.name for path in removed] == ["kubedevices_v.com-gpu_1.json"]
    assert len(list(tmp_path.iterdir())) == 4


def test_a_device_node_that_is_elsewhere_on_the_host_raises_the_version(tmp_path: Path) -> None:
    """The version follows the content with every write."""
    edits = ContainerEdits(device_nodes=(DeviceNode("/dev/w", "/dev/w0"),))
    spec = CdiSpec(version="1.1.0", kind="v.com/c", devices=(CdiDevice("w", (), edits),))
    write_spec(tmp_path, "a.json", spec)
    assert json.loads((tmp_path / "a.json").read_text())["cdiVersion"] == "0.5.0"


def test_a_file_system_without_locks_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locks only protect our temporary files from another process that removes leftovers."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert write_spec(tmp_path, "x.json", a_spec("d"))
    assert set(read_registry([tmp_path]).devices) == {"v.com/c=d"}


def test_copies_of_the_default_directory_are_equal() -> None:
    """Two packages do not import `cdi_specs`: one saves memory, the other must stay pure."""
    assert options.CDI_DIR == cdi_specs.GENERATED_DIRECTORY
    assert str(cdi_specs.GENERATED_DIRECTORY) == deployment.CDI_DIR
