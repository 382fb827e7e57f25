"""All CDI files together: precedence, conflicts, explanations."""

import pytest

from kubedevices.errors import CdiProblem, UnresolvableCdiDevices
from kubedevices.values.cdi import (
    CdiDevice,
    CdiRegistry,
    CdiSpec,
    ContainerEdits,
    IntelRdt,
    SpecFile,
)


def a_file(path: str, *names: str, kind: str = "v.com/c", priority: int = 0) -> SpecFile:
    """A valid file; every device says in its env where it is from."""
    devices = tuple(
        CdiDevice(name, (), ContainerEdits(env=(f"FROM={path}:{name}",))) for name in names
    )
    edits = ContainerEdits(env=(f"FILE={path}",))
    spec = CdiSpec(version="0.5.0", kind=kind, devices=devices, container_edits=edits)
    return SpecFile(path, priority, spec, kind=kind)


def registry(*files: SpecFile) -> CdiRegistry:
    return CdiRegistry(files, ("/etc/cdi", "/var/run/cdi"))


def test_the_later_directory_wins() -> None:
    """The same name in two directories is no conflict: the generated file overrides."""
    found = registry(
        a_file("/var/run/cdi/b.json", "w", priority=1), a_file("/etc/cdi/a.json", "w", "x")
    )
    assert found.devices["v.com/c=w"].file.path == "/var/run/cdi/b.json"
    assert found.devices["v.com/c=x"].file.path == "/etc/cdi/a.json"
    assert found.errors == {}
    reason = found.explain("v.com/c=w").reason
    assert reason == "defined in /var/run/cdi/b.json, which overrides /etc/cdi/a.json"


def test_two_files_of_one_directory_drop_the_name() -> None:
    """Neither definition is used, and both files get the error; other names stay."""
    found = registry(a_file("/etc/cdi/a.json", "w", "x"), a_file("/etc/cdi/b.json", "w"))
    assert set(found.devices) == {"v.com/c=x"}
    assert found.errors == {
        "/etc/cdi/a.json": ("v.com/c=w is also defined in /etc/cdi/b.json",),
        "/etc/cdi/b.json": ("v.com/c=w is also defined in /etc/cdi/a.json",),
    }
    assert found.explain("v.com/c=w").reason == (
        "defined more than once in one directory: /etc/cdi/a.json, /etc/cdi/b.json"
    )


def test_a_conflict_below_drops_the_name_everywhere() -> None:
    """The runtimes' library does so, even with a single definition in a higher directory."""
    found = registry(
        a_file("/etc/cdi/a.json", "w"),
        a_file("/etc/cdi/b.json", "w"),
        a_file("/var/run/cdi/c.json", "w", priority=1),
    )
    assert not found.devices
    assert not found.explain("v.com/c=w").resolves


def test_three_files_in_conflict_are_all_named() -> None:
    """The error names all files of a conflict."""
    found = registry(*(a_file(f"/etc/cdi/{name}.json", "w") for name in "abc"))
    assert found.conflicts == {
        "v.com/c=w": ("/etc/cdi/a.json", "/etc/cdi/b.json", "/etc/cdi/c.json")
    }


def test_edits_of_a_file_come_once_before_its_first_device() -> None:
    """A name that is asked for twice is appended twice, the file's edits are not."""
    found = registry(a_file("/a.json", "w", "x"), a_file("/b.json", "y", kind="v.com/d"))
    names = ["v.com/c=x", "v.com/d=y", "v.com/c=w", "v.com/c=x"]
    assert found.edits(names).env == (
        "FILE=/a.json",
        "FROM=/a.json:x",
        "FILE=/b.json",
        "FROM=/b.json:y",
        "FROM=/a.json:w",
        "FROM=/a.json:x",
    )


def test_the_last_rdt_replaces_the_one_before() -> None:
    """RDT is the only part that is not a list."""
    edits = ContainerEdits(intel_rdt=IntelRdt("a")).plus(ContainerEdits(intel_rdt=IntelRdt("b")))
    assert edits.intel_rdt == IntelRdt("b")
    assert edits.plus(ContainerEdits()).intel_rdt == IntelRdt("b")


