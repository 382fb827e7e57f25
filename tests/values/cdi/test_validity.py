"""Which CDI specs are valid, and which version they need."""

from dataclasses import replace
from typing import Any

import pytest

from kubedevices.errors import InvalidCdiSpec
from kubedevices.values.cdi import (
    READERS,
    VERSIONS,
    CdiDevice,
    CdiMount,
    CdiSpec,
    ContainerEdits,
    DeviceNode,
    Hook,
    IntelRdt,
    NetDevice,
    find_problems,
    minimum_version,
    readers_too_old_for,
    to_dict,
    validate,
    with_minimum_version,
)

PLAIN = ContainerEdits(env=("A=1",))


def spec_with(edits: ContainerEdits = PLAIN, **changes: Any) -> CdiSpec:
    spec = CdiSpec(kind="vendor.com/widget", devices=(CdiDevice("w", (), edits),))
    return with_minimum_version(replace(spec, **changes))


def problems_of(spec: CdiSpec, *, strict: bool = False) -> list[str]:
    return [str(each) for each in find_problems(spec, strict=strict)]


def edits_problem(edits: ContainerEdits, *, strict: bool = False) -> str:
    """Return the only problem of these edits, without the place of the device."""
    [problem] = problems_of(spec_with(edits), strict=strict)
    return problem.removeprefix("/devices/0/containerEdits/")


# ---------------------------------------------------------------- versions


def device_named(name: str) -> CdiSpec:
    return spec_with(devices=(CdiDevice(name, (), PLAIN),))


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        (spec_with(), "0.3.0"),
        (spec_with(ContainerEdits(device_nodes=(DeviceNode("/dev/a"),))), "0.3.0"),
        (spec_with(ContainerEdits(mounts=(CdiMount("/a", "/a", ("bind",)),))), "0.3.0"),
        (spec_with(ContainerEdits(mounts=(CdiMount("/a", "/a", (), "tmpfs"),))), "0.4.0"),
        (device_named("0"), "0.5.0"),
        (device_named("0000:3b:00.0"), "0.5.0"),
        (device_named("a:b"), "0.3.0"),
        (spec_with(ContainerEdits(device_nodes=(DeviceNode("/dev/a", "/dev/b"),))), "0.5.0"),
        (spec_with(annotations={"a": "b"}), "0.6.0"),
        (spec_with(devices=(CdiDevice("w", (("a", "b"),), PLAIN),)), "0.6.0"),
        (spec_with(kind="vendor.com/foo-bar123.B_az"), "0.6.0"),
        (spec_with(ContainerEdits(intel_rdt=IntelRdt("c"))), "0.7.0"),
        (spec_with(ContainerEdits(additional_gids=(5,))), "0.7.0"),
        (spec_with(ContainerEdits(net_devices=(NetDevice("a", "b"),))), "1.1.0"),
        (spec_with(ContainerEdits(intel_rdt=IntelRdt(schemata=("x",)))), "1.1.0"),
        (spec_with(ContainerEdits(intel_rdt=IntelRdt(schemata=()))), "1.1.0"),
        (spec_with(ContainerEdits(intel_rdt=IntelRdt(enable_monitoring=True))), "1.1.0"),
    ],
)
def test_the_version_is_the_lowest_that_can_say_it(spec: CdiSpec, version: str) -> None:
    """Every feature has the version that brought it, and such a file is valid."""
    assert minimum_version(spec) == version
    assert problems_of(spec) == []


def test_the_edits_of_the_file_count_like_those_of_a_device() -> None:
    """The highest need of all parts decides."""
    spec = spec_with(container_edits=ContainerEdits(additional_gids=(5,)), annotations={"a": "b"})
    assert minimum_version(spec) == "0.7.0"


def test_a_version_that_is_too_low_is_refused_with_the_place() -> None:
    """Readers since 0.5.4 refuse such a file, and the text is theirs."""
    spec = spec_with(ContainerEdits(device_nodes=(DeviceNode("/dev/a", "/dev/b"),)))
    assert problems_of(replace(spec, version="0.4.0")) == [
        (
            "/cdiVersion: the spec version must be at least v0.5.0 "
            "(/devices/0/containerEdits/deviceNodes/0/hostPath needs it)"
        )
    ]
    assert problems_of(replace(spec, version="0.2.0"))[0].startswith("/cdiVersion: the spec")
    assert problems_of(replace(spec, version="1.0.0")) == []


