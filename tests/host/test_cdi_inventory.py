"""The CDI files of a plugin."""

import json
import logging
import os
import threading
from pathlib import Path

import pytest

from kubedevices.errors import CdiWriteFailed, InvalidCdiSpec
from kubedevices.host import cdi_specs
from kubedevices.host.cdi_inventory import CdiInventory
from kubedevices.host.cdi_specs import read_registry, read_spec_file, write_spec
from kubedevices.values.cdi import CdiDevice, ContainerEdits, DeviceNode
from tests.host.test_cdi_specs import a_spec, state_of

KIND = "example.com/widget"
FILE = "kubedevices_example.com-widget.json"


def a_device(name: str, path: str = "/dev/w") -> CdiDevice:
    return CdiDevice(name, container_edits=ContainerEdits(device_nodes=(DeviceNode(path),)))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run/cdi"


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    directory = tmp_path / "etc/cdi"
    directory.mkdir(parents=True)
    return directory


@pytest.fixture
def inventory(run: Path, etc: Path) -> CdiInventory:
    return CdiInventory(run, read_also=[etc])


def defined(*directories: Path) -> list[str]:
    return sorted(read_registry(directories).devices)


def test_one_file_per_kind_is_made_on_demand(inventory: CdiInventory, run: Path) -> None:
    """Name, mode and version of the files, whose directory did not exist."""
    inventory.publish({KIND: [a_device("w1"), a_device("w0")], "example.com/g": [a_device("0")]})
    assert sorted(path.name for path in run.iterdir()) == [
        "kubedevices_example.com-g.json",
        FILE,
    ]
    data = json.loads((run / FILE).read_text())
    assert (data["cdiVersion"], data["kind"]) == ("0.3.0", KIND)
    assert [device["name"] for device in data["devices"]] == ["w0", "w1"]
    assert (run / FILE).stat().st_mode & 0o777 == 0o644
    assert run.stat().st_mode & 0o777 == 0o755
    assert json.loads((run / "kubedevices_example.com-g.json").read_text())["cdiVersion"] == "0.5.0"


def test_files_follow_the_devices(inventory: CdiInventory, run: Path) -> None:
    """Changed content is rewritten, equal content is not, in whatever order it comes."""
    inventory.publish({KIND: [a_device("w0")]})
    inventory.publish({KIND: [a_device("w0", "/dev/new"), a_device("w10"), a_device("w9")]})
    [first, *_] = json.loads((run / FILE).read_text())["devices"]
    assert first["containerEdits"]["deviceNodes"] == [{"path": "/dev/new"}]
    before = state_of(run / FILE)
    inventory.publish({KIND: [a_device("w9"), a_device("w10"), a_device("w0", "/dev/new")]})
    assert state_of(run / FILE) == before


def test_a_file_is_the_same_after_a_restart(run: Path, etc: Path) -> None:
    """After a restart of the plugin the file is not written again, which would wake all readers."""
    CdiInventory(run, read_also=[etc]).publish({KIND: [a_device("w0")]})
    before = state_of(run / FILE)
    CdiInventory(run, read_also=[etc]).publish({KIND: [a_device("w0")]})
    assert state_of(run / FILE) == before


def test_a_file_that_was_removed_or_edited_is_restored(inventory: CdiInventory, run: Path) -> None:
    """Allocate restores the file."""
    inventory.publish({KIND: [a_device("w0")]})
    text = (run / FILE).read_text()
    (run / FILE).unlink()
    assert inventory.ensure([f"{KIND}=w0"]) == (f"{KIND}=w0",)
    assert (run / FILE).read_text() == text
    (run / FILE).write_text("{}")
    inventory.ensure([f"{KIND}=w0"])
    assert (run / FILE).read_text() == text