def test_every_unresolvable_name_is_in_the_error() -> None:
    """The error lists all of them with their reasons."""
    found = registry(a_file("/a.json", "w"))
    with pytest.raises(UnresolvableCdiDevices, match="unresolvable CDI devices") as caught:
        found.resolve(["v.com/c=w", "v.com/c=nope", "v.com/z=w"])
    assert caught.value.names == ("v.com/c=nope", "v.com/z=w")
    assert "no such device of v.com/c in /a.json" in caught.value.reasons["v.com/c=nope"]
    assert caught.value.exit_code == 1


# ---------------------------------------------------------------- explanations


def reason(found: CdiRegistry, name: str) -> str:
    explanation = found.explain(name)
    assert not explanation.resolves
    return explanation.reason


def test_an_invalid_name_is_explained_by_the_rule() -> None:
    """A path is not a name."""
    assert reason(registry(), "/dev/kvm") == "it is a path, not vendor/class=name"


def test_a_missing_device_is_explained_by_its_neighbours() -> None:
    """A similar name is suggested, otherwise the devices of the kind are listed."""
    found = registry(a_file("/a.json", *(f"gpu{i}" for i in range(7))))
    assert "no such device of v.com/c in /a.json; did you mean gpu" in reason(found, "v.com/c=gpu9")
    assert reason(found, "v.com/c=0000:3b:00.0").endswith(
        "known: gpu0, gpu1, gpu2, gpu3, gpu4 and 2 more"
    )
    five = registry(a_file("/a.json", *"abcde"))
    assert reason(five, "v.com/c=zzz").endswith("known: a, b, c, d, e")
    few = registry(a_file("/a.json", "left", "right"))
    assert reason(few, "v.com/c=0000:3b:00.0") == (
        "no such device of v.com/c in /a.json; known: left, right"
    )


def test_a_missing_kind_is_explained_by_where_we_looked() -> None:
    """The directories and the kinds that exist are named."""
    assert reason(registry(), "v.com/c=w") == (
        "no file defines the kind v.com/c "
        "(looked in /etc/cdi, /var/run/cdi, which define no device)"
    )
    assert "did you mean v.com/c?" in reason(registry(a_file("/a.json", "w")), "v.com/cc=w")


def test_an_invalid_file_of_the_kind_is_the_reason() -> None:
    """A runtime reports only that it does not find the name."""
    found = registry(
        SpecFile("/etc/cdi/a.json", problems=(CdiProblem("/devices", "empty"),), kind="v.com/c")
    )
    assert reason(found, "v.com/c=w") == "/etc/cdi/a.json is invalid: /devices: empty"
    assert found.errors == {"/etc/cdi/a.json": ("/devices: empty",)}


def test_an_invalid_file_of_another_kind_is_not_the_reason() -> None:
    """The invalid file of another kind is not mentioned."""
    problems = (CdiProblem("/devices", "empty"),)
    found = registry(
        SpecFile("/etc/cdi/a.json", problems=problems, kind="v.com/d"), a_file("/b.json", "w")
    )
    assert reason(found, "v.com/z=w").endswith("did you mean v.com/c?)")


def test_unreadable_files_are_mentioned_for_an_unknown_kind() -> None:
    """A file of unknown content, a directory, a file with another ending: each may be the cause."""
    found = CdiRegistry(
        (SpecFile("/etc/cdi/a.json", problems=(CdiProblem("", "it is not JSON"),)),),
        ("/etc/cdi",),
        ("/etc/cdi/b.yml",),
        {"/etc/cdi": "permission denied"},
    )
    text = reason(found, "v.com/c=w")
    assert "/etc/cdi/a.json is invalid: it is not JSON" in text
    assert "/etc/cdi: permission denied" in text
    assert "/etc/cdi/b.yml" in text
    assert found.errors["/etc/cdi"] == ("permission denied",)


def test_runtimes_that_will_not_see_the_device_are_warned_of() -> None:
    """No other program warns of podman 4.3 or of engines without root."""
    file = a_file("/a.json", "w")
    assert registry(file).explain("v.com/c=w").warnings == ()
    assert file.spec is not None
    newer = CdiSpec(version="v0.6.0", kind="v.com/c", devices=file.spec.devices)
    found = registry(SpecFile("/a.json", 0, newer, kind="v.com/c", mode=0o100600))
    assert found.explain("v.com/c=w").warnings == (
        (
            "podman 4.3 reads files up to version 0.5.0, this file has version 0.6.0: "
            "it does not see the device"
        ),
        "the file has mode 0600: engines without root cannot read it",
    )
