"""CDI devices in an OCI runtime configuration."""

import copy
from typing import Any

import pytest

from kubedevices.errors import CdiInjectionFailed, NotADeviceFile, UnresolvableCdiDevices
from kubedevices.values.cdi import (
    CdiDevice,
    CdiMount,
    CdiRegistry,
    CdiSpec,
    ContainerEdits,
    DeviceFile,
    DeviceNode,
    Hook,
    IntelRdt,
    NetDevice,
    SpecFile,
    apply_edits,
    inject,
)

HOST = {
    "/dev/w0": DeviceFile("c", 10, 200, 0o660, 0, 44),
    "/dev/disk": DeviceFile("b", 8, 0, 0o600),
    "/dev/pipe": DeviceFile("p", 0, 0, 0o644),
}


def look(path: str) -> DeviceFile:
    if path not in HOST:
        raise NotADeviceFile(path, "not a device node" if path == "/dev/link" else "no such file")
    return HOST[path]


def registry_of(*devices: CdiDevice, **more: Any) -> CdiRegistry:
    spec = CdiSpec(version="0.3.0", kind="v/c", devices=devices, **more)
    return CdiRegistry((SpecFile("/a.json", 0, spec),))


def applied(config: dict[str, Any], edits: ContainerEdits) -> dict[str, Any]:
    """Apply, and hold that the original was left alone."""
    before = copy.deepcopy(config)
    result = apply_edits(config, edits, look)
    assert config == before
    return result