@pytest.mark.parametrize("version", ["0.9.0", "1.2.0", "", "0.5", "vv0.5.0"])
def test_an_unknown_version_is_invalid(version: str) -> None:
    """A reader accepts only versions that it knows."""
    [problem] = problems_of(replace(spec_with(), version=version))
    assert problem.startswith(f"/cdiVersion: invalid version {version!r}")


def test_a_leading_v_is_read_but_not_written() -> None:
    """Readers strip it; we do not rely on that."""
    spec = replace(spec_with(), version="v0.5.0")
    assert problems_of(spec) == []
    assert "invalid version" in problems_of(spec, strict=True)[0]


def test_runtimes_that_cannot_read_a_version_are_known() -> None:
    """Observed: podman 4.3 reads up to 0.5.0, podman 5.4 and containerd 1.7 up to 0.8.0."""
    assert readers_too_old_for("0.5.0") == ()
    assert [each.runtime for each in readers_too_old_for("0.6.0")] == ["podman 4.3"]
    assert readers_too_old_for("1.0.0") == READERS
    assert readers_too_old_for("9.9.9") == ()
    assert all(reader.newest in VERSIONS for reader in READERS)


# ---------------------------------------------------------------- validity


def test_a_spec_needs_a_device() -> None:
    """An empty list makes the file invalid."""
    assert problems_of(spec_with(devices=())) == ["/devices: there must be at least one device"]


def test_a_device_name_comes_once() -> None:
    """The second device of a name is named with its place."""
    twice = (CdiDevice("w", (), PLAIN), CdiDevice("w", (), PLAIN))
    assert problems_of(spec_with(devices=twice)) == ["/devices/1/name: duplicate device 'w'"]


def test_a_device_must_change_something() -> None:
    """Absent and empty edits are the same error."""
    assert problems_of(spec_with(devices=(CdiDevice("w"),))) == [
        "/devices/0/containerEdits: empty device edits"
    ]


def test_names_are_checked_in_their_place() -> None:
    """A bad kind and a bad device name are two problems."""
    spec = spec_with(kind="vendor.com", devices=(CdiDevice("-a", (), PLAIN),))
    assert [each.pointer for each in find_problems(spec)] == ["/kind", "/devices/0/name"]


@pytest.mark.parametrize(
    "edits",
    [
        *(ContainerEdits(env=(env,)) for env in ("A=", "A=b=c")),
        ContainerEdits(device_nodes=(DeviceNode("/d", major=0, minor=0),)),
        *(
            ContainerEdits(device_nodes=(DeviceNode("/d", permissions=permissions),))
            for permissions in ("", "r", "w", "m", "rwm", "mw")
        ),
        *(
            ContainerEdits(intel_rdt=IntelRdt(clos_id, "L3:0=f"))
            for clos_id in ("", "/", "x" * 4095)
        ),
    ],
    ids=lambda edits: repr(to_dict(edits))[:60],
)
def test_edits_within_the_rules_are_valid(edits: ContainerEdits) -> None:
    """A value may be empty, zero is a number, no permissions mean rwm, `/` is the root group."""
    assert problems_of(spec_with(edits)) == []


