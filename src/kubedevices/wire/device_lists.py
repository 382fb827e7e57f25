"""Lists of devices from bytes, a few devices at a time: who reads on an event loop lets others in.

The one message that comes with a hundred thousand parts. Entries are read by hand where they look
as every library writes them, a third of the time, and one by one by protobuf where they do not.
Tests hold both to what protobuf says of the whole list.
"""

from collections.abc import Generator
from typing import Any

from kubedevices.device import ReportedDevice
from kubedevices.errors import ProtocolError
from kubedevices.wire.messages import parse, serialize

DEVICES_AT_ONCE = 500
"""Between two pauses: less than a millisecond."""

_WHOLE_LIMIT = 2**20
"""Bytes of a list that protobuf may take as a whole, at one go, to say what is wrong with it."""

_Shared = tuple[str, tuple[int, ...] | None]


class _Odd(Exception):
    """Something that this reader does not know."""


def device_list_from_wire(data: bytes) -> tuple[ReportedDevice, ...]:
    """Return the devices of one ListAndWatchResponse, in the order they were sent."""
    reading = read_device_list(data)
    while True:
        try:
            next(reading)
        except StopIteration as end:
            devices: tuple[ReportedDevice, ...] = end.value
            return devices


def read_device_list(data: bytes) -> Generator[None, None, tuple[ReportedDevice, ...]]:
    """Do the same, and yield after every `DEVICES_AT_ONCE`; raises `ProtocolError`."""
    devices: list[ReportedDevice] = []
    known: dict[bytes, _Shared] = {}
    at = 0
    while at < len(data):
        try:
            at = _read_some(data, at, devices, known)
        except (_Odd, IndexError):
            return _read_whole(data)
        yield
    return tuple(devices)


def _read_some(
    data: bytes, at: int, devices: list[ReportedDevice], known: dict[bytes, _Shared]
) -> int:
    """Add some devices; return where the next one begins."""
    size = len(data)
    for _ in range(DEVICES_AT_ONCE):
        if at >= size:
            break
        entry = _usual_entry(data, at, size, known)
        if entry is None:
            device, at = _odd_field(data, at)
            if device is not None:
                devices.append(device)
        else:
            device, at = entry
            devices.append(device)
    return at


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
    if data[start + 1] > 127 or name_end > end:
        return None
    rest = data[name_end:end]
    shared = known.get(rest)
    if shared is None:
        message = parse("v1beta1.Device", rest)
        if message.ID or serialize(message) != rest:
            return None  # a second ID, even an empty one, would count
        shared = known[rest] = _shared_values(message)
    try:
        return ReportedDevice(data[start + 2 : name_end].decode(), *shared), end
    except UnicodeDecodeError:
        return None


def _shared_values(message: Any) -> _Shared:
    if not message.HasField("topology"):
        return message.health, None
    return message.health, tuple([node.ID for node in message.topology.nodes])


def _odd_field(data: bytes, at: int) -> tuple[ReportedDevice | None, int]:
    """Return the device at `at`, None for a field that no list has, and where the next one is."""
    tag, at = _varint(data, at)
    number, kind = tag >> 3, tag & 7
    if kind == 0:
        at = _varint(data, at)[1]
    elif kind == 1:
        at += 8
    elif kind == 5:
        at += 4
    elif kind == 2:
        size, start = _varint(data, at)
        at = start + size
    else:
        raise _Odd
    if at > len(data) or not 0 < number < 2**29:
        raise _Odd
    if number != 1 or kind != 2:
        return None, at
    message = parse("v1beta1.Device", data[start:at])
    return ReportedDevice(message.ID, *_shared_values(message)), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise _Odd


def _read_whole(data: bytes) -> tuple[ReportedDevice, ...]:
    """Let protobuf find the words for what is wrong, or read what only it can."""
    if len(data) > _WHOLE_LIMIT:
        raise ProtocolError(f"{len(data)} bytes are no v1beta1.ListAndWatchResponse message")
    message = parse("v1beta1.ListAndWatchResponse", data)
    return tuple([ReportedDevice(each.ID, *_shared_values(each)) for each in message.devices])
