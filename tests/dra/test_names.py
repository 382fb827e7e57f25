"""Labels for device IDs: valid, different, and always the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubedevices.dra.names import LABEL, check_driver_name, device_label, device_labels
from kubedevices.errors import InvalidResourceName
from kubedevices.values.device import Device
from kubedevices.values.device_tree import DeviceTree


def tree_of(**types: list[str]) -> DeviceTree:
    return DeviceTree({name: map(Device, ids) for name, ids in types.items()})


@pytest.mark.parametrize(
    ("device_id", "label"),
    [
        ("gpu-0", "gpu-0"),
        ("x" * 63, "x" * 63),
        ("0000:3b:00.0", "0000-3b-00-0-b4cf818e"),
        ("GPU-1", "gpu-1-9207b013"),
        ("-a-", "a-a75a468f"),
        ("x" * 200, "x" * 54 + "-aa20c23e"),
        ("::", "71546855"),
    ],
)
def test_an_id_becomes_a_label(device_id: str, label: str) -> None:
    """A DNS label stays unchanged; other IDs are cleaned and get a part of their hash."""
    assert device_label(device_id) == label


@given(st.text(min_size=1, max_size=300))
def test_every_id_has_a_valid_label(device_id: str) -> None:
    """For every ID of a scanner, the API server accepts the name."""
    assert LABEL.fullmatch(device_label(device_id))


def test_labels_do_not_depend_on_the_order_or_on_other_devices() -> None:
    """IDs that are equal after cleaning stay different, in any order, together or alone."""
    ids = ["a:b", "a.b", "A-B", "a-b"]
    labels = device_labels(tree_of(gpu=ids))
    assert len(set(labels.values())) == 4
    assert device_labels(tree_of(gpu=ids[::-1])) == labels
    for each in ids:
        assert device_labels(tree_of(gpu=[each])) == {("gpu", each): labels["gpu", each]}


def test_the_same_id_in_two_types_is_two_devices() -> None:
    """A pool has one name space for all types."""
    labels = device_labels(tree_of(gpu=["0", "1"], nic=["0"]))
    assert len(set(labels.values())) == 3
    assert labels["gpu", "1"] == "1"
    assert device_labels(tree_of(nic=["0"], gpu=["1", "0"])) == labels


@pytest.mark.parametrize("domain", ["x" * 64, "Example.com", "kubernetes.io", "a_b.com"])
def test_a_domain_that_is_no_driver_name_is_refused(domain: str) -> None:
    """The API server would refuse the slices later, with another text."""
    with pytest.raises(InvalidResourceName):
        check_driver_name(domain)


def test_a_domain_of_63_characters_is_a_driver_name() -> None:
    """This is the limit for drivers; the limit for domains is higher."""
    assert check_driver_name("x" * 59 + ".com") == "x" * 59 + ".com"
