"""A device tree becomes ResourceSlices."""

import pytest

from kubedevices.dra.slices import (
    NUMA_NODE,
    TypedDevice,
    describe_left_out,
    describe_refused,
    describe_repeated,
    offer_of,
)
from kubedevices.values.device import Device, Health
from kubedevices.values.device_tree import DeviceTree

DRIVER = "example.com"


def tree_of(*devices: Device) -> DeviceTree:
    return DeviceTree({"gpu": devices})


def test_a_device_has_its_attributes_and_capacity() -> None:
    """The framework adds ID, type and NUMA node; the other attributes are the author's."""
    device = Device(
        "GPU:1",
        numa_nodes=[1],
        attributes={
            "model": "T4",
            "cores": 40,
            "ecc": True,
            "firmware": {"version": "1.2.3"},
            "resource.kubernetes.io/pciBusID": "0000:3b:00.0",
        },
        capacity={"memory": "16Gi", "engines": 2},
    )
    offer = offer_of(tree_of(device), DRIVER)
    (made,) = offer.objects
    assert made["attributes"] == {
        "type": {"string": "gpu"},
        "id": {"string": "GPU:1"},
        NUMA_NODE: {"int": 1},
        "model": {"string": "T4"},
        "cores": {"int": 40},
        "ecc": {"bool": True},
        "firmware": {"version": "1.2.3"},
        "resource.kubernetes.io/pciBusID": {"string": "0000:3b:00.0"},
    }
    assert made["capacity"] == {"memory": {"value": "16Gi"}, "engines": {"value": "2"}}
    assert "taints" not in made
    assert offer.devices == {made["name"]: TypedDevice("gpu", device)}


@pytest.mark.parametrize("nodes", [None, (), (0, 1)])
def test_only_a_single_numa_node_becomes_an_attribute(
    nodes: tuple[int, ...] | None,
) -> None:
    """The attribute is a single number."""
    (made,) = offer_of(tree_of(Device("a", numa_nodes=nodes)), DRIVER).objects
    assert NUMA_NODE not in made["attributes"]


def test_an_id_that_is_too_long_for_an_attribute_is_left_out() -> None:
    """The device is offered nevertheless."""
    (made,) = offer_of(tree_of(Device("x" * 65)), DRIVER).objects
    assert "id" not in made["attributes"]


def test_an_unhealthy_device_is_tainted() -> None:
    """No new pod is scheduled to it."""
    (made,) = offer_of(tree_of(Device("a", health=Health.UNHEALTHY)), DRIVER).objects
    assert made["taints"] == [{"key": "example.com/unhealthy", "effect": "NoSchedule"}]


@pytest.mark.parametrize("effect", ["NoExecute", "None"])
def test_the_taint_has_the_effect_that_was_chosen(effect: str) -> None:
    """A healthy device has no taint."""
    tree = tree_of(Device("a", health=Health.UNHEALTHY), Device("b"))
    sick, well = offer_of(tree, DRIVER, effect).objects
    assert [each["effect"] for each in sick["taints"]] == [effect]
    assert "taints" not in well


@pytest.mark.parametrize(
    ("count", "unhealthy", "sizes"),
    [
        (0, 0, [0]),
        (64, 0, [64]),
        (129, 0, [64, 64, 1]),
        (64, 1, [64]),
        (129, 1, [64, 64, 1]),
    ],
)
def test_devices_are_divided_into_slices(count: int, unhealthy: int, sizes: list[int]) -> None:
    """64 in a slice, so that a taint moves no device; an empty tree is one empty slice."""
    healths = [Health.UNHEALTHY] * unhealthy + [Health.HEALTHY] * (count - unhealthy)
    tree = tree_of(*(Device(f"d{i}", health=health) for i, health in enumerate(healths)))
    offer = offer_of(tree, DRIVER)
    assert [len(each) for each in offer.slices] == sizes
    assert [each["name"] for part in offer.slices for each in part] == [
        f"d{i}" for i in range(count)
    ]


