"""Lists of devices from bytes, a few devices at a time: who reads on an event loop lets others in.

The one message that comes with a hundred thousand parts. Entries are read here where they look as
every library writes them, a third of the time, and field by field where they do not.
"""

from collections.abc import Generator

from kubedevices.device import ReportedDevice
from kubedevices.errors import ProtocolError
from kubedevices.wire.protobuf import Fields, next_field

DEVICES_AT_ONCE = 500
"""Between two pauses: less than a millisecond."""

_DEVICES = 1 << 3 | 2
"""The tag of a list's entries."""

_Shared = tuple[str, tuple[int, ...] | None]


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
        except (ValueError, IndexError) as error:
            name = "v1beta1.ListAndWatchResponse"
            raise ProtocolError(f"{len(data)} bytes are no {name} message: {error}") from error
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
        message = Fields(rest)
        if 1 in message:
            return None  # a second ID, even an empty one, counts
        shared = known[rest] = _shared_values(message)
    return ReportedDevice(data[start + 2 : name_end].decode(), *shared), end


def _shared_values(message: Fields) -> _Shared:
    return message.text(2), topology_value(message, 3)


def topology_value(message: Fields, number: int) -> tuple[int, ...] | None:
    """Return the NUMA nodes of a TopologyInfo, None without one."""
    if number not in message:
        return None
    return tuple([node.int64(1) for node in message.message(number).messages(1)])


def _odd_field(data: bytes, at: int) -> tuple[ReportedDevice | None, int]:
    """Return the device at `at`, None for a field that no list has, and where the next one is."""
    tag, value, at = next_field(data, at)
    if tag != _DEVICES:
        return None, at
    assert isinstance(value, bytes)
    message = Fields(value)
    return ReportedDevice(message.text(1), *_shared_values(message)), at
