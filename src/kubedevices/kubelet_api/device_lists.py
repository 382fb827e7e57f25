"""Lists of devices from bytes, a few devices at a time: who reads on an event loop lets others in.

The one message that comes with a hundred thousand parts. Entries are read here where they look as
every library writes them, a third of the time, and field by field where they do not.
"""

from collections.abc import Generator, Sequence
from itertools import chain
from typing import NamedTuple

from kubedevices.device import ReportedDevice
from kubedevices.errors import ProtocolError
from kubedevices.kubelet_api.convert import DEVICE, TOPOLOGY
from kubedevices.kubelet_api.protobuf import Field, Message, next_field

DEVICES_AT_ONCE = 128
"""In a block, and between two pauses: a few tenths of a millisecond."""

_BLOCK_BYTES = 2**16
"""A block has no more: around a change it is looked for before every device."""

_FEW_BLOCKS = 16

_DEVICES = 1 << 3 | 2
"""The tag of a list's entries."""

_Shared = tuple[str, tuple[int, ...] | None]

_BEHIND_ID = Message(
    "v1beta1.Device",
    lambda *parts: parts,
    Field(2, "", "text"),
    Field(3, "", "optional", of=TOPOLOGY),
    keeps_unknown=True,
)


class _Block(NamedTuple):
    """A part of a list that was cut between two devices, and the devices in it."""

    data: bytes
    devices: Sequence[ReportedDevice]


def device_list_from_wire(data: bytes) -> tuple[ReportedDevice, ...]:
    """Return the devices of one ListAndWatchResponse, in the order they were sent."""
    reading = DeviceListReader().read(data)
    while True:
        try:
            next(reading)
        except StopIteration as end:
            devices: tuple[ReportedDevice, ...] = end.value
            return devices


class DeviceListReader:
    """Reads the lists of one stream, each of which is mostly the list before.

    A list is kept as blocks. Bytes that are those of a block, where it was or where it has moved
    to, are compared and not read: of 100,000 devices with one change, 128 are read.
    """

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._devices: tuple[ReportedDevice, ...] = ()

    def read(self, data: bytes) -> Generator[None, None, tuple[ReportedDevice, ...]]:
        """Return the devices in the order they were sent, yielding after every block.

        Returns the very tuple of the list before if nothing changed. Raises `ProtocolError`.
        """
        before, blocks = self._blocks, list[_Block]()
        place, at = 0, 0  # the first block of `before` that may come now, and where
        # By the bytes behind the ID: most devices of a list have one of a few healths and nodes.
        known: dict[bytes, _Shared] = {}
        while at < len(data):
            # Two, so that one block which changed or vanished does not put all after it out of
            # step.
            expected = before[place : place + 2]
            if expected and data.startswith(expected[0].data, at):
                block, place = expected[0], place + 1
            elif len(expected) > 1 and data.startswith(expected[1].data, at):
                block, place = expected[1], place + 2
            else:
                try:
                    block, is_full = _read_block(data, at, [each.data for each in expected], known)
                except (ValueError, IndexError) as error:
                    name = "v1beta1.ListAndWatchResponse"
                    raise ProtocolError(
                        f"{len(data)} bytes are no {name} message: {error}"
                    ) from error
                place += is_full
            blocks.append(block)
            at += len(block.data)
            yield
        if blocks != before:
            self._devices = tuple(chain.from_iterable([each.devices for each in blocks]))
            # Devices that come and go leave short blocks behind: too many are made anew next time.
            most = _FEW_BLOCKS + 4 * (len(self._devices) // DEVICES_AT_ONCE + at // _BLOCK_BYTES)
            self._blocks = blocks if len(blocks) <= most else []
        return self._devices


def _read_block(
    data: bytes, start: int, expected: Sequence[bytes], known: dict[bytes, _Shared]
) -> tuple[_Block, bool]:
    """Return a block that ends before `expected` bytes, and whether it is a full block instead."""
    devices: list[ReportedDevice] = []
    at, size, ends = start, len(data), tuple(expected)
    for number in range(DEVICES_AT_ONCE):
        if at >= min(size, start + _BLOCK_BYTES):
            break
        if number and data.startswith(ends, at):
            return _Block(data[start:at], devices), False
        entry = _usual_entry(data, at, size, known)
        if entry is None:
            device, at = _odd_field(data, at)
            if device is not None:
                devices.append(device)
        else:
            device, at = entry
            devices.append(device)
    return _Block(data[start:at], devices), True


def _usual_entry(
    data: bytes, at: int, size: int, known: dict[bytes, _Shared]
) -> tuple[ReportedDevice, int] | None:
    """Return a device whose ID comes first and is short, and where the next one begins."""
    if at + 4 > size or data[at] != 0x0A:
        return None
    length, start = data[at + 1], at + 2
    if length > 127:
        length, start = length & 127 | data[start] << 7, start + 1
    end = start + length
    if end > size or length < 2 or data[start] != 0x0A or data[start - 1] > 127:
        return None
    name_end = start + 2 + data[start + 1]
    # A length of more than one byte: left to the longer way.
    if data[start + 1] > 127 or name_end > end:
        return None
    rest = data[name_end:end]
    shared = known.get(rest)
    if shared is None:
        *values, odd = _BEHIND_ID.value(rest)
        if odd:
            return None  # a second ID, even an empty one, counts; others have to be kept
        shared = known[rest] = (values[0], values[1])
    return ReportedDevice(data[start + 2 : name_end].decode(), *shared), end


def _odd_field(data: bytes, at: int) -> tuple[ReportedDevice | None, int]:
    """Return the device at `at`, None for a field that no list has, and where the next one is."""
    tag, value, at = next_field(data, at)
    if tag != _DEVICES:
        return None, at
    assert isinstance(value, bytes)
    return DEVICE.value(value), at
