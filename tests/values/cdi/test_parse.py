"""CDI files: from JSON to values and back, and the place of every mistake."""

import copy
import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from kubedevices.errors import InvalidCdiSpec, UsageError
from kubedevices.values.cdi import (
    CdiDevice,
    CdiMount,
    CdiSpec,
    ContainerEdits,
    DeviceNode,
    Hook,
    IntelRdt,
    NetDevice,
    edits_of,
    from_dict,
    from_json,
    to_dict,
    to_json,
)
from kubedevices.values.device import DeviceSpec, Mount

FULL: dict[str, Any] = {
    "cdiVersion": "1.1.0",
    "kind": "vendor.com/widget",
    "annotations": {"a.com/b": "c", "d": "e"},
    "devices": [
        {
            "name": "w0",
            "annotations": {"x": "y"},
            "containerEdits": {
                "env": ["A=1"],
                "deviceNodes": [
                    {"path": "/dev/w", "hostPath": "/dev/w0", "type": "c", "major": 10, "minor": 0,
                     "fileMode": 432, "permissions": "rw", "uid": 0, "gid": 44}
                ],
                "netDevices": [{"hostInterfaceName": "eth1", "name": "net0"}],
                "mounts": [
                    {"hostPath": "/lib/w", "containerPath": "/lib/w", "options": ["ro", "bind"],
                     "type": "none"}
                ],
                "hooks": [
                    {"hookName": "createContainer", "path": "/bin/h", "args": ["h", "-x"],
                     "env": ["B=2"], "timeout": 3}
                ],
                "intelRdt": {
                    "closID": "c", "l3CacheSchema": "L3:0=f", "memBwSchema": "MB:0=50",
                    "schemata": ["L2:0=f"], "enableMonitoring": True,
                },
                "additionalGids": [5, 0],
            },
        }
    ],
    "containerEdits": {"env": ["C=3"]},
}  # fmt: skip


def problems_of(data: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidCdiSpec, match=r"\w") as caught:
        from_dict(data, file="a.json")
    assert isinstance(caught.value, UsageError)
    assert caught.value.file == "a.json"
    assert str(caught.value).startswith("a.json: ")
    return [(each.pointer, each.problem) for each in caught.value.problems]


def with_edits(edits: Any) -> dict[str, Any]:
    return {
        "cdiVersion": "0.3.0",
        "kind": "v/c",
        "devices": [{"name": "d", "containerEdits": edits}],
    }


def test_every_key_survives_the_way_to_values_and_back() -> None:
    """A file that is read and written has the same keys in the same order."""
    spec = from_dict(FULL)
    assert to_dict(spec) == FULL
    assert list(to_dict(spec)) == list(FULL)
    assert from_json(to_json(spec)) == spec


def test_keys_have_their_place_in_the_values() -> None:
    """Each JSON key is one attribute."""
    edits = from_dict(FULL).devices[0].container_edits
    assert edits == ContainerEdits(
        env=("A=1",),
        device_nodes=(DeviceNode("/dev/w", "/dev/w0", "c", 10, 0, 0o660, "rw", 0, 44),),
        net_devices=(NetDevice("eth1", "net0"),),
        mounts=(CdiMount("/lib/w", "/lib/w", ("ro", "bind"), "none"),),
        hooks=(Hook("createContainer", "/bin/h", ("h", "-x"), ("B=2",), 3),),
        intel_rdt=IntelRdt("c", "L3:0=f", "MB:0=50", ("L2:0=f",), True),
        additional_gids=(5, 0),
    )


def test_empty_values_are_not_written() -> None:
    """A file has no empty values, but the number 0 is written."""
    spec = CdiSpec(
        version="0.3.0",
        kind="v/c",
        devices=(
            CdiDevice("d", container_edits=ContainerEdits(device_nodes=(DeviceNode("/d", uid=0),))),
        ),
    )
    assert to_dict(spec) == {
        "cdiVersion": "0.3.0",
        "kind": "v/c",
        "devices": [{"name": "d", "containerEdits": {"deviceNodes": [{"path": "/d", "uid": 0}]}}],
    }


def test_values_are_frozen_equal_hashable_and_copyable() -> None:
    """Lists and dictionaries given by a caller do not stay changeable inside."""
    given = ["A=1"]
    one = CdiDevice("d", {"b": "2", "a": "1"}, ContainerEdits(env=given))  # type: ignore[arg-type]
    given.append("B=2")
    two = CdiDevice("d", (("a", "1"), ("b", "2")), ContainerEdits(env=("A=1",)))
    assert one == two
    assert len({one, two, copy.deepcopy(one), pickle.loads(pickle.dumps(one))}) == 1
    with pytest.raises(FrozenInstanceError, match="name"):
        one.name = "x"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("data", "pointer"),
    [
        ({"cdiVersion": "0.3.0", "foo": 1}, "/foo"),
        ({"devices": [{"foo": 1}]}, "/devices/0/foo"),
        ({"containerEdits": {"foo": 1}}, "/containerEdits/foo"),
        (with_edits({"foo": 1}), "/devices/0/containerEdits/foo"),
        (with_edits({"mounts": [{}, {"a/b~c": 1}]}), "/devices/0/containerEdits/mounts/1/a~1b~0c"),
        (with_edits({"deviceNodes": [{"foo": 1}]}), "/devices/0/containerEdits/deviceNodes/0/foo"),
        (with_edits({"hooks": [{"foo": 1}]}), "/devices/0/containerEdits/hooks/0/foo"),
        (with_edits({"intelRdt": {"foo": 1}}), "/devices/0/containerEdits/intelRdt/foo"),
        (with_edits({"netDevices": [{"foo": 1}]}), "/devices/0/containerEdits/netDevices/0/foo"),
    ],
)
def test_an_unknown_key_is_a_mistake_at_every_level(data: Any, pointer: str) -> None:
    """Runtimes refuse the whole file for one unknown key."""
    assert problems_of(data) == [(pointer, "unknown key")]


