"""Several IDs for one device."""

from typing import Any

import pytest

from kubedevices.errors import SharesRefused, StatusCode, UsageError
from kubedevices.rules.replicas import (
    check_shares,
    device_of,
    number_of,
    numbers_to_serve,
    prefer,
    replicate,
)
from kubedevices.values.allocation import AllocateRequest, ContainerAllocateRequest
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
    ("per_container", "distinct", "ids", "refusal"),
    [
        (1, False, "a::0", ""),
        (1, False, "a::0 b::0", "one card, not 2"),
        (2, False, "a::0 a::1 b::0", "only 2 card, not 3"),
        (None, True, "a::0 b::0 c::0", ""),
        (None, True, "b::0 a::0 a::1 a::0", "a::0, a::1 are shares of one device"),
        (None, False, "a::0 a::1 a::2", ""),
    ],
)
def test_which_replicas_a_container_may_have(
    per_container: int | None, distinct: bool, ids: str, refusal: str
) -> None:
    """A rule for each container: one each for two containers is something else."""
    asked = ContainerAllocateRequest((*ids.split(),))
    request = AllocateRequest((ContainerAllocateRequest(("a::0",)), asked))
    rule: Any = {"per_container": per_container, "distinct": distinct}
    if not refusal:
        check_shares(request, "card", **rule)
        return
    with pytest.raises(SharesRefused, match=refusal) as caught:
        check_shares(request, "card", **rule)
    assert caught.value.code is StatusCode.INVALID_ARGUMENT


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


def preferred(available: str, size: int, *, must: str = "", of: str = "", **rule: Any) -> str:
    """Answer every tie with the last of its devices; `of` is like `a4 b2`: replicas per device."""
    total = {each[0]: int(each[1:]) for each in of.split()}
    choosing = prefer(available.split(), must.split(), size, total, **rule)
    try:
        tie = next(choosing)
        while True:
            tie = choosing.send(tie.devices[-tie.size :])
    except StopIteration as end:
        return " ".join(end.value)


@pytest.mark.parametrize(
    ("available", "size", "rule", "chosen"),
    [
        # nothing in use: a tie
        ("a::0 a::1 b::0 b::1 c::0 c::1", 1, {"of": "a2 b2 c2"}, "c::0"),
        ("a::0 a::1 b::0 b::1 c::0 c::1", 2, {"of": "a2 b2 c2"}, "b::0 c::0"),
        ("a::0 a::1 b::0 b::1 c::0 c::1", 3, {"of": "a2 b2 c2"}, "a::0 b::0 c::0"),
        ("a::0 a::1 b::0 b::1 c::0 c::1", 4, {"of": "a2 b2 c2"}, "a::0 b::0 c::0 c::1"),
        # a is used twice, b once: different devices first, then the less used
        ("a::2 a::3 b::1 b::2 b::3", 1, {"of": "a4 b4"}, "b::1"),
        ("a::2 a::3 b::1 b::2 b::3", 2, {"of": "a4 b4"}, "b::1 a::2"),
        ("a::2 a::3 b::1 b::2 b::3", 3, {"of": "a4 b4"}, "b::1 a::2 b::2"),
        # whole and shared devices: what counts is how many have them
        ("a::0 b::1 b::2", 1, {"of": "a1 b8"}, "a::0"),
        # must_include counts
        ("a::0 a::1 b::0 b::1", 2, {"of": "a2 b2", "must": "b::1"}, "b::1 a::0"),
        ("a::0 a::1 b::0 b::1", 2, {"of": "a2 b2", "must": "b::1 b::0"}, "b::0 b::1"),
        # fill the most used
        ("a::0 a::1 a::2 b::1 b::2", 1, {"of": "a3 b3", "spreading": "pack"}, "b::1"),
        ("a::0 a::1 a::2 b::1 b::2", 3, {"of": "a3 b3", "spreading": "pack"}, "b::1 b::2 a::0"),
        ("a::0 a::1 b::0 b::1", 2, {"of": "a2 b2", "spreading": "pack"}, "b::0 b::1"),
        # never two of one device
        ("a::0 a::1 b::0 b::1", 3, {"of": "a2 b2", "distinct": True}, ""),
        ("a::0 a::1 b::1", 2, {"of": "a2 b2", "distinct": True, "spreading": "pack"}, "b::1 a::0"),
        ("a::0 a::1 b::1", 2, {"of": "a2 b2", "distinct": True, "must": "a::1"}, "a::1 b::1"),
        # what is not known to the rule
        ("a::9 z::0", 1, {}, "z::0"),
        ("", 1, {"of": "a1"}, ""),
    ],
)  # fmt: skip
def test_which_replicas_are_preferred(
    available: str, size: int, rule: dict[str, Any], chosen: str
) -> None:
    """By what the kubelet calls available; the plugin is asked where that leaves a choice."""
    assert preferred(available, size, **rule) == chosen
