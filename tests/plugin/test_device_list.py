"""Devices as ListAndWatch sends them."""

import logging

import pytest

from kubedevices.device import Device, Health
from kubedevices.errors import DeviceListTooLarge
from kubedevices.plugin import device_list
from kubedevices.plugin.device_list import DeviceListBuilder
from kubedevices.wire.convert import device_list_from_wire, device_to_wire

RESOURCE = "example.com/widget"


def test_a_list_says_id_health_and_numa_nodes_in_natural_order() -> None:
    """What a node decodes is every device, `card2` before `card10`, topology where there is any."""
    made = DeviceListBuilder(RESOURCE).build(
        [
            Device("card10", numa_nodes=[1, 0]),
            Device("card2", health=Health.UNHEALTHY, numa_nodes=()),
            Device("card1"),
        ]
    )
    assert device_list_from_wire(made.encoded) == (
        ("card1", "Healthy", None),
        ("card2", "Unhealthy", None),
        ("card10", "Healthy", (0, 1)),
    )
    assert list(made.devices) == ["card1", "card2", "card10"]


def test_no_devices_are_an_empty_list() -> None:
    """A type without devices is a list of no bytes."""
    made = DeviceListBuilder(RESOURCE).build([])
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
    first = builder.build(devices.values())
    assert len(encoded) == 1000
    encoded.clear()
    # Equal devices that are other objects, as a scanner makes them each time.
    devices = {f"w{n}": Device(f"w{n}", numa_nodes=(n % 2,)) for n in range(1000)}
    assert builder.build(devices.values()).encoded == first.encoded
    assert encoded == []
    devices["w7"] = Device("w7", health=Health.UNHEALTHY, numa_nodes=(1,))
    devices["w8"] = Device("w8", numa_nodes=(1,))
    devices["w1000"] = Device("w1000")
    del devices["w9"]
    made = builder.build(devices.values())
    assert sorted(encoded) == ["w1000", "w7", "w8"]
    fresh = DeviceListBuilder(RESOURCE).build(devices.values())
    assert made == fresh


def test_a_list_beyond_the_limit_is_refused_with_its_numbers() -> None:
    """A list that a kubelet would drop is an error that names the number of devices."""
    builder = DeviceListBuilder(RESOURCE, max_size=1000)
    builder.build(Device(f"w{n}") for n in range(50))
    with pytest.raises(
        DeviceListTooLarge, match=r"example.com/widget: a list of 70 devices has \d+ bytes"
    ) as caught:
        builder.build(Device(f"w{n}") for n in range(70))
    assert caught.value.limit == 1000
    assert caught.value.size > 1000


def test_four_mebibytes_are_the_limit() -> None:
    """By default exactly a kubelet's receive limit is sent, and not one byte more."""
    limit = 4 * 1024 * 1024
    around_the_id = len(device_to_wire(Device("x" * 4_000_000))) - 4_000_000
    most = Device("x" * (limit - around_the_id))
    assert len(DeviceListBuilder(RESOURCE).build([most]).encoded) == limit
    with pytest.raises(DeviceListTooLarge, match="a list of 1 device has 4194305 bytes"):
        DeviceListBuilder(RESOURCE).build([Device(most.id + "x")])


def test_a_list_near_the_limit_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """From three quarters of the limit on a warning is logged, once until it shrinks again."""
    builder = DeviceListBuilder(RESOURCE, max_size=1000)
    for count, warnings in ((30, 0), (48, 1), (49, 1), (30, 1), (48, 2)):
        builder.build(Device(f"w{n}") for n in range(count))
        found = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert len(found) == warnings, count
    assert "the list of 48 devices has" in caplog.text