def test_devices_of_the_other_api_are_in_no_slice() -> None:
    """A device with all its replicas, when one of them is there."""
    shares = [Device("x").with_id(f"b::{number}", "b") for number in range(2)]
    offer = offer_of(tree_of(Device("a"), *shares, Device("c")), DRIVER)
    for withheld, names in (
        ([], ["a", "b", "c"]),
        ([("gpu", "b::1")], ["a", "c"]),
        ([("gpu", "a"), ("nic", "c")], ["b", "c"]),
        ([("gpu", "a"), ("gpu", "b::0"), ("gpu", "c")], []),
    ):
        (devices,) = offer.slices_without(withheld)
        assert [each["name"] for each in devices] == names


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("model", "x" * 65, "65 bytes of text, at most 64"),
        ("firmware", {"version": "1.0"}, "'1.0' is not a semantic version"),
        ("a-b", 1, "a name has at most 32 letters"),
        ("Bad_Domain/a", 1, "no DNS subdomain"),
        ("a", [1], "[1] is not a number, text or truth value"),
        ("a", 2**63, "more than 64 bits"),
        ("type", "other", "the framework sets this attribute"),
        ("example.com/id", "other", "the framework sets this attribute"),
    ],
)
def test_an_attribute_that_the_server_would_refuse_costs_only_itself(
    name: str, value: object, reason: str
) -> None:
    """The device is offered with its other attributes, and a line names attribute and reason."""
    device = Device("d", attributes={name: value, "vendor": "15b3"})
    offer = offer_of(tree_of(device), DRIVER)
    (made,) = offer.objects
    own = {"type": {"string": "gpu"}, "id": {"string": "d"}}
    assert made["attributes"] == {**own, "vendor": {"string": "15b3"}}
    assert not offer.refused
    (line,) = describe_left_out(offer.left_out)
    assert line.startswith(f"gpu: device d: the attribute {name!r} is not published: ")
    assert reason in line


def test_a_name_that_repeats_the_domain_of_the_driver_is_told_once() -> None:
    """It is published: only the shorter name is better. Other domains are no repetition."""
    names = {"example.com/model": "T4", "example.org/model": "x", "resource.k8s.io/y": 1, "z": 2}
    devices = [
        Device(name, attributes={**names, "example.com/id": "1"}, capacity={"example.com/mem": "1"})
        for name in ("d0", "d1")
    ]
    offer = offer_of(tree_of(*devices), DRIVER)
    assert offer.objects[0]["attributes"]["example.com/model"] == {"string": "T4"}
    assert offer.repeated == {("gpu", "example.com/model"), ("gpu", "example.com/mem")}
    (line,) = describe_repeated([("gpu", "example.com/model")])
    assert line.startswith("gpu: the name 'example.com/model' repeats the domain of the driver: ")
    assert "call it 'model'" in line
    assert not offer_of(tree_of(Device("d", attributes={"a": 1})), DRIVER).repeated


def test_an_attribute_that_many_devices_lack_is_one_line() -> None:
    """A thousand devices of one model must not write a thousand lines."""
    devices = [Device(f"d{number}", attributes={"model": "x" * 65}) for number in range(1000)]
    offer = offer_of(tree_of(*devices), DRIVER)
    assert len(offer.objects) == 1000
    (line,) = describe_left_out(offer.left_out)
    assert line.startswith("gpu: device d0 and 999 other devices: the attribute 'model' is not")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (
            Device("bad", attributes={f"a{number}": number for number in range(33)}),
            "35 attributes and capacities, at most 32 are allowed",
        ),
        (
            Device("bad", capacity={"memory": "a lot"}),
            "the capacity 'memory': 'a lot' is not a quantity such as 10Gi",
        ),
        *(
            (
                Device("b::0", capacity={name: 1}).with_id("bad", "b0"),
                f"the capacity {name!r} is set by the framework: choose another name",
            )
            for name in ("shares", "example.com/shares")
        ),
        (Device("bad").with_id("bad", "a"), "another device has the name 'a' already"),
    ],
    ids=["attributes", "capacity", "shares", "shares with domain", "whole and shared"],
)
def test_a_refused_device_does_not_affect_the_other_devices(bad: Device, reason: str) -> None:
    """It is reported with the reason, and the others are offered."""
    offer = offer_of(tree_of(Device("a"), bad, Device("b")), DRIVER)
    assert list(offer.devices) == ["a", "b"]
    assert offer.refused.keys() == {("gpu", "bad")}
    (line,) = describe_refused(offer.refused)
    assert line == f"gpu: device bad is not offered: {reason}"