@pytest.mark.parametrize("env", ["A", "=b", ""])
def test_an_env_entry_without_a_name_is_invalid(env: str) -> None:
    """NAME= is the least there must be, in edits and in hooks."""
    assert edits_problem(ContainerEdits(env=(env,))) == f"env/0: {env!r} must read NAME=value"
    hook = Hook("poststop", "/bin/x", env=(env,))
    assert edits_problem(ContainerEdits(hooks=(hook,))).startswith("hooks/0/env/0: ")


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        (DeviceNode(type="c"), "deviceNodes/0/path: a device node needs a path"),
        (DeviceNode("/d", type="x"), "deviceNodes/0/type: 'x' must be one of b, c, u, p"),
        (DeviceNode("/d", permissions="rx"), "deviceNodes/0/permissions: 'rx' must be letters"),
        (DeviceNode("/d", permissions="none"), "deviceNodes/0/permissions: 'none' must be"),
        (DeviceNode("/d", major=-1), "deviceNodes/0/major: -1 must not be negative"),
        (DeviceNode("/d", minor=-1), "deviceNodes/0/minor: -1 must not be negative"),
        (CdiMount("", "/c", ("bind",)), "mounts/0/hostPath: a mount needs a host path"),
        (CdiMount("/h", "", ("bind",)), "mounts/0/containerPath: a mount needs a container path"),
        (Hook("preStart", "/bin/x"), "hooks/0/hookName: 'preStart' must be one of prestart, "),
        (Hook("prestart"), "hooks/0/path: a hook needs a path"),
        *((IntelRdt(each), "intelRdt/closID: ") for each in (".", "..", "a/b", "a\nb", "x" * 4096)),
    ],
)
def test_a_bad_part_of_edits_is_invalid(part: Any, problem: str) -> None:
    """Required paths, types, permissions and numbers; a CLOS ID becomes a directory of resctrl."""
    lists = {DeviceNode: "device_nodes", CdiMount: "mounts", Hook: "hooks"}
    name = lists.get(type(part), "intel_rdt")
    content: dict[str, Any] = {name: (part,) if name in lists.values() else part}
    edits = ContainerEdits(**content)
    assert edits_problem(edits).startswith(problem)


def test_net_devices_are_named_and_unique() -> None:
    """Both names are required and unique inside one edits object."""
    devices = (NetDevice("a", "x"), NetDevice("", "x"), NetDevice("a", ""))
    assert [
        str(each).removeprefix("/devices/0/containerEdits/")
        for each in find_problems(spec_with(ContainerEdits(net_devices=devices)))
    ] == [
        "netDevices/1/hostInterfaceName: it must not be empty",
        "netDevices/2/hostInterfaceName: duplicate 'a'",
        "netDevices/1/name: duplicate 'x'",
        "netDevices/2/name: it must not be empty",
    ]


@pytest.mark.parametrize(
    ("edits", "problem"),
    [
        (ContainerEdits(mounts=(CdiMount("/a", "/b", ("ro",)),)), "mounts/0/options: without"),
        (ContainerEdits(hooks=(Hook("prestart", "x"),)), "hooks/0/path: the path 'x' must be abs"),
        (ContainerEdits(hooks=(Hook("prestart", "/x", timeout=0),)), "hooks/0/timeout: 0 must"),
    ],
)
def test_written_files_keep_stricter_rules(edits: ContainerEdits, problem: str) -> None:
    """Readers accept it, runtimes would fail on it later."""
    assert problems_of(spec_with(edits)) == []
    assert edits_problem(edits, strict=True).startswith(problem)


@pytest.mark.parametrize(
    "annotations",
    [
        {"n" * 64: ""},
        {f"{'d' * 254}/n": ""},
        {"a b": "c"},
        {"A.com/x": "c"},
        {"a/b/c": "d"},
        {"": "x"},
        {"a": "x" * (256 * 1024)},
    ],
)
def test_annotations_that_kubernetes_would_refuse_are_not_written(
    annotations: dict[str, str],
) -> None:
    """Keys are qualified names and all together fit into 256 KiB; a reader accepts any."""
    spec = spec_with(annotations=annotations)
    assert problems_of(spec) == []
    assert problems_of(spec, strict=True)
    device = CdiDevice("w", tuple(annotations.items()), PLAIN)
    assert problems_of(spec_with(devices=(device,)), strict=True)


def test_good_annotations_are_written() -> None:
    """With and without a domain, up to the limits."""
    for annotations in (
        {"a.com/b": "ä", "c": ""},
        {f"{'d' * 253}/{'n' * 63}": "x"},
        {"a": "x" * (256 * 1024 - 1)},
    ):
        assert problems_of(spec_with(annotations=annotations), strict=True) == []


def test_validate_raises_with_all_problems() -> None:
    """The error carries the file and the first place as fields."""
    with pytest.raises(InvalidCdiSpec, match=r"/etc/x\.json: /kind: ") as caught:
        validate(CdiSpec(version="0.3.0", kind="x"), file="/etc/x.json")
    error = caught.value
    assert (error.file, error.pointer, len(error.problems)) == ("/etc/x.json", "/kind", 2)
    assert error.exit_code == 2
    validate(spec_with(), strict=True)
