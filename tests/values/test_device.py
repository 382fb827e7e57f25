"""Devices as values: equality, immutability, checks, natural order."""

import copy
import dataclasses
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubedevices.errors import InvalidDevice
from kubedevices.values.cdi import CdiDevice, ContainerEdits
from kubedevices.values.device import Device, DeviceSpec, Health, Mount, natural_key, natural_order

WIDGET: dict[str, Any] = {
    "paths": ["/dev/widget0"],
    "specs": [DeviceSpec("/dev/extra", "/dev/inside", "r")],
    "mounts": [Mount("/opt/widget", "/opt/widget", read_only=True)],
    "env": {"WIDGET": "0"},
    "annotations": {"example.com/widget": "0"},
    "cdi": "example.com/widget=0",
    "numa_nodes": [1],
    "attributes": {"model": "A"},
    "capacity": {"memory": "1Gi"},
}


def test_equal_content_makes_equal_devices() -> None:
    """Two devices made of the same content are equal and have one hash."""
    assert Device("w", **WIDGET) == Device("w", **WIDGET)
    assert hash(Device("w", **WIDGET)) == hash(Device("w", **WIDGET))


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("health", Health.UNHEALTHY),
        ("paths", ["/dev/widget1"]),
        ("specs", [DeviceSpec("/dev/extra", "/dev/inside", "rw")]),
        ("mounts", [Mount("/opt/widget", "/opt/widget", read_only=False)]),
        ("env", {"WIDGET": "1"}),
        ("annotations", {}),
        ("cdi", "example.com/widget=1"),
        ("numa_nodes", [0]),
        ("numa_nodes", None),
        ("attributes", {"model": "B"}),
        ("capacity", {"memory": "2Gi"}),
        ("reason", "hot"),
    ],
)
def test_every_part_counts_for_equality(part: str, value: object) -> None:
    """A change of health, permission, variable, NUMA node or any other part is seen."""
    assert Device("w", **WIDGET) != Device("w", **(WIDGET | {part: value}))
    assert Device("w", **WIDGET) != Device("w2", **WIDGET)


@pytest.mark.parametrize("part", [field.name for field in dataclasses.fields(Device)])
def test_devices_are_frozen(part: str) -> None:
    """No part of a device can be replaced."""
    device = Device("w", **WIDGET)
    with pytest.raises(dataclasses.FrozenInstanceError, match=part):
        setattr(device, part, None)


def test_a_device_has_copies_of_what_it_is_made_of() -> None:
    """Neither its variables nor the lists and dictionaries that were given can edit it."""
    env, paths = {"A": "1"}, ["/dev/a"]
    device = Device("w", env=env, paths=paths)
    env["A"] = "2"
    paths.append("/dev/b")
    with pytest.raises(TypeError, match="does not support item assignment"):
        device.env["A"] = "3"  # type: ignore[index]
    assert (device.env, device.paths) == ({"A": "1"}, ("/dev/a",))


def pickled(device: Device) -> Device:
    """Send a device through pickle."""
    restored: Device = pickle.loads(pickle.dumps(device))
    return restored


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickled])
def test_copies_are_equal(duplicate: Callable[[Device], Device]) -> None:
    """Copying and pickling a device gives an equal one."""
    device = Device("w", **WIDGET)
    assert duplicate(device) == device


def test_a_reason_can_always_be_sent() -> None:
    """It may quote a file name or the output of a program; the device is not lost for that."""
    device = Device("w", reason="/dev/\udcff\0 ist heiß")
    assert device.reason == "/dev/? ist heiß"
    sick = device.with_health(Health.UNHEALTHY, "fan")
    assert (sick.health, sick.reason, sick.id) == (Health.UNHEALTHY, "fan", "w")
    assert sick.with_health(Health.HEALTHY) == Device("w")
    assert sick.with_id("x").reason == pickled(sick).reason == "fan"


