"""The free devices of one resource, by their NUMA nodes, in natural order.

The inventory keeps them up to date; the allocator chooses from them. The time to take n devices
depends on n only, not on the number of devices. The devices are sorted when devices are taken for
the first time, so a list of 100,000 devices without an allocation is never sorted.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import chain, islice

from kubedevices.values.device import ReportedDevice, natural_key
from kubedevices.values.numa import mask_of

# Keys of a block. An insertion moves 1,024 keys at most; 100,000 devices have 200 blocks.
_BLOCK = 512

_Key = tuple[str, str]


def _key(device_id: str) -> _Key:
    return natural_key(device_id), device_id


def mask_of_device(device: ReportedDevice) -> int:
    """Return the NUMA nodes of `device` as a bit mask, 0 if it has none."""
    return mask_of(device.numa_nodes) if device.numa_nodes else 0


class SortedIds:
    """A set of device IDs in natural order, as a list of short sorted blocks.

    `_last` has a key for each block, which is at least as large as the largest key of the block and
    smaller than all keys of the next block.
    """

    __slots__ = ("_blocks", "_ids", "_last")

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._blocks: list[list[_Key]] | None = None
        self._last: list[_Key] = []

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, device_id: str) -> bool:
        return device_id in self._ids

    def add(self, device_id: str) -> None:
        """Add `device_id`, if it is not in the set."""
        if device_id in self._ids:
            return
        self._ids.add(device_id)
        if self._blocks is None:
            return
        key = _key(device_id)
        index = min(bisect_left(self._last, key), len(self._blocks) - 1)
        if index < 0:
            self._blocks, self._last = [[key]], [key]
            return
        block = self._blocks[index]
        block.insert(bisect_left(block, key), key)
        if len(block) > 2 * _BLOCK:
            self._blocks[index : index + 1] = [block[:_BLOCK], block[_BLOCK:]]
            self._last[index : index + 1] = [block[_BLOCK - 1], block[-1]]
        else:
            self._last[index] = block[-1]

    def discard(self, device_id: str) -> None:
        """Remove `device_id`, if it is in the set."""
        if device_id not in self._ids:
            return
        self._ids.remove(device_id)
        if self._blocks is None:
            return
        key = _key(device_id)
        index = bisect_left(self._last, key)
        block = self._blocks[index]
        del block[bisect_left(block, key)]
        if not block:
            del self._blocks[index], self._last[index]

    def first(self, count: int) -> list[_Key]:
        """Return the first `count` keys, or all keys if there are fewer."""
        return list(islice(chain.from_iterable(self._sorted()), max(count, 0)))

    def __iter__(self) -> Iterator[str]:
        """Iterate in natural order."""
        return (device_id for _, device_id in chain.from_iterable(self._sorted()))

    def _sorted(self) -> list[list[_Key]]:
        if self._blocks is None:
            keys = sorted(map(_key, self._ids))
            self._blocks = [keys[i : i + _BLOCK] for i in range(0, len(keys), _BLOCK)]
            self._last = [block[-1] for block in self._blocks]
        return self._blocks


class FreeDevices:
    """Free devices by the bit mask of their NUMA nodes; the mask 0 means no NUMA node."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[int, SortedIds] = {}

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def add(self, device_id: str, mask: int) -> None:
        """Add a free device."""
        group = self._groups.get(mask)
        if group is None:
            group = self._groups[mask] = SortedIds()
        group.add(device_id)

    def discard(self, device_id: str, mask: int) -> None:
        """Remove a device that is not free any more."""
        group = self._groups.get(mask)
        if group is not None:
            group.discard(device_id)
            if not group:
                del self._groups[mask]

    def contains(self, device_id: str, mask: int) -> bool:
        """Whether `device_id`, a device with this mask, is free."""
        return mask in self._groups and device_id in self._groups[mask]

    def counts(self) -> dict[int, int]:
        """Return the number of free devices per mask."""
        return {mask: len(group) for mask, group in self._groups.items()}

    def count(self, wanted: Callable[[int], bool]) -> int:
        """Return the number of free devices whose mask is `wanted`."""
        return sum(len(group) for mask, group in self._groups.items() if wanted(mask))

    def first(self, count: int, wanted: Callable[[int], bool] = lambda _: True) -> list[str]:
        """Return the first `count` free devices whose mask is `wanted`, in natural order."""
        groups = [group for mask, group in self._groups.items() if wanted(mask)]
        # Most resources have one group: no device has a NUMA node, or all have the same node.
        if len(groups) == 1:
            return [device_id for _, device_id in groups[0].first(count)]
        keys = sorted(chain.from_iterable(group.first(count) for group in groups))
        return [device_id for _, device_id in keys[: max(count, 0)]]

    def all(self, wanted: Callable[[int], bool] = lambda _: True) -> list[str]:
        """Return all free devices whose mask is `wanted`, in natural order."""
        return self.first(len(self), wanted)
