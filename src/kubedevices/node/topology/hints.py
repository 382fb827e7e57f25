"""Which sets of NUMA nodes could serve a request: the hints for the topology manager.

The hints are made of the number of devices per set of nodes, so 10,000 devices take as long as
eight. `policy` decides with the hints of all providers.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb
from operator import add, mul, sub
from typing import NamedTuple

from kubedevices.node.inventory.free_devices import mask_of_device
from kubedevices.node.inventory.inventory import Inventory, ResourceRecord
from kubedevices.values.device import ReportedDevice
from kubedevices.values.numa import NumaNodes, mask_of

ALL_SUBSETS_LIMIT = 12
"""NUMA nodes with devices. Up to this number, every set of nodes may be a hint."""

HINT_LIMIT = 1024
"""Hints. With more nodes, only the smallest sets, up to this number, and the set of all nodes."""


class TopologyHint(NamedTuple):
    """A set of NUMA nodes with enough devices, None for any; `preferred` if no smaller set has."""

    numa_nodes: NumaNodes | None
    preferred: bool


Hints = Sequence[TopologyHint] | None
"""The hints of one resource: None if any nodes will do, an empty list if no nodes will do."""


class NumaCounts(NamedTuple):
    """The numbers of all, free and reusable devices of a resource, by the bit mask of their nodes.

    A hint has to contain a node of every reusable device.
    """

    known: Mapping[int, int]
    available: Mapping[int, int]
    reusable: Mapping[int, int] = {}


# ---------------------------------------------------------------- per resource


def resource_hints(
    inventory: Inventory,
    resource: str,
    count: int,
    *,
    numa_nodes: Sequence[int],
    held: Collection[str] = (),
    reusable: Collection[str] = (),
) -> Hints:
    """Return the hints for `count` devices. `held` are devices that the container or pod has."""
    record = inventory.record(resource)
    machine = mask_of(tuple(numa_nodes))
    if record is None or not _has_numa(record, machine):
        return None
    if held and len(held) != count:
        return []
    devices = record.devices
    if held:
        counts = NumaCounts(devices.counts, _count(devices.devices, held))
    else:
        reusable = devices.healthy.intersection(reusable)
        # A reusable device is reserved, so it is not counted as free.
        if len(devices.free) + len(reusable) < count:
            return []
        left = _reusable_counts(devices.devices, reusable, machine)
        counts = NumaCounts(devices.counts, devices.free.counts(), left)
    return generate_hints(counts, count, numa_nodes)


def _has_numa(record: ResourceRecord, machine: int) -> bool:
    """Whether any device is on a node that the machine has."""
    return any(mask & machine for mask in record.devices.counts)


def _count(devices: Mapping[str, ReportedDevice], ids: Iterable[str]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for device_id in ids:
        device = devices.get(device_id)
        mask = mask_of_device(device) if device is not None else 0
        counts[mask] = counts.get(mask, 0) + 1
    return counts


def _reusable_counts(
    devices: Mapping[str, ReportedDevice], ids: Iterable[str], machine: int
) -> dict[int, int]:
    """Count the reusable devices that a hint must contain.

    A device on a node that the machine does not have can be in no hint, so it is not counted.
    """
    listed = (devices[device_id] for device_id in ids if device_id in devices)
    counts: dict[int, int] = {}
    for device in listed:
        mask = mask_of_device(device) & machine
        if mask:
            counts[mask] = counts.get(mask, 0) + 1
    return counts


# ---------------------------------------------------------------- hints from counts


def generate_hints(
    counts: NumaCounts, request: int, numa_nodes: Sequence[int]
) -> list[TopologyHint]:
    """Return every set of NUMA nodes with enough devices, by size, then in the order of the nodes.

    A set is preferred if it has the smallest size with which an idle machine could serve the
    request.
    """
    used = 0
    for mask in counts.known:
        used |= mask
    nodes = tuple(node for node in sorted(set(numa_nodes)) if used & mask_of((node,)))
    subsets = _subsets(nodes)
    known = _reach(counts.known, subsets)
    usable = _reach(_sum(counts.available, counts.reusable), subsets)
    sizes = zip(subsets.sizes, known, strict=True)
    # From all devices, also held devices: if no hint is preferred, then the policy knows that a
    # better alignment exists but is in use (KEP-693).
    smallest = next((size for size, count in sizes if count >= request), len(nodes))
    must = tuple(counts.reusable)
    return [
        preferred if size == smallest else possible
        for mask, size, count, preferred, possible in zip(
            subsets.masks, subsets.sizes, usable, subsets.preferred, subsets.possible, strict=True
        )
        if count >= request and (not must or all(mask & each for each in must))
    ]


class _Subsets(NamedTuple):
    """Sets of nodes in the order of hints.

    `masks` are bit masks of node numbers, `positions` are bit masks of positions in `nodes`;
    `preferred` and `possible` are the hints for these sets.
    """

    nodes: tuple[int, ...]
    masks: tuple[int, ...]
    positions: tuple[int, ...]
    sizes: tuple[int, ...]
    preferred: tuple[TopologyHint, ...]
    possible: tuple[TopologyHint, ...]


@lru_cache(maxsize=64)
def _subsets(nodes: tuple[int, ...]) -> _Subsets:
    """Return the non-empty subsets of `nodes` by size, limited by `HINT_LIMIT`."""
    places = range(len(nodes))
    chosen: list[tuple[int, ...]] = []
    for size in range(1, len(nodes) + 1):
        too_many = len(chosen) + comb(len(nodes), size) > HINT_LIMIT
        if len(nodes) > ALL_SUBSETS_LIMIT and too_many:
            chosen.append(tuple(places))
            break
        chosen.extend(combinations(places, size))
    masks = tuple(mask_of(tuple(nodes[place] for place in places)) for places in chosen)
    return _Subsets(
        nodes,
        masks,
        tuple(sum(1 << place for place in places) for places in chosen),
        tuple(map(len, chosen)),
        tuple(TopologyHint(NumaNodes.of_mask(mask), True) for mask in masks),
        tuple(TopologyHint(NumaNodes.of_mask(mask), False) for mask in masks),
    )


def _sum(one: Mapping[int, int], other: Mapping[int, int]) -> Mapping[int, int]:
    if not other:
        return one
    total = dict(one)
    for mask, count in other.items():
        total[mask] = total.get(mask, 0) + count
    return total


def _reach(counts: Mapping[int, int], subsets: _Subsets) -> Sequence[int]:
    """Return for each subset the number of devices that have at least one node in the subset.

    Up to twelve nodes, a table has the answers for all subsets: a device has no node in a subset if
    and only if all its nodes are outside.
    """
    nodes = subsets.nodes
    bits = [(mask_of((node,)), 1 << place) for place, node in enumerate(nodes)]
    by_place: dict[int, int] = {}
    for mask, count in counts.items():
        if positions := sum(position for bit, position in bits if mask & bit):
            by_place[positions] = by_place.get(positions, 0) + count
    if len(nodes) > ALL_SUBSETS_LIMIT:
        items = tuple(by_place.items())
        return [sum(n for places, n in items if places & each) for each in subsets.positions]
    if all(positions.bit_count() == 1 for positions in by_place):
        table = [0]
        for place in range(len(nodes)):
            more = by_place.get(1 << place, 0)
            table += [count + more for count in table]
        return list(map(table.__getitem__, subsets.positions))
    everything = (1 << len(nodes)) - 1
    total = sum(by_place.values())
    inside = sum_over_subsets([by_place.get(places, 0) for places in range(everything + 1)])
    return [total - inside[everything ^ places] for places in subsets.positions]


# ---------------------------------------------------------------- sums over sets of nodes


def sum_over_subsets(table: list[int]) -> list[int]:
    """Return for each set of nodes the sum of `table` over all subsets of the set.

    The index of an entry is the bit mask of its set. Each round handles one node: the entries of
    sets without the lowest node are added to the entries of sets with it, and this node moves to
    the top of the index. After one round per node all entries are back in their places. This takes
    n * 2**n additions for n nodes; a loop over all pairs of subsets would take 4**n.
    """
    for _ in range(len(table).bit_length() - 1):
        without, having = table[0::2], table[1::2]
        table = without + list(map(add, without, having))
    return table


def undo_sum_over_subsets(sums: list[int]) -> list[int]:
    """Return the table for which `sum_over_subsets` returns `sums`."""
    for _ in range(len(sums).bit_length() - 1):
        without, having = sums[0::2], sums[1::2]
        sums = without + list(map(sub, having, without))
    return sums


def all_unions(lists: Iterable[Iterable[int]], places: int) -> set[int]:
    """Return every union of one set from each list. Sets are bit masks of `places` bits.

    The number of choices inside a set is a product of sums over its subsets. Without the choices
    inside smaller sets, the choices remain whose union is the set.
    """
    choices = [1] * (1 << places)
    for sets in lists:
        table = [0] * (1 << places)
        for each in sets:
            table[each] += 1
        choices = list(map(mul, choices, sum_over_subsets(table)))
    return {union for union, count in enumerate(undo_sum_over_subsets(choices)) if count}