def test_defaults() -> None:
    """A device with only an ID is healthy, gives nothing, and has its NUMA nodes looked up."""
    device = Device("w")
    assert device.is_healthy
    assert device.all_specs == ()
    assert device.env == {}
    assert device.numa_nodes is None


def test_paths_become_specs_before_specs() -> None:
    """`paths` are device files in default form and come before `specs`."""
    extra = DeviceSpec("/dev/b", "/dev/c", "r")
    device = Device("w", paths=[Path("/dev/a")], specs=[extra])
    assert device.all_specs == (DeviceSpec("/dev/a", "/dev/a", "rw"), extra)


def test_numa_nodes_are_sorted_and_unique() -> None:
    """The order and the repetition of NUMA nodes do not matter."""
    assert Device("w", numa_nodes=[1, 0, 1]) == Device("w", numa_nodes=(0, 1))


def test_health_may_be_a_word() -> None:
    """The two words of the API stand for the two members."""
    assert Device("w", health="Unhealthy").health is Health.UNHEALTHY  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("device_id", "parts", "text"),
    [
        ("", {}, "device '': the ID must be a text that is not empty"),
        (7, {}, "device '7': the ID must be a text that is not empty"),
        ("w\0", {}, "contains a NUL character"),
        ("w\udcff", {}, r"'w\udcff' is not valid UTF-8"),
        ("w", {"health": "healthy"}, "health 'healthy' must be 'Healthy' or 'Unhealthy'"),
        ("w", {"paths": "/dev/w"}, "paths must be a list, not the single '/dev/w'"),
        ("w", {"paths": Path("/dev/w")}, "paths must be a list, not the single"),
        ("w", {"paths": ["dev/w"]}, "the path 'dev/w' must be absolute"),
        ("w", {"paths": ["/dev/w\udcff"]}, r"'/dev/w\udcff' is not valid UTF-8"),
        ("w", {"specs": ["/dev/w"]}, "specs must hold DeviceSpec, not '/dev/w' (for a plain path"),
        ("w", {"specs": DeviceSpec("/dev/w")}, "specs must be a list, not the single DeviceSpec"),
        ("w", {"specs": [DeviceSpec("/dev/w", "w")]}, "the path 'w' must be absolute"),
        ("w", {"specs": [DeviceSpec("/dev/w", None, "x")]}, "permissions 'x' must be letters"),
        ("w", {"specs": [DeviceSpec("/dev/w", None, "")]}, "permissions '' must be letters"),
        ("w", {"specs": [DeviceSpec("/dev/w", None, "rr")]}, "permissions 'rr' must be letters"),
        ("w", {"mounts": [("/a", "/b")]}, "mounts must hold Mount, not ('/a', '/b')"),
        ("w", {"mounts": [Mount("/a", "b")]}, "the path 'b' must be absolute"),
        ("w", {"env": {"A": 1}}, "env must map text to text, not 'A': 1"),
        ("w", {"env": {"A": "\udcff"}}, r"env: '\udcff' is not valid UTF-8"),
        ("w", {"env": {"A=B": "1"}}, "env: 'A=B' cannot be a name"),
        ("w", {"env": {"": "1"}}, "env: '' cannot be a name"),
        ("w", {"annotations": {1: "1"}}, "annotations must map text to text, not 1: '1'"),
        ("w", {"numa_nodes": [-1]}, "numa_nodes must be a list of numbers from 0, not [-1]"),
        ("w", {"numa_nodes": ["0"]}, "numa_nodes must be a list of numbers from 0, not ['0']"),
        ("w", {"numa_nodes": 0}, "numa_nodes must be a list of numbers from 0, not 0"),
        ("w", {"cdi": "widget0"}, "cdi 'widget0' must be a name like vendor.com/class=device"),
        ("w", {"reason": 3}, "the reason must be a text, not 3"),
        ("w", {"cdi": 3}, "cdi must be a name like vendor.com/class=device, or CDI edits, not 3"),
        ("w", {"cdi": ContainerEdits()}, "cdi: /devices/0/containerEdits:"),
        ("w", {"cdi": CdiDevice("a b", (), ContainerEdits(env=("A=1",)))}, "cdi: /devices/0/name"),
        ("w", {"cdi": ContainerEdits(env=("A",))}, "cdi: /devices/0/containerEdits/env/0: "),
    ],
)
def test_an_unusable_device_is_refused(device_id: Any, parts: dict[str, Any], text: str) -> None:
    """A mistake in a device is reported when it is made, with the ID and the rule."""
    with pytest.raises(InvalidDevice, match=re.escape(text)) as caught:
        Device(device_id, **parts)
    assert caught.value.device_id == str(device_id)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("permissions", ["r", "w", "m", "rw", "mr", "rwm", "mwr"])
