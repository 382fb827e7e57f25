"""Several IDs for one device."""

import pytest

from kubedevices.errors import UsageError
from kubedevices.rules.replicas import (
    device_of,
    number_of,
    numbers_to_serve,
    replicate,
)
from kubedevices.values.device import Device, Health
from kubedevices.values.device_tree import DeviceTree

WELL = Device("card-0", paths=["/dev/card0"], numa_nodes=[1])
BROKEN = Device("card-1", health=Health.UNHEALTHY)


def test_a_replica_differs_from_its_device_only_in_the_id() -> None:
    """Health and NUMA nodes of all replicas agree, always."""
    tree = replicate(DeviceTree({"card": [WELL, BROKEN], "none": []}), 2)
    assert list(tree) == ["card", "none"]
    found = tree.devices("card")
    assert list(found) == ["card-0::0", "card-0::1", "card-1::0", "card-1::1"]
    assert found["card-0::1"] == Device("card-0::1", paths=["/dev/card0"], numa_nodes=[1])
    assert [each.health for each in found.values()] == ["Healthy"] * 2 + ["Unhealthy"] * 2
    assert {device_of(device_id) for device_id in found} == {"card-0", "card-1"}
    assert device_of("card-0") == "card-0"


def test_the_number_may_depend_on_the_device_and_the_type_may_get_a_new_name() -> None:
    """Whole devices under one name, shares under another."""
    tree = replicate(
        DeviceTree({"card": [WELL, BROKEN]}),
        lambda device: 3 if device.is_healthy else 0,
        rename="{}.shared".format,
    )
    assert list(tree) == ["card.shared"]
    assert list(tree.devices("card.shared")) == ["card-0::0", "card-0::1", "card-0::2"]


def test_a_negative_number_is_refused() -> None:
    """With the device's name."""
    with pytest.raises(UsageError, match="card: card-0 cannot have -1 replicas"):
        replicate(DeviceTree({"card": [WELL]}), -1)


@pytest.mark.parametrize(
    ("device_id", "device", "number"),
    [
        ("card::12", "card", 12),
        ("card", "card", 0),
        ("GPU-1::0::3", "GPU-1::0", 3),  # what a vendor shares may be shared again
        ("usb::serial", "usb::serial", 0),
        ("::1", "", 1),
    ],
)
def test_the_device_of_a_replica(device_id: str, device: str, number: int) -> None:
    """Only a number at the end makes a replica."""
    assert (device_of(device_id), number_of(device_id)) == (device, number)


@pytest.mark.parametrize(
    ("count", "held", "numbers"),
    [(2, [], [0, 1]), (4, [1, 3], [0, 1, 2, 3]), (2, [2, 3], [2, 3]), (2, [3], [0, 3]),
     (1, [0, 5, 7], [0, 5, 7])],
)  # fmt: skip
def test_replicas_in_use_stay_when_a_rule_gives_fewer(
    count: int, held: list[int], numbers: list[int]
) -> None:
    """Never more than are wanted, unless more are held."""
    assert numbers_to_serve(count, held) == numbers
