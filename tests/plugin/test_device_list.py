"""Devices as ListAndWatch sends them."""

import logging
import sys
from collections import Counter
from collections.abc import Iterable

import pytest

from kubedevices.errors import DeviceListTooLarge
from kubedevices.kubelet_api.convert import device_to_wire
from kubedevices.kubelet_api.device_lists import device_list_from_wire
from kubedevices.plugin import device_list
from kubedevices.plugin.device_list import DeviceListBuilder
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.numa_lookup import NumaLookup
from kubedevices.values.device import Device, Health
from kubedevices.values.device_tree import DeviceTree

RESOURCE = "example.com/widget"


def by_id(devices: Iterable[Device]) -> dict[str, Device]:
    return {device.id: device for device in devices}


def test_a_list_says_id_health_and_numa_nodes_in_natural_order() -> None:
    """What a node decodes is every device, `card2` before `card10`, topology where there is any."""
    made = DeviceListBuilder(RESOURCE).build(
        by_id(
            [
                Device("card10", numa_nodes=[1, 0]),
                Device("card2", health=Health.UNHEALTHY, numa_nodes=()),
                Device("card1"),
            ]
        )
    )
    assert device_list_from_wire(made.encoded) == (
        ("card1", "Healthy", None),
        ("card2", "Unhealthy", None),
        ("card10", "Healthy", (0, 1)),
    )
    assert list(made.devices) == ["card1", "card2", "card10"]


def test_no_devices_are_an_empty_list() -> None:
    """A type without devices is a list of no bytes."""
    made = DeviceListBuilder(RESOURCE).build({})
    assert made.encoded == b""
    assert not made.devices


def test_only_what_changed_is_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand devices, the one whose health changed and the new one are encoded again."""
    encoded = []

    def counting(device: Device, numa_nodes: tuple[int, ...]) -> bytes:
        encoded.append(device.id)
        return device_to_wire(device, numa_nodes)

    monkeypatch.setattr(device_list, "device_to_wire", counting)
    builder = DeviceListBuilder(RESOURCE)
    devices = {f"w{n}": Device(f"w{n}", numa_nodes=(n % 2,)) for n in range(1000)}
    first = builder.build(devices)
    assert len(encoded) == 1000
    encoded.clear()
    devices = dict(devices)  # of equal devices the notifier makes the same objects
    assert builder.build(devices).encoded == first.encoded
    assert encoded == []
    devices = dict(devices)
    devices["w7"] = Device("w7", health=Health.UNHEALTHY, numa_nodes=(1,))
    devices["w8"] = Device("w8", numa_nodes=(1,))
    devices["w1000"] = Device("w1000")
    del devices["w9"]
    made = builder.build(devices)
    assert sorted(encoded) == ["w1000", "w7", "w8"]
    fresh = DeviceListBuilder(RESOURCE).build(devices)
    assert made == fresh


def test_an_update_of_one_device_calls_nothing_for_the_others() -> None:
    """From the scanner's tree to the list: a few calls, though there are ten thousand devices."""
    devices = [Device(f"w{n}", paths=[f"/dev/w{n}"], numa_nodes=()) for n in range(10_000)]
    notifier, lookup, builder = Notifier(), NumaLookup(), DeviceListBuilder(RESOURCE)
    calls: Counter[str] = Counter()

    def update() -> bytes:
        notifier.notify(DeviceTree({"widget": devices}))
        tree, _ = notifier.take()
        return builder.build(lookup.complete_type("widget", tree.devices("widget"))).encoded

    first = update()
    devices[5] = Device("w5", health=Health.UNHEALTHY, paths=["/dev/w5"], numa_nodes=())
    sys.setprofile(lambda frame, event, _: calls.update([f"{event} {frame.f_code.co_name}"]))
    try:
        second = update()
    finally:
        sys.setprofile(None)
    assert len(second) == len(first) + len("Un")
    assert calls.total() < 1000, calls.most_common(5)


def test_a_list_beyond_the_limit_is_refused_with_its_numbers() -> None:
    """A list that a kubelet would drop is an error that names the number of devices."""
    builder = DeviceListBuilder(RESOURCE, max_size=1000)
    with pytest.raises(
        DeviceListTooLarge, match=r"example.com/widget: a list of 70 devices has \d+ bytes"
    ) as caught:
        builder.build(by_id(Device(f"w{n}") for n in range(70)))
    assert caught.value.limit == 1000
    assert caught.value.size > 1000


def test_if_devices_no_longer_fit_the_listed_devices_stay() -> None:
    """Until all fit again: known ones change and go, new ones are left out and counted."""
    builder = DeviceListBuilder(RESOURCE, max_size=1000)
    builder.build(by_id(Device(f"w{n}") for n in range(3)))
    many = [Device(f"w{n}") for n in range(1, 100)]
    many[0] = Device("w1", health=Health.UNHEALTHY)
    made = builder.build(by_id(many))
    assert device_list_from_wire(made.encoded) == (
        ("w1", "Unhealthy", None),
        ("w2", "Healthy", None),
    )
    assert made.left_out == 97
    assert made.too_large is not None
    assert (made.too_large.devices, made.too_large.limit) == (99, 1000)
    assert len(builder.build(by_id([*many, Device("w0")])).devices) == 2, "it had gone"
    again = builder.build(by_id(many[:40]))
    assert (len(again.devices), again.left_out, again.too_large) == (40, 0, None)


def test_a_list_may_become_too_large_when_devices_turn_unhealthy() -> None:
    """The word is longer. What is sent fits, and loses none that can be given away."""
    builder = DeviceListBuilder(RESOURCE, max_size=1000)
    full = builder.build(by_id(Device(f"w{n:03}") for n in range(58)))
    assert 980 < len(full.encoded) <= 1000
    healths = [Health.UNHEALTHY if n % 2 else Health.HEALTHY for n in range(58)]
    made = builder.build(
        by_id(Device(f"w{n:03}", health=health) for n, health in enumerate(healths))
    )
    assert 980 < len(made.encoded) <= 1000
    assert sum(device.is_healthy for device in made.devices.values()) == 29
    assert made.left_out == 58 - len(made.devices) > 0


def test_four_mebibytes_are_the_limit() -> None:
    """By default exactly a kubelet's receive limit is sent, and not one byte more."""
    limit = 4 * 1024 * 1024
    around_the_id = len(device_to_wire(Device("x" * 4_000_000))) - 4_000_000
    most = Device("x" * (limit - around_the_id))
    assert len(DeviceListBuilder(RESOURCE).build(by_id([most])).encoded) == limit
    with pytest.raises(DeviceListTooLarge, match="a list of 1 device has 4194305 bytes"):
        DeviceListBuilder(RESOURCE).build(by_id([Device(most.id + "x")]))


def test_a_list_near_the_limit_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """From three quarters of the limit on a warning is logged, once until it shrinks again."""
    builder = DeviceListBuilder(RESOURCE, max_size=1000)
    for count, warnings in ((30, 0), (48, 1), (49, 1), (30, 1), (48, 2)):
        builder.build(by_id(Device(f"w{n}") for n in range(count)))
        found = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert len(found) == warnings, count
    assert "the list of 48 devices has" in caplog.text