def test_every_combination_of_permissions(permissions: str) -> None:
    """Each letter of `rwm` may be there once, in any order."""
    assert DeviceSpec("/dev/w", None, permissions).problem() == ""


def test_text_beyond_ascii_is_allowed() -> None:
    """Whatever is valid UTF-8 is a valid ID and variable."""
    assert Device("Gerät-1", env={"NAME": "日本"}).id == "Gerät-1"


def test_natural_order() -> None:
    """Numbers inside an ID count as numbers, and different IDs never tie."""
    ids = ["card10", "card2-10", "card2-9", "card", "card02", "card2", "a", "card2a"]
    assert sorted(ids, key=natural_key) == [
        "a", "card", "card02", "card2", "card2-9", "card2-10", "card2a", "card10",
    ]  # fmt: skip


@settings(deadline=None)
@given(st.text(), st.text())
def test_natural_keys_tell_ids_apart(first: str, second: str) -> None:
    """Two IDs have one key only when they are the same."""
    assert (natural_key(first) == natural_key(second)) == (first == second)


@settings(deadline=None)
@given(st.integers(min_value=0), st.integers(min_value=0))
def test_natural_keys_compare_numbers(first: int, second: int) -> None:
    """Numbers of any size compare by value."""
    ordered = natural_key(f"card{first}-x") < natural_key(f"card{second}-x")
    assert ordered == (first < second)


def test_a_number_of_thousands_of_digits_has_a_key() -> None:
    """A peer's endless ID is sorted like any other."""
    assert natural_key("1" * 5000) < natural_key("2" * 5000)


@pytest.mark.parametrize(
    "parts",
    [
        {"specs": [DeviceSpec("/dev/a", "/dev/x"), DeviceSpec("/dev/b", "/dev/x")]},
        {"paths": ["/dev/x"], "specs": [DeviceSpec("/dev/b", "/dev/x")]},
        {"mounts": [Mount("/dev/a", "/dev/x"), Mount("/dev/b", "/dev/x")]},
    ],
)
def test_two_parts_of_a_device_cannot_be_in_one_place(parts: dict[str, Any]) -> None:
    """One would be lost in every container; the same thing twice loses nothing."""
    with pytest.raises(InvalidDevice, match="cannot both be /dev/x in a container"):
        Device("w", **parts)
    for name, (first, *_) in parts.items():
        twice: dict[str, Any] = {name: [first, first]}
        Device("w", **twice)


words = st.sampled_from(["", "w", "w-", "w0", "ü", "1w"])


@given(st.lists(st.builds(lambda word, rest: word + rest, words, st.text("019", max_size=3))))
def test_many_texts_are_sorted_as_by_their_keys(texts: list[str]) -> None:
    """The quick way for one word with numbers gives the same order, leading zeros or not."""
    different = list(dict.fromkeys(texts))
    assert natural_order(different) == sorted(different, key=natural_key)


def test_the_same_device_with_another_id() -> None:
    """Nothing else differs, and it is a device like any other."""
    device = Device("a", paths=["/dev/a"], env={"A": "1"}, numa_nodes=[1])
    other = device.with_id("b")
    assert other == Device("b", paths=["/dev/a"], env={"A": "1"}, numa_nodes=[1])
    assert (device.id, hash(other)) == ("a", hash("b"))
