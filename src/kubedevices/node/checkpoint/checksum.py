"""The checksum of a kubelet's checkpoint: FNV-1a over a text that describes its data.

The whole text is never built. A loop over all its characters would take 0.1 s for a thousand pods.
Two facts make it faster:

* One step is h = (h ^ byte) * prime. The exclusive or changes only the lowest byte of h. So the
  result of a piece of text is h * prime**length + c, where c depends only on the piece and on the
  lowest byte of h. A known piece takes one multiplication, for example the decimal form of a byte
  of a response. Entries of the last checkpoints are remembered.
* Most entries of two checkpoints of a node are the same, and in the same order.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import repeat
from typing import NamedTuple

# The offset basis and the prime of 32-bit FNV-1a.
_START = 2166136261
_PRIME = 16777619
_MASK = 0xFFFFFFFF

_ENTRIES_REMEMBERED = 4096
_TEXTS_REMEMBERED = 4096
_LISTS_REMEMBERED = 8

_BEFORE, _AFTER = b"{PodUID:(string)", b" AllocResp:([]uint8)"
# For `translate`: what each byte takes in the text, as decimal digits and a blank.
_LENGTHS = bytes(len(f"{byte} ") for byte in range(256))

V1_NUMA_NODE = 0
"""The NUMA node to which the kubelet assigned devices of a file without NUMA nodes."""

DeviceIds = Mapping[int, Sequence[str] | None] | None


class _Step(NamedTuple):
    """The effect of a piece of text on a hash.

    `power` is prime**length. `value` is the hash of the piece, started with only the lowest byte of
    the hash before.
    """

    power: int
    value: int

    def after(self, start: int) -> int:
        """Return the hash after the piece, from the hash `start` before."""
        return (self.value + self.power * (start & ~0xFF)) & _MASK


def fnv1a(data: bytes, start: int = _START) -> int:
    """Return the 32-bit FNV-1a hash of `data`, continued from `start`."""
    hashed = start
    for byte in data:
        hashed = ((hashed ^ byte) * _PRIME) & _MASK
    return hashed


# ---------------------------------------------------------------- the text


class Entry(NamedTuple):
    """One entry in pieces. `middle` is the same for many pods; the other pieces differ."""

    pod_uid: bytes
    middle: bytes
    device_ids: bytes
    response: bytes | None


def checksum(
    entries: Iterable[Entry] | None, registered: Mapping[str, Sequence[str] | None] | None
) -> int:
    """Return the checksum of checkpoint data."""
    hashed = fnv1a(b"(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)")
    hashed = fnv1a(b"<nil>", hashed) if entries is None else _add_entries(hashed, entries)
    hashed = fnv1a(b" RegisteredDevices:(map[string][]string)", hashed)
    if registered is None:
        return fnv1a(b"<nil>}", hashed)
    separator = b"map["
    for resource in sorted(registered):
        text = _utf8(f"{resource}:{_listed(registered[resource])}")
        hashed = fnv1a(separator, hashed)
        hashed = _list_step(hashed & 0xFF, text).after(hashed)
        separator = b" "
    return fnv1a(b"]}" if registered else b"map[]}", hashed)


def entry_text(
    pod_uid: str,
    container: str,
    resource: str,
    device_ids: DeviceIds,
    response: bytes | None,
    *,
    is_v1: bool = False,
) -> Entry:
    """Return the hashed text of an entry; `is_v1` is the format before Kubernetes 1.20."""
    if is_v1:
        kind, ids = "[]string", _listed(device_ids[V1_NUMA_NODE] if device_ids else None)
    else:
        kind, ids = "checkpoint.DevicesPerNUMA", _per_numa(device_ids)
    middle = (
        f" ContainerName:(string){container} ResourceName:(string){resource} DeviceIDs:({kind})"
    )
    return Entry(_utf8(pod_uid), _utf8(middle), _utf8(ids), response)


def _utf8(text: str) -> bytes:
    return text.encode(errors="replace")


def _per_numa(device_ids: Mapping[int, Sequence[str] | None] | None) -> str:
    if device_ids is None:
        return "<nil>"
    nodes = (f"{node}:{_listed(device_ids[node])}" for node in sorted(device_ids))
    return f"map[{' '.join(nodes)}]"


def _listed(texts: Sequence[str] | None) -> str:
    return "<nil>" if texts is None else f"[{' '.join(texts)}]"


# ---------------------------------------------------------------- hashing it in pieces


def _add_entries(hashed: int, entries: Iterable[Entry]) -> int:
    separator = b"["
    for entry in entries:
        hashed = fnv1a(separator, hashed)
        hashed = _known_entry(hashed & 0xFF, entry).after(hashed)
        separator = b" "
    return fnv1a(b"]" if separator == b" " else b"[]", hashed)


@lru_cache(maxsize=_ENTRIES_REMEMBERED)
def _known_entry(low: int, entry: Entry) -> _Step:
    response = entry.response
    hashed = fnv1a(entry.pod_uid, _known_text(low, _BEFORE).after(low))
    hashed = _known_text(hashed & 0xFF, entry.middle).after(hashed)
    hashed = fnv1a(entry.device_ids, hashed)
    hashed = _known_text(hashed & 0xFF, _AFTER).after(hashed)
    length = sum(map(len, (_BEFORE, entry.pod_uid, entry.middle, entry.device_ids, _AFTER)))
    if not response:
        rest = b"<nil>}" if response is None else b"[]}"
    else:
        hashed = _add_decimals(fnv1a(b"[", hashed), response[:-1])
        length += 1 + sum(response[:-1].translate(_LENGTHS))
        rest = b"%d]}" % response[-1]
    return _Step(pow(_PRIME, length + len(rest), 1 << 32), fnv1a(rest, hashed))


def _add_decimals(hashed: int, data: bytes) -> int:
    """Hash the decimal form of each byte and a blank, two bytes at a time."""
    if len(data) % 2:
        power, constants = _decimals()[data[0]]
        hashed = (hashed * power + constants[hashed & 0xFF]) & _MASK
        data = data[1:]
    steps = map(_decimals().__getitem__, data)
    for (power, constants), (next_power, next_constants) in zip(steps, steps, strict=True):
        hashed = hashed * power + constants[hashed & 0xFF]
        hashed = (hashed * next_power + next_constants[hashed & 0xFF]) & _MASK
    return hashed


@lru_cache(maxsize=_TEXTS_REMEMBERED)
def _known_text(low: int, text: bytes) -> _Step:
    return _Step(pow(_PRIME, len(text), 1 << 32), fnv1a(text, low))


def _list_step(low: int, text: bytes) -> _Step:
    """Hash a device list, which may be long. The step is remembered per lowest byte."""
    steps = _known_list(text)
    if low not in steps:
        steps[low] = _Step(pow(_PRIME, len(text), 1 << 32), fnv1a(text, low))
    return steps[low]


@lru_cache(maxsize=_LISTS_REMEMBERED)
def _known_list(text: bytes) -> dict[int, _Step]:
    return {}


@cache
def _decimals() -> list[tuple[int, list[int]]]:
    """Return for each byte's decimal form and a blank: the power, and c for each lowest byte."""
    table = []
    for byte in range(256):
        text = b"%d " % byte
        power = pow(_PRIME, len(text), 1 << 32)
        constants = [
            (value - power * low) & _MASK
            for low, value in enumerate(map(fnv1a, repeat(text, 256), range(256)))
        ]
        table.append((power, constants))
    return table