def test_unknown_keys_pass_when_asked() -> None:
    """A newer file can still be shown."""
    assert from_dict({"kind": "v/c", "news": 1}, strict=False) == CdiSpec(kind="v/c")


@pytest.mark.parametrize(
    ("data", "pointer", "problem"),
    [
        (
            {"containerEdits": {"devicenodes": []}},
            "/containerEdits/devicenodes",
            "unknown key, did you mean 'deviceNodes'?",
        ),
        (
            {"containerEdits": {"additionalGIDs": []}},
            "/containerEdits/additionalGIDs",
            "unknown key, did you mean 'additionalGids'?",
        ),
        (
            {"containerEdits": {"intelRdt": {"enableCMT": True}}},
            "/containerEdits/intelRdt/enableCMT",
            "removed",
        ),
        ([], "", "it must be an object, not a list"),
        (None, "", "it must be an object, not null"),
        ({"annotations": {"a": 1}}, "/annotations/a", "it must be text, not 1"),
        ({"annotations": ["a"]}, "/annotations", "it must be an object of texts, not a list"),
        ({"devices": {}}, "/devices", "it must be a list of objects, not an object"),
        ({"devices": [None]}, "/devices/0", "it must be an object, not null"),
        ({"kind": 7}, "/kind", "it must be text, not 7"),
        ({"containerEdits": []}, "/containerEdits", "it must be an object, not a list"),
        ({"containerEdits": {"env": "A=1"}}, "/containerEdits/env", "a list of texts"),
        ({"containerEdits": {"env": [1]}}, "/containerEdits/env/0", "it must be text, not 1"),
        (
            {"containerEdits": {"additionalGids": [-1]}},
            "/containerEdits/additionalGids/0",
            "it must be a whole number from 0 to 4294967295, not -1",
        ),
        (
            {"containerEdits": {"deviceNodes": [{"major": 1.5}]}},
            "/containerEdits/deviceNodes/0/major",
            "it must be a whole number, not 1.5",
        ),
        (
            {"containerEdits": {"deviceNodes": [{"minor": True}]}},
            "/containerEdits/deviceNodes/0/minor",
            "it must be a whole number, not true",
        ),
        (
            {"containerEdits": {"deviceNodes": [{"uid": 2**32}]}},
            "/containerEdits/deviceNodes/0/uid",
            "not 4294967296",
        ),
        (
            {"containerEdits": {"intelRdt": {"enableMonitoring": "yes"}}},
            "/containerEdits/intelRdt/enableMonitoring",
            'it must be true or false, not "yes"',
        ),
    ],
)
def test_a_mistake_has_its_place(data: Any, pointer: str, problem: str) -> None:
    """The pointer leads to the wrong key or value, the text says what would be right."""
    [(place, text)] = problems_of(data)
    assert place == pointer
    assert problem in text


def test_all_mistakes_come_at_once() -> None:
    """One error lists all problems of a file."""
    assert [place for place, _ in problems_of({"kind": 1, "foo": 2, "devices": 3})] == [
        "/kind",
        "/foo",
        "/devices",
    ]


def test_null_is_the_same_as_absent() -> None:
    """All readers in Go treat null so."""
    assert from_dict({"kind": "v/c", "devices": None, "containerEdits": None}) == CdiSpec(
        kind="v/c"
    )


def test_text_that_is_not_json_is_one_mistake() -> None:
    """The place in the text is in the message."""
    with pytest.raises(InvalidCdiSpec, match=r"it is not JSON: .*line 1"):
        from_json("{", file="a.json")


def test_a_duplicate_key_is_an_error() -> None:
    """Strict readers refuse it; using the last value would hide an error."""
    with pytest.raises(InvalidCdiSpec, match="duplicate key 'kind'"):
        from_json('{"cdiVersion": "0.3.0", "kind": "a/b", "kind": "c/d"}')


def test_numbers_end_where_readers_end() -> None:
    """Readers hold device numbers in 64 bits and IDs in 32."""

    def node(**numbers: int) -> dict[str, Any]:
        return {"containerEdits": {"deviceNodes": [numbers]}}

    for good in (node(major=2**63 - 1), node(minor=-(2**63)), node(uid=2**32 - 1)):
        from_dict(good)
    for bad in (node(major=2**63), node(minor=-(2**63) - 1), node(gid=2**32)):
        assert len(problems_of(bad)) == 1


def test_an_allocate_response_as_cdi_edits() -> None:
    """Mounts become bind mounts, and the host path is named only where it differs."""
    edits = edits_of(
        env=[("A", "x=y")],
        devices=[DeviceSpec("/dev/a"), DeviceSpec("/dev/b", "/dev/c", "rwm")],
        mounts=[Mount("/h", "/c", read_only=True), Mount("/i", "/j")],
    )
    assert edits == ContainerEdits(
        env=("A=x=y",),
        device_nodes=(
            DeviceNode("/dev/a", permissions="rw"),
            DeviceNode("/dev/c", "/dev/b", permissions="rwm"),
        ),
        mounts=(
            CdiMount("/h", "/c", ("ro", "nosuid", "nodev", "bind")),
            CdiMount("/i", "/j", ("rw", "nosuid", "nodev", "bind")),
        ),
    )
