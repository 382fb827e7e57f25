"""Decodes ListAndWatch messages, a few devices at a time, so that the event loop is never blocked.

A list may have a hundred thousand devices. An entry in the usual form, which every library writes,
is decoded here in a third of the time; any other entry is decoded field by field by `protobuf`.
"""

from collections.abc import Callable, Generator, Sequence
from itertools import chain
from typing import NamedTuple

from kubedevices.errors import ProtocolError
from kubedevices.kubelet_api.convert import DEVICE, TOPOLOGY
from kubedevices.kubelet_api.protobuf import Field, Message, next_field
from kubedevices.values.device import ReportedDevice

DEVICES_AT_ONCE = 128
"""Devices in a block, and between two pauses: a few tenths of a millisecond."""

_BLOCK_BYTES = 2**16
"""Most bytes of a block. After a change we compare the next block's bytes before each device."""

_LONG_DEVICE, _LONG_SHARE = 256, 7
"""A longer device may have many fields. So each of its bytes counts as eight of the block."""

_FEW_BLOCKS = 16
"""So many short blocks do not matter, even in a short list."""

_DEVICES_TAG = 1 << 3 | 2
"""The tag of a list's entries: field 1, length-delimited."""

MAX_DEVICE = 2**14
"""Bytes of one device. It is decoded in one step, and thousands of its fields take a while."""

_HealthAndNodes = tuple[str, tuple[int, ...] | None]

_BEHIND_ID = Message(
    "v1beta1.Device",
    lambda *parts: parts,
    Field(2, "", "text"),
    Field(3, "", "optional", of=TOPOLOGY),
    keeps_unknown=True,
)


class _Block(NamedTuple):
    """A part of a list, split between two devices, and its decoded devices."""

    data: bytes
    devices: Sequence[ReportedDevice]


def device_list_from_wire(data: bytes) -> tuple[ReportedDevice, ...]:
    """Return the devices of one ListAndWatchResponse, in the order of the message."""
    reading = DeviceListReader().read(data)
    while True:
        try:
            next(reading)
        except StopIteration as end:
            devices: tuple[ReportedDevice, ...] = end.value
            return devices


class DeviceListReader:
    """Reads the lists of one stream; most lists differ little from the list before.

    The reader stores the last list as blocks. If the bytes of a block appear again, at the same or
    at another offset, it does not decode them: of 100,000 devices with one change it decodes 128.
    """

    def __init__(self, decoded: Callable[[int, int], None] = lambda *_: None) -> None:
        """Before a block is kept, `decoded(bytes, devices)` is called; it may raise."""
        self._decoded = decoded
        self._blocks: list[_Block] = []
        self._devices: tuple[ReportedDevice, ...] = ()

    def read(self, data: bytes) -> Generator[None, None, tuple[ReportedDevice, ...]]:
        """Return the devices in the order of the message; yield after each block.

        Returns the same tuple object as for the list before if nothing changed. Raises
        `ProtocolError`.
        """
        before, blocks = self._blocks, list[_Block]()
        next_block, at = 0, 0  # index in `before`, offset in `data`
        # Decoded health and nodes by their bytes, which follow the ID: a list has few such pairs.
        known: dict[bytes, _HealthAndNodes] = {}
        while at < len(data):
            # Compare two blocks: after one changed or removed block we find the next one again.
            expected = before[next_block : next_block + 2]
            if expected and data.startswith(expected[0].data, at):
                block, next_block = expected[0], next_block + 1
            elif len(expected) > 1 and data.startswith(expected[1].data, at):
                block, next_block = expected[1], next_block + 2
            else:
                try:
                    block, is_full = _read_block(data, at, [each.data for each in expected], known)
                except (ValueError, IndexError) as error:
                    name = "v1beta1.ListAndWatchResponse"
                    text = f"{len(data)} bytes are not a {name} message: {error}"
                    raise ProtocolError(text) from error
                next_block += is_full
                self._decoded(len(block.data), len(block.devices))
            blocks.append(block)
            at += len(block.data)
            yield
        if blocks != before:
            self._devices = tuple(chain.from_iterable([each.devices for each in blocks]))
            # Added and removed devices leave short blocks. With too many of these, forget all
            # blocks: the next list is then decoded again in full blocks.
            most = _FEW_BLOCKS + 4 * (len(self._devices) // DEVICES_AT_ONCE + at // _BLOCK_BYTES)
            self._blocks = blocks if len(blocks) <= most else []
        return self._devices


def _read_block(
    data: bytes, start: int, expected: Sequence[bytes], known: dict[bytes, _HealthAndNodes]
) -> tuple[_Block, bool]:
    """Return the block at `start`, and whether it is a full block.

    Otherwise the block ends earlier, where the bytes of an `expected` block begin.
    """
    devices: list[ReportedDevice] = []
    at, size, ends = start, len(data), tuple(expected)
    full_at = min(size, start + _BLOCK_BYTES)
    for number in range(DEVICES_AT_ONCE):
        if at >= full_at:
            break
        if number and data.startswith(ends, at):
            return _Block(data[start:at], devices), False
        began = at
        entry = _usual_entry(data, at, size, known)
        if entry is None:
            device, at = _unusual_entry(data, at)
            if device is not None:
                devices.append(device)
        else:
            device, at = entry
            devices.append(device)
        if at - began > _LONG_DEVICE:
            full_at -= _LONG_SHARE * (at - began)
    return _Block(data[start:at], devices), True


def _usual_entry(
    data: bytes, at: int, size: int, known: dict[bytes, _HealthAndNodes]
) -> tuple[ReportedDevice, int] | None:
    """Return a device and the offset of the next entry; None if the entry has an unusual form.

    In the usual form the ID is the first field and shorter than 128 bytes.
    """
    if at + 4 > size or data[at] != 0x0A:
        return None
    length, start = data[at + 1], at + 2
    if length > 127:
        length, start = length & 127 | data[start] << 7, start + 1
    end = start + length
    if end > size or length < 2 or data[start] != 0x0A or data[start - 1] > 127:
        return None
    name_end = start + 2 + data[start + 1]
    # `_unusual_entry` reads IDs whose length has more than one byte.
    if data[start + 1] > 127 or name_end > end:
        return None
    rest = data[name_end:end]
    shared = known.get(rest)
    if shared is None:
        *values, unknown = _BEHIND_ID.value(rest)
        if unknown:
            return None  # a second ID would replace the first; other fields must be stored
        shared = known[rest] = (values[0], values[1])
    return ReportedDevice(data[start + 2 : name_end].decode(), *shared), end


def _unusual_entry(data: bytes, at: int) -> tuple[ReportedDevice | None, int]:
    """Return the device at `at`, None for a field unknown to the API, and the next offset."""
    tag, value, at = next_field(data, at)
    if tag != _DEVICES_TAG:
        return None, at
    assert isinstance(value, bytes)
    if len(value) > MAX_DEVICE:
        raise ValueError(f"a device has {len(value)} bytes, more than {MAX_DEVICE}")
    return DEVICE.value(value), at