def test_a_file_that_is_right_is_only_looked_at(
    inventory: CdiInventory, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Allocate does not read the file again, however long it is."""
    inventory.publish({KIND: [a_device("w0")]})

    def unexpected(*_: object, **__: object) -> bool:
        raise AssertionError("looked into the file")

    monkeypatch.setattr(cdi_specs, "write_text", unexpected)
    assert inventory.ensure([f"{KIND}=w0"]) == (f"{KIND}=w0",)
    (run / FILE).unlink()
    with pytest.raises(AssertionError, match="looked into"):
        inventory.ensure([f"{KIND}=w0"])


def test_names_of_other_kinds_pass(inventory: CdiInventory, run: Path) -> None:
    """A device may refer to a CDI definition of another program."""
    assert inventory.ensure(["vendor.com/gpu=0"]) == ("vendor.com/gpu=0",)
    assert not run.exists()


def test_kinds_without_devices_lose_their_file(inventory: CdiInventory, run: Path) -> None:
    """When the last device disappears, or the whole type does."""
    inventory.publish({KIND: [a_device("w0")], "example.com/g": [a_device("g0")]})
    inventory.publish({KIND: [], "example.com/g": [a_device("g0")]})
    assert defined(run) == ["example.com/g=g0"]
    inventory.publish({})
    assert list(run.iterdir()) == []
    inventory.publish({KIND: [a_device("w0")]})
    assert defined(run) == [f"{KIND}=w0"]


@pytest.mark.parametrize("place", ["run", "etc"])
def test_a_foreign_definition_is_never_touched(
    place: str, inventory: CdiInventory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The name stays theirs in either directory, with one warning; the others are ours."""
    run, etc = tmp_path / "run/cdi", tmp_path / "etc/cdi"
    theirs = tmp_path / place / "cdi/vendor.json"
    write_spec(theirs.parent, theirs.name, a_spec("w0", kind=KIND))
    before = state_of(theirs)
    for _ in range(3):
        inventory.publish({KIND: [a_device("w0"), a_device("w1")]})
        assert inventory.ensure([f"{KIND}=w0", f"{KIND}=w1"]) == (f"{KIND}=w0", f"{KIND}=w1")
    assert state_of(theirs) == before
    found = read_registry([etc, run])
    assert found.devices[f"{KIND}=w0"].file.path == str(theirs)
    assert found.devices[f"{KIND}=w1"].file.path == str(run / FILE)
    assert not found.overridden
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert [each.getMessage() for each in warnings] == [
        f"{KIND}=w0 is defined in {theirs}, which is not ours: left out of our file"
    ]


def test_a_foreign_definition_may_come_and_go(
    inventory: CdiInventory, run: Path, etc: Path
) -> None:
    """`ensure` reads it again: with two definitions in one directory the name would not resolve."""
    inventory.publish({KIND: [a_device("w0")]})
    write_spec(run, "vendor.json", a_spec("w0", kind=KIND))
    assert defined(etc, run) == []
    inventory.ensure([f"{KIND}=w0"])
    assert read_registry([etc, run]).devices[f"{KIND}=w0"].file.path == str(run / "vendor.json")
    (run / "vendor.json").unlink()
    inventory.ensure([f"{KIND}=w0"])
    assert defined(etc, run) == [f"{KIND}=w0"]


def test_a_changed_foreign_file_is_read_again(
    inventory: CdiInventory, run: Path, etc: Path
) -> None:
    """Devices that the file no longer defines are in our file."""
    write_spec(etc, "vendor.json", a_spec("w0", "w1", kind=KIND))
    inventory.publish({KIND: [a_device("w0")]})
    assert not run.exists()
    write_spec(etc, "vendor.json", a_spec("w1", kind=KIND))
    inventory.publish({KIND: [a_device("w0")]})
    assert defined(run) == [f"{KIND}=w0"]


def test_an_unchanged_foreign_file_is_not_read_again(
    inventory: CdiInventory, etc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Allocate stays cheap beside a vendor's long YAML file."""
    write_spec(etc, "vendor.json", a_spec("w0", kind=KIND))
    inventory.publish({KIND: [a_device("w0")]})

    def unexpected(*_: object) -> None:
        raise AssertionError("read the file again")

    monkeypatch.setattr(cdi_specs, "read_spec_file", unexpected)
    assert inventory.ensure([f"{KIND}=w0"]) == (f"{KIND}=w0",)


def test_each_change_of_a_file_is_one_line_of_the_log(
    inventory: CdiInventory, run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A run without changes logs nothing."""
    caplog.set_level(logging.INFO)
    write_spec(run, "kubedevices_example.com-old.json", a_spec("w", kind="example.com/old"))
    left = run / "kubedevices_x.json.0123456789abcdef.tmp"
    left.touch()
    for devices in ([a_device("w0")], [a_device("w0")], [], []):
        inventory.publish({KIND: devices})
    inventory.remove_dead({"example.com"})
    old = run / "kubedevices_example.com-old.json"
    assert [each.getMessage() for each in caplog.records] == [
        f"removed {left}, an unfinished file of a dead process",
        f"wrote the CDI file {run / FILE}",
        f"removed the CDI file {run / FILE}: its devices are gone",
        f"removed the CDI file {old}: none of its devices exists now",
    ]


def test_dead_files_go_after_the_first_scan(run: Path, etc: Path) -> None:
    """Our files of our vendor without a current device are removed, other files stay."""
    for kind in (KIND, "example.com/gone", "other.com/x"):
        write_spec(run, cdi_specs.file_name(kind), a_spec("w", kind=kind))
    write_spec(run, "example.com-foreign.json", a_spec("w", kind="example.com/foreign"))
    write_spec(run, cdi_specs.file_name("example.com/t", "id"), a_spec("w", kind="example.com/t"))
    (run / "kubedevices_example.com-broken.json").write_text("{")
    (run / "kubedevices_other.com-broken.json").write_text("{")
    inventory = CdiInventory(run, read_also=[etc])
    inventory.publish({KIND: [a_device("w")]})
    removed = inventory.remove_dead({"example.com"})
    assert sorted(path.name for path in removed) == [
        "kubedevices_example.com-broken.json",
        "kubedevices_example.com-gone.json",
    ]
    assert sorted(path.name for path in run.iterdir()) == [
        "example.com-foreign.json",
        "kubedevices_example.com-t_id.json",
        FILE,
        "kubedevices_other.com-broken.json",
        "kubedevices_other.com-x.json",
    ]


def test_nothing_is_removed_at_the_end(run: Path, etc: Path) -> None:
    """Running containers refer to the names, so files outlive the plugin."""
    inventory = CdiInventory(run, read_also=[etc])
    inventory.publish({KIND: [a_device("w0")]})
    del inventory
    assert defined(run) == [f"{KIND}=w0"]


def test_leftovers_of_a_crash_go_at_the_start(inventory: CdiInventory, run: Path) -> None:
    """A writer that died left a temporary file."""
    run.mkdir(parents=True)
    (run / f"{FILE}.0123456789abcdef.tmp").touch()
    inventory.publish({KIND: [a_device("w0")]})
    assert [path.name for path in run.iterdir()] == [FILE]


def test_a_write_that_fails_refuses_the_allocation(
    inventory: CdiInventory, run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`publish` logs once and goes on, Allocate fails, and both work again later."""
    run.parent.mkdir()
    run.write_text("in the way")
    for _ in range(3):
        inventory.publish({KIND: [a_device("w0")]})
    assert list(inventory.failures) == [KIND]
    with pytest.raises(CdiWriteFailed, match="cannot write the CDI file"):
        inventory.ensure([f"{KIND}=w0"])
    assert [each.levelname for each in caplog.records] == ["ERROR"]
    run.unlink()
    assert inventory.ensure([f"{KIND}=w0"]) == (f"{KIND}=w0",)
    assert inventory.failures == {}
    assert defined(run) == [f"{KIND}=w0"]


def test_a_write_that_fails_may_leave_out_only_the_names(run: Path, etc: Path) -> None:
    """With `on_error="log"` the container starts without its CDI devices."""
    write_spec(etc, "vendor.json", a_spec("theirs", kind=KIND))
    inventory = CdiInventory(run, read_also=[etc], on_error="log")
    run.parent.mkdir()
    run.write_text("in the way")
    inventory.publish({KIND: [a_device("w0"), a_device("theirs")]})
    names = [f"{KIND}=w0", "vendor.com/gpu=0", f"{KIND}=theirs"]
    assert inventory.ensure(names) == ("vendor.com/gpu=0", f"{KIND}=theirs")


def test_a_file_that_cannot_be_removed_is_tried_again(
    inventory: CdiInventory, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removal of a file is tried again until it succeeds."""
    inventory.publish({KIND: [a_device("w0")]})
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", _refuse)
        inventory.publish({})
        assert list(inventory.failures) == [KIND]
    inventory.publish({})
    assert list(run.iterdir()) == []
    assert inventory.failures == {}


def test_a_dead_file_that_cannot_be_removed_is_a_warning(
    inventory: CdiInventory,
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The plugin goes on without it."""
    write_spec(run, "kubedevices_example.com-old.json", a_spec("w", kind="example.com/old"))
    monkeypatch.setattr(os, "unlink", _refuse)
    assert inventory.remove_dead({"example.com"}) == ()
    assert [each.levelname for each in caplog.records] == ["WARNING"]


def _refuse(*_: object, **__: object) -> None:
    raise PermissionError(1, "Operation not permitted")


def test_devices_that_runtimes_refuse_change_nothing(inventory: CdiInventory, run: Path) -> None:
    """An error of the plugin author is raised before anything is written."""
    inventory.publish({KIND: [a_device("w0")]})
    before = state_of(run / FILE)
    with pytest.raises(InvalidCdiSpec, match="duplicate device"):
        inventory.publish({KIND: [], "example.com/g": [a_device("g"), a_device("g")]})
    with pytest.raises(InvalidCdiSpec, match=r"the vendor '3dfx\.com' must be"):
        inventory.publish({"3dfx.com/voodoo": [a_device("g")]})
    assert state_of(run / FILE) == before
    assert [path.name for path in run.iterdir()] == [FILE]


def test_kinds_that_share_a_file_name_have_a_file_each(run: Path, etc: Path) -> None:
    """`a-b/c` and `a/b-c`, in one process or in two, and again after a restart."""
    CdiInventory(run, read_also=[etc]).publish({"a-b/c": [a_device("x")]})
    inventory = CdiInventory(run, read_also=[etc])
    inventory.publish({"a/b-c": [a_device("y")]})
    assert defined(run) == ["a-b/c=x", "a/b-c=y"]
    assert read_spec_file(run / "kubedevices_a-b-c.json").kind == "a-b/c"
    again = CdiInventory(run, read_also=[etc])
    again.publish({"a/b-c": [a_device("y")], "a-b/c": [a_device("x")]})
    assert len(list(run.iterdir())) == 2
    assert again.remove_dead({"a", "a-b"}) == ()
    (run / "kubedevices_a-b-c.json").unlink()
    CdiInventory(run, read_also=[etc]).publish({"a/b-c": [a_device("y")]})
    assert len(list(run.iterdir())) == 1


def test_kinds_that_share_a_file_name_find_theirs_after_a_failure(run: Path, etc: Path) -> None:
    """Both writes failed first, so no file shows which kind uses the name."""
    run.parent.mkdir()
    run.write_text("in the way")
    inventory = CdiInventory(run, read_also=[etc])
    inventory.publish({"a/b-c": [a_device("y")], "a-b/c": [a_device("x")]})
    run.unlink()
    inventory.ensure(["a/b-c=y", "a-b/c=x"])
    assert defined(run) == ["a-b/c=x", "a/b-c=y"]


def test_threads_may_publish_and_ensure_at_once(inventory: CdiInventory, run: Path) -> None:
    """Allocate calls come while the scanner reports; the last tree is on the disk."""
    errors: list[BaseException] = []

    def ensure() -> None:
        try:
            for _ in range(50):
                inventory.ensure([f"{KIND}=w0"])
        except BaseException as error:
            errors.append(error)

    inventory.publish({KIND: [a_device("w0")]})
    threads = [threading.Thread(target=ensure) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(20):
        inventory.publish({KIND: [a_device("w0", f"/dev/{i}")]})
    for thread in threads:
        thread.join(timeout=10)
    assert not errors
    [device] = json.loads((run / FILE).read_text())["devices"]
    assert device["containerEdits"]["deviceNodes"] == [{"path": "/dev/19"}]
