"""Several IDs for one device (T-26)."""

import pytest

from kubedevices.allocation import AllocateRequest, ContainerAllocateRequest
from kubedevices.device import Device, Health
from kubedevices.device_tree import DeviceTree
from kubedevices.errors import RpcError, StatusCode, UsageError
from kubedevices.plugin.replicas import device_of, refuse_several, replicate

WELL = Device("card-0", paths=["/dev/card0"], numa_nodes=[1])
BROKEN = Device("card-1", health=Health.UNHEALTHY)


def test_a_replica_is_its_device_but_for_the_id() -> None:
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
    with pytest.raises(UsageError, match="card: -1 replicas of card-0 cannot be"):
        replicate(DeviceTree({"card": [WELL]}), -1)


def test_several_for_one_container_can_be_refused() -> None:
    """One each for two containers is something else."""
    one, two = (ContainerAllocateRequest(ids) for ids in (("a",), ("a", "b")))
    refuse_several(AllocateRequest((one, one)), "card")
    with pytest.raises(RpcError, match="one card, not 2") as caught:
        refuse_several(AllocateRequest((one, two)), "card")
    assert caught.value.code is StatusCode.INVALID_ARGUMENT