def node_in(node: DeviceNode, config: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the only device that injecting `node` makes."""
    [device] = applied(config or {}, ContainerEdits(device_nodes=(node,)))["linux"]["devices"]
    return dict(device)


def test_file_edits_and_device_edits_replace_in_order_in_place() -> None:
    """A=1 in the config, A=2 of the file and A=3 of the device make one A=3 at the old place."""
    device = CdiDevice("w", (), ContainerEdits(env=("A=3",)))
    found = registry_of(device, container_edits=ContainerEdits(env=("A=2", "B=9")))
    config = {"process": {"env": ["A=1", "AB=0", "C=5"]}}
    result = inject(config, ["v/c=w"], found, look)
    assert result["process"]["env"] == ["A=3", "AB=0", "C=5", "B=9"]


def test_two_devices_of_a_file_bring_its_edits_once() -> None:
    """The edits of the file come first and once."""
    devices = tuple(CdiDevice(n, (), ContainerEdits(hooks=(Hook("poststop", n),))) for n in "ab")
    found = registry_of(*devices, container_edits=ContainerEdits(hooks=(Hook("poststop", "file"),)))
    result = inject({}, ["v/c=b", "v/c=a"], found, look)
    assert [hook["path"] for hook in result["hooks"]["poststop"]] == ["file", "b", "a"]


def test_an_unknown_second_device_changes_nothing() -> None:
    """All names are resolved before the first edit, and the error names the missing one."""
    found = registry_of(CdiDevice("w", (), ContainerEdits(env=("A=1",))))
    config: dict[str, Any] = {}
    with pytest.raises(UnresolvableCdiDevices, match="unresolvable CDI devices v/c=x ") as caught:
        inject(config, ["v/c=w", "v/c=x"], found, look)
    assert caught.value.names == ("v/c=x",)
    assert config == {}


def test_a_repeated_variable_is_kept_once() -> None:
    """Otherwise the older second entry would win inside the container."""
    config = {"process": {"env": ["A=1", "A=2"]}}
    assert applied(config, ContainerEdits(env=("A=3",)))["process"]["env"] == ["A=3"]


def test_a_device_is_filled_in_from_the_host() -> None:
    """Type, numbers and mode come from the host, the rule allows everything unless said."""
    result = applied({}, ContainerEdits(device_nodes=(DeviceNode("/dev/w", "/dev/w0"),)))
    assert result["linux"] == {
        "devices": [{"path": "/dev/w", "type": "c", "major": 10, "minor": 200, "fileMode": 0o660}],
        "resources": {
            "devices": [{"allow": True, "type": "c", "major": 10, "minor": 200, "access": "rwm"}]
        },
    }


def test_values_of_the_edit_win_over_the_host() -> None:
    """Given mode, owner, numbers and permissions are not asked of the host."""
    node = DeviceNode(
        "/dev/w0", type="c", major=99, minor=7, file_mode=0o600, permissions="r", uid=1, gid=2
    )
    result = applied({}, ContainerEdits(device_nodes=(node,)))
    numbers = {"major": 99, "minor": 7, "fileMode": 0o600, "uid": 1, "gid": 2}
    assert result["linux"]["devices"] == [{"path": "/dev/w0", "type": "c", **numbers}]
    assert result["linux"]["resources"]["devices"][0]["access"] == "r"


def test_a_complete_edit_needs_no_host_device() -> None:
    """Type and major are enough; then a host path that is missing or a link is no error."""
    for path in ("/dev/gone", "/dev/link"):
        node = DeviceNode(path, type="b", major=8, minor=3)
        assert node_in(node) == {"path": path, "type": "b", "major": 8, "minor": 3}
    assert node_in(DeviceNode("/dev/gone", type="p")) == {"path": "/dev/gone", "type": "p"}


def test_a_major_without_a_type_keeps_its_number() -> None:
    """Only the type is taken from the host then."""
    device = node_in(DeviceNode("/dev/disk", major=9, minor=1))
    assert (device["type"], device["major"], device["minor"]) == ("b", 9, 1)


@pytest.mark.parametrize(
    ("node", "problem"),
    [
        (DeviceNode("/dev/w", "/dev/gone"), "/dev/gone: no such file"),
        (DeviceNode("/dev/link"), "/dev/link: not a device node"),
        (DeviceNode("/dev/w0", type="b"), "/dev/w0: it is of type 'c', not 'b'"),
    ],
    ids=["missing", "link", "another type"],
)
def test_a_host_path_that_is_not_the_device_is_an_error(node: DeviceNode, problem: str) -> None:
    """It is missing, a link, which is not followed, or of another type than the edit says."""
    with pytest.raises(CdiInjectionFailed, match=problem) as caught:
        applied({}, ContainerEdits(device_nodes=(node,)))
    assert caught.value.path == problem.partition(":")[0]


def test_a_fifo_has_no_number_and_no_rule() -> None:
    """Only block and character devices go through the devices cgroup."""
    result = applied({}, ContainerEdits(device_nodes=(DeviceNode("/dev/pipe"),)))
    assert result["linux"] == {"devices": [{"path": "/dev/pipe", "type": "p", "fileMode": 0o644}]}


def test_a_device_belongs_to_the_user_of_the_container() -> None:
    """A process that is not root gets the node with its own IDs, unless the edit names others."""
    config = {"process": {"user": {"uid": 1000, "gid": 0}}}
    assert node_in(DeviceNode("/dev/w0"), config)["uid"] == 1000
    assert "gid" not in node_in(DeviceNode("/dev/w0"), config)
    assert node_in(DeviceNode("/dev/w0", uid=0), config)["uid"] == 0


def test_a_device_replaces_one_of_the_same_path() -> None:
    """Rules are added to, never merged."""
    config = {
        "linux": {
            "devices": [{"path": "/dev/w0", "type": "b"}, {"path": "/dev/x", "type": "c"}],
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
        }
    }
    result = applied(config, ContainerEdits(device_nodes=(DeviceNode("/dev/w0"),)))
    assert [(d["path"], d["type"]) for d in result["linux"]["devices"]] == [
        ("/dev/x", "c"),
        ("/dev/w0", "c"),
    ]
    assert [rule["allow"] for rule in result["linux"]["resources"]["devices"]] == [False, True]


def test_a_network_interface_is_moved_under_its_new_name() -> None:
    """The host's name leads to the container's."""
    edits = ContainerEdits(net_devices=(NetDevice("eth1", "net0"),))
    assert applied({}, edits)["linux"]["netDevices"] == {"eth1": {"name": "net0"}}


def test_mounts_are_sorted_by_depth_and_stay_in_order() -> None:
    """/a comes before /a/b/c; equally deep ones keep their order, and duplicates are replaced."""
    config = {"mounts": [{"destination": d} for d in ("/x/y", "/proc", "/old", "//b//")]}
    edits = ContainerEdits(
        mounts=(
            CdiMount("/h", "/a/b/c", ("bind",)),
            CdiMount("/h", "/a", ("ro", "bind"), "none"),
            CdiMount("/new", "/old"),
        )
    )
    mounts = applied(config, edits)["mounts"]
    assert [mount["destination"] for mount in mounts] == [
        "/proc",
        "//b//",
        "/a",
        "/old",
        "/x/y",
        "/a/b/c",
    ]
    assert mounts[2] == {
        "destination": "/a",
        "type": "none",
        "source": "/h",
        "options": ["ro", "bind"],
    }
    assert mounts[3] == {"destination": "/old", "source": "/new", "options": []}


def test_mounts_stay_unsorted_without_a_new_one() -> None:
    """Other edits do not touch them."""
    config = {"mounts": [{"destination": "/a/b"}, {"destination": "/a"}]}
    assert applied(config, ContainerEdits(env=("A=1",)))["mounts"] == config["mounts"]


def test_hooks_go_to_their_stage() -> None:
    """Each list is appended to."""
    edits = ContainerEdits(hooks=(Hook("createRuntime", "/b", ("b", "x"), ("E=1",), 5),))
    result = applied({"hooks": {"createRuntime": [{"path": "/a"}]}}, edits)
    assert result["hooks"] == {
        "createRuntime": [
            {"path": "/a"},
            {"path": "/b", "args": ["b", "x"], "env": ["E=1"], "timeout": 5},
        ]
    }


def test_rdt_is_replaced() -> None:
    """The old object is replaced as a whole."""
    rdt = IntelRdt("c", "L3:0=f", schemata=("MB:0=1",), enable_monitoring=True)
    result = applied({"linux": {"intelRdt": {"memBwSchema": "x"}}}, ContainerEdits(intel_rdt=rdt))
    assert result["linux"]["intelRdt"] == {
        "closID": "c",
        "l3CacheSchema": "L3:0=f",
        "schemata": ["MB:0=1"],
        "enableMonitoring": True,
    }


def test_group_ids_are_added_once_and_never_zero() -> None:
    """[0, 5, 5] with 5 already there changes nothing."""
    config = {"process": {"user": {"uid": 0, "gid": 0, "additionalGids": [5]}}}
    assert applied(config, ContainerEdits(additional_gids=(0, 5, 5))) == config
    gids = applied({}, ContainerEdits(additional_gids=(0, 7, 7)))["process"]["user"]
    assert gids == {"additionalGids": [7]}


def test_null_in_the_configuration_is_the_same_as_absent() -> None:
    """Configurations that Go programs wrote may contain null."""
    config = {"process": {"env": None}, "linux": None}
    result = applied(config, ContainerEdits(env=("A=1",), device_nodes=(DeviceNode("/dev/w0"),)))
    assert result["process"]["env"] == ["A=1"]
    assert len(result["linux"]["devices"]) == 1
    nothing: list[dict[str, Any]] = [{"process": None}, {"process": {"user": None}}]
    for empty in nothing:
        assert applied(empty, ContainerEdits(additional_gids=(5,)))["process"]["user"]
        assert applied(empty, ContainerEdits(device_nodes=(DeviceNode("/dev/w0"),)))["linux"]
