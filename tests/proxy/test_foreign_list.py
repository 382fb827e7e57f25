"""A list of another plugin as devices: what a kubelet takes, we take."""

from dataclasses import replace

from kubedevices.kubelet_api.convert import device_to_wire, reported_to_wire
from kubedevices.kubelet_api.device_lists import device_list_from_wire
from kubedevices.kubelet_api.protobuf import with_unknown
from kubedevices.proxy.foreign_list import ForeignList, Oddities, patch_list, read_list
from kubedevices.rules.replicas import replicas_of
from kubedevices.values.device import Device, ForeignDevice, Health, ReportedDevice
from tests.fake_plugin import healthy, unhealthy

NEW_FIELD = b"\xba\x01\x03new"


def test_of_two_devices_with_the_same_id_the_unhealthy_counts() -> None:
    """Whichever comes first; of two equal words the last one counts, as in a kubelet."""
    read = read_list(
        [
            *healthy("a", "b"),
            *unhealthy("a", "c"),
            *healthy("c"),
            *healthy("b", numa=(1,)),
        ],
        ForeignList(),
    )
    assert {name: str(each.health) for name, each in read.devices.items()} == {
        "a": "Unhealthy",
        "b": "Healthy",
        "c": "Unhealthy",
    }
    assert read.devices["b"].numa_nodes == (1,)
    assert read.oddities == Oddities(doubled=3)


def test_odd_words_nodes_and_ids_are_counted() -> None:
    """Another word is unhealthy, a node below 0 is none, an empty ID is not a device."""
    read = read_list(
        [ReportedDevice("a", "healthy", (1, -1, 0)), ReportedDevice("", "Healthy")], ForeignList()
    )
    assert read.devices == {"a": Device("a", health=Health.UNHEALTHY, numa_nodes=(0, 1))}
    assert read.oddities == Oddities(odd_words=1, negative_nodes=1, impossible_ids=1)


def test_an_equal_device_is_the_same_object() -> None:
    """So that comparing two long lists is quick; also behind a device that vanished."""
    reports = healthy("a", "b", "c")
    before = read_list(reports, ForeignList())
    after = read_list([*unhealthy("a"), *reports[1:]], before)
    assert after.devices["b"] is before.devices["b"]
    assert not after.devices["a"].is_healthy


def test_a_long_list_with_one_change_is_patched() -> None:
    """The same devices in the same order as if it were read anew; other IDs are read anew."""
    reports = healthy(*(f"widget-{number}" for number in range(100)))
    before = read_list(reports, ForeignList())
    changed = [*reports[:7], *unhealthy("widget-7"), *reports[8:]]
    patched = patch_list(changed, before)
    assert patched is not None
    assert [*patched.devices.values()] == [*read_list(changed, ForeignList()).devices.values()]
    assert patch_list([*reports[:7], *healthy("new"), *reports[8:]], before) is None
    assert patch_list(reports[1:], before) is None
    odd = [*reports[:7], ReportedDevice("widget-7", "Sick"), *reports[8:]]
    assert patch_list(odd, before) is None


def test_equal_neighbours_of_a_change_stay_the_same_objects() -> None:
    """A list is read in blocks; but a field of a later API is news, though the values are equal."""
    names = [f"widget-{number}" for number in range(20)]
    before = read_list(healthy(*names), ForeignList())
    again = [
        *healthy(*names[:-2]),
        with_unknown(healthy(names[-2])[0], NEW_FIELD),
        *unhealthy(names[-1]),
    ]
    patched = patch_list(again, before)
    assert patched is not None
    are_same = [patched.devices[name] is before.devices[name] for name in names]
    assert are_same == [True] * 18 + [False] * 2
    assert device_to_wire(patched.devices[names[-2]]) == reported_to_wire(again[-2])


def test_an_identical_list_gives_the_same_devices() -> None:
    """Sent once more by another instance, or empty from the beginning."""
    before = read_list(healthy("a", "b"), ForeignList())
    assert read_list(healthy("a", "b"), before).devices == before.devices
    assert read_list((), ForeignList()).devices == {}


def test_the_health_of_a_removed_duplicate_does_not_count() -> None:
    """The health is that of the devices that are listed now."""
    a = healthy("a")
    before = read_list([*a, *unhealthy("a")], ForeignList())
    assert read_list(a, before).devices["a"].is_healthy


def test_fields_of_a_later_api_stay_with_the_device() -> None:
    """Also when something else about it is changed, and the list is written anew."""
    report = with_unknown(healthy("a")[0], NEW_FIELD)
    device = read_list([report], ForeignList()).devices["a"]
    assert isinstance(device, ForeignDevice)
    assert device_to_wire(device) == reported_to_wire(report)


def test_fields_of_a_later_api_stay_with_the_topology() -> None:
    """Of the topology and of its nodes; also in a replica, and when the health is another."""
    nodes = with_unknown((with_unknown(1, NEW_FIELD), 0), NEW_FIELD)
    report = ReportedDevice("a", "Healthy", nodes)
    sent = reported_to_wire(report)
    assert sent.count(b"new") == 2
    (read,) = device_list_from_wire(sent)
    before = read_list(healthy("a", numa=(1, 0)), ForeignList())
    (device,) = read_list([read], before).devices.values()
    assert device.numa_nodes == (0, 1)
    assert device_to_wire(device, (0, 1)) == sent
    (replica,) = replicas_of(replace(device, health=Health.UNHEALTHY), [3])
    turned = ReportedDevice("a::3", "Unhealthy", nodes)
    assert device_to_wire(replica, (0, 1)) == reported_to_wire(turned)
    assert device_to_wire(before.devices["a"], (0, 1)) != sent
