"""Lists of one stream, of which each is mostly the list before; `test_convert` has single lists."""

from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubedevices.errors import ProtocolError
from kubedevices.kubelet_api import device_lists
from kubedevices.kubelet_api.convert import device_list_to_wire, reported_to_wire
from kubedevices.kubelet_api.device_lists import (
    DEVICES_AT_ONCE,
    DeviceListReader,
    device_list_from_wire,
)
from kubedevices.node.loop_slices import at_once
from kubedevices.values.device import ReportedDevice

Devices = tuple[ReportedDevice, ...]

entries = st.sampled_from(
    [
        *(reported_to_wire(ReportedDevice(each, "Healthy", (0,))) for each in "abcdef"),
        *(reported_to_wire(ReportedDevice(each, "Unhealthy")) for each in "abc"),
        b"\x12\x01x",  # a field that no list has
        b"\x0a\x00",  # a device without anything
    ]
)
lists = st.lists(entries, max_size=12)


def healthy(numbers: Iterable[int]) -> list[ReportedDevice]:
    return [ReportedDevice(f"widget-{number}", "Healthy", (number % 2,)) for number in numbers]


def wire(devices: Sequence[ReportedDevice]) -> bytes:
    return device_list_to_wire(map(reported_to_wire, devices))


def new_objects(before: Devices, after: Devices) -> int:
    known = {*map(id, before)}
    return sum(id(device) not in known for device in after)


@given(st.lists(lists, max_size=8), st.integers(1, 4), st.integers(1, 80))
def test_a_list_does_not_depend_on_earlier_lists(
    sent: list[list[bytes]], at_most: int, block_bytes: int
) -> None:
    """Each list gives the same devices as when it is read alone."""
    reader = DeviceListReader()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_lists, "DEVICES_AT_ONCE", at_most)
        patch.setattr(device_lists, "_BLOCK_BYTES", block_bytes)
        for each in sent:
            data = b"".join(each)
            assert at_once(reader.read(data)) == device_list_from_wire(data)


COUNT = 20 * DEVICES_AT_ONCE


@pytest.mark.parametrize(
    ("change", "most"),
    [
        pytest.param(lambda devices: None, 0, id="nothing"),
        pytest.param(
            lambda devices: devices.__setitem__(2000, devices[2000]._replace(health="Bad")),
            DEVICES_AT_ONCE,
            id="one changes",
        ),
        pytest.param(
            lambda devices: devices.__setitem__(-1, devices[-1]._replace(numa_nodes=None)),
            DEVICES_AT_ONCE,
            id="the last changes",
        ),
        pytest.param(lambda devices: devices.pop(2000), DEVICES_AT_ONCE, id="one goes"),
        pytest.param(lambda devices: devices.pop(0), DEVICES_AT_ONCE, id="the first goes"),
        pytest.param(
            lambda devices: devices.insert(0, ReportedDevice("new", "Healthy")), 2, id="one comes"
        ),
        pytest.param(
            lambda devices: devices.extend(healthy(range(COUNT, COUNT + 5))), 5, id="some come"
        ),
    ],
)
def test_only_devices_near_a_change_are_decoded_again(
    change: Callable[[list[ReportedDevice]], None], most: int
) -> None:
    """For all other devices the objects of the list before are reused."""
    devices = healthy(range(COUNT))
    reader = DeviceListReader()
    before = at_once(reader.read(wire(devices)))
    change(devices)
    after = at_once(reader.read(wire(devices)))
    assert after == tuple(devices)
    assert new_objects(before, after) <= most
    assert (after is before) == (most == 0)


def test_the_number_of_short_blocks_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With too many short blocks, each list would be compared device by device."""
    monkeypatch.setattr(device_lists, "DEVICES_AT_ONCE", 10)
    entries = [*map(reported_to_wire, healthy(range(500)))]
    reader = DeviceListReader()
    blocks = []
    for number in range(400):
        entries.insert(0, reported_to_wire(ReportedDevice("new", str(number))))
        del entries[-1]
        blocks.append(sum(1 for _ in reader.read(b"".join(entries))))
    assert blocks[0] == 50
    assert 100 < max(blocks) < 250


def test_a_list_that_cannot_be_read_changes_nothing() -> None:
    """The next list is compared with the last valid list."""
    reader = DeviceListReader()
    good = wire(healthy(range(300)))
    before = at_once(reader.read(good))
    with pytest.raises(ProtocolError, match="are not a v1beta1"):
        at_once(reader.read(good[:-1]))
    assert at_once(reader.read(good)) is before


def test_a_device_with_very_many_fields_is_refused() -> None:
    """One device is decoded in one step: a million fields would stop the event loop."""
    fields = b"\x7a\x00" * (device_lists.MAX_DEVICE // 2 + 1)
    length = bytes((len(fields) & 127 | 128, len(fields) >> 7 & 127 | 128, len(fields) >> 14))
    with pytest.raises(ProtocolError, match="a device has 16386 bytes, more than 16384"):
        device_list_from_wire(b"\x0a" + length + fields)


def test_long_devices_make_short_blocks() -> None:
    """The event loop gets its turn after each block, also while each device has many fields."""
    entry = b"\x0a\xa0\x1f" + b"\x7a\x00" * 2000
    steps = sum(1 for _ in DeviceListReader().read(entry * 20))
    assert steps >= 8


def test_each_block_is_announced_before_it_is_kept() -> None:
    """Who counts the devices may stop the reading at any block."""
    announced: list[tuple[int, int]] = []
    data = wire(healthy(range(COUNT)))
    reader = DeviceListReader(lambda size, devices: announced.append((size, devices)))
    at_once(reader.read(data))
    assert sum(size for size, _ in announced) == len(data)
    assert sum(devices for _, devices in announced) == COUNT
    announced.clear()
    at_once(reader.read(data))
    assert announced == []
