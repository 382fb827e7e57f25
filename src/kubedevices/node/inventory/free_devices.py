"""The free devices of one resource, per set of NUMA nodes, each set in natural order.

For the inventory, which keeps them up to date, and the allocator, which looks. Taking n of any
number of devices costs what n costs. Order is only made when somebody first asks for devices: a
list of 100,000 that nobody allocates from is never sorted.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

from kubedevices.device import ReportedDevice, natural_key
from kubedevices.numa import mask_of

# Keys of a block. An insertion moves a thousand keys at most, and 100,000 devices are 200 blocks.
_BLOCK = 512

_Key = tuple[str, str]


def _key(device_id: str) -> _Key:
    return natural_key(device_id), device_id


def mask_of_device(device: ReportedDevice) -> int:
    """Return the NUMA nodes of `device` as bits; 0 when it has none."""
    return mask_of(device.numa_nodes) if device.numa_nodes else 0


class SortedIds:
    """A set of device IDs in natural order, as a list of short sorted blocks.

    `_last` has a key for each block: no key of the block is larger, and all keys after it are.
    """

    __slots__ = ("_blocks", "_ids", "_last")

    def __init__(self, device_ids: Iterable[str] = ()) -> None:
        self._ids = set(device_ids)
        self._blocks: list[list[_Key]] | None = None
        self._last: list[_Key] = []

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, device_id: str) -> bool:
        return device_id in self._ids

    def add(self, device_id: str) -> None:
        """Put in `device_id`; nothing happens when it is there."""
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
        """Take out `device_id`; nothing happens when it is not there."""
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
        """Return the first `count` keys, or all when there are fewer."""
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
    """Free devices by the set of NUMA nodes they are on, given as a bit mask; 0 means no node."""

    __slots__ = ("_groups",)

    def __init__(self, groups: dict[int, SortedIds] | None = None) -> None:
        self._groups = groups or {}

    @classmethod
    def of(cls, devices: Iterable[tuple[str, int]]) -> "FreeDevices":
        """Make it of device IDs with their masks."""
        ids: dict[int, list[str]] = {}
        for device_id, mask in devices:
            ids.setdefault(mask, []).append(device_id)
        return cls({mask: SortedIds(members) for mask, members in ids.items()})

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def add(self, device_id: str, mask: int) -> None:
        """Let `device_id` be free."""
        group = self._groups.get(mask)
        if group is None:
            group = self._groups[mask] = SortedIds()
        group.add(device_id)

    def discard(self, device_id: str, mask: int) -> None:
        """Let `device_id` not be free."""
        group = self._groups.get(mask)
        if group is not None:
            group.discard(device_id)
            if not group:
                del self._groups[mask]

    def contains(self, device_id: str, mask: int) -> bool:
        """Whether `device_id`, which is on the nodes of `mask`, is free."""
        return mask in self._groups and device_id in self._groups[mask]

    def counts(self) -> dict[int, int]:
        """Return how many devices are free per mask."""
        return {mask: len(group) for mask, group in self._groups.items()}

    def count(self, wanted: Callable[[int], bool]) -> int:
        """Return how many devices are free on masks that are `wanted`."""
        return sum(len(group) for mask, group in self._groups.items() if wanted(mask))

    def first(self, count: int, wanted: Callable[[int], bool] = lambda _: True) -> list[str]:
        """Return the first `count` free devices on `wanted` masks, in natural order."""
        groups = [group for mask, group in self._groups.items() if wanted(mask)]
        # Most resources have one group: no device has a NUMA node, or all have the same.
        if len(groups) == 1:
            return [device_id for _, device_id in groups[0].first(count)]
        keys = sorted(chain.from_iterable(group.first(count) for group in groups))
        return [device_id for _, device_id in keys[: max(count, 0)]]

    def all(self, wanted: Callable[[int], bool] = lambda _: True) -> list[str]:
        """Return all free devices on `wanted` masks, in natural order."""
        return self.first(len(self), wanted)
