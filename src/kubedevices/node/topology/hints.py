"""Which sets of NUMA nodes could serve a request. For the topology manager, before a decision.

Works on counts per set of nodes, never on devices, so that 10,000 devices cost what eight do. What
is decided from the hints of all providers is for `policy`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import NamedTuple

from kubedevices.device import ReportedDevice
from kubedevices.node.inventory.free_devices import mask_of_device
from kubedevices.node.inventory.inventory import Inventory, ResourceRecord
from kubedevices.node.pods.pod import Container, Pod, pod_device_request
from kubedevices.node.pods.pod_devices import PodDevices
from kubedevices.node.topology.subset_sums import sum_over_subsets
from kubedevices.numa import NumaNodes, mask_of

ALL_SUBSETS_LIMIT = 12
"""Up to this many NUMA nodes with devices every set of them is looked at."""

HINT_LIMIT = 1024
"""With more nodes only the small sets, up to this number, and the set of all nodes."""


class TopologyHint(NamedTuple):
    """A sufficient set of NUMA nodes, None for any; `preferred` if no smaller set could do."""

    numa_nodes: NumaNodes | None
    preferred: bool


Hints = Sequence[TopologyHint] | None
"""Of one resource: None for "do not care", an empty list for "impossible"."""


class NumaCounts(NamedTuple):
    """Devices of a resource by the bit mask of their nodes: all, free, and reusable ones.

    Every reusable device must fit: a set of nodes without one of them is no hint.
    """

    known: Mapping[int, int]
    available: Mapping[int, int]
    reusable: Mapping[int, int] = {}


# ---------------------------------------------------------------- per container and per pod


def container_hints(
    pod_uid: str,
    container: Container,
    inventory: Inventory,
    pod_devices: PodDevices,
    *,
    numa_nodes: Sequence[int],
    reusable: Callable[[str], Collection[str]] = lambda _: (),
) -> dict[str, Hints]:
    """Return the hints for each device resource of `container`.

    `reusable` gives the devices of a resource that finished init containers leave over.
    """
    hints: dict[str, Hints] = {}
    for resource, count in container.limits.items():
        if inventory.is_known(resource) and count:
            held = pod_devices.device_ids(pod_uid, container.name, resource)
            hints[resource] = resource_hints(
                inventory,
                resource,
                count,
                held=held,
                reusable=reusable(resource),
                numa_nodes=numa_nodes,
            )
    return hints


def pod_hints(
    pod: Pod,
    inventory: Inventory,
    pod_devices: PodDevices,
    *,
    numa_nodes: Sequence[int],
) -> dict[str, Hints]:
    """Return the hints for each device resource of the pod as a whole."""
    request = pod_device_request(pod, inventory.is_known)
    return {
        resource: resource_hints(
            inventory,
            resource,
            count,
            held=pod_devices.of_pod(pod.uid, resource),
            numa_nodes=numa_nodes,
        )
        for resource, count in request.items()
    }


def resource_hints(
    inventory: Inventory,
    resource: str,
    count: int,
    *,
    numa_nodes: Sequence[int],
    held: Collection[str] = (),
    reusable: Collection[str] = (),
) -> Hints:
    """Return the hints for `count` devices, of which the container or pod already has `held`."""
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
        # A reusable device is reserved, so it is not among the free ones.
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

    A device that is on none of the machine's nodes cannot be in any hint, so it does not count.
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

    Preferred are those of the smallest size at which the machine could serve the request with all
    devices free.
    """
    used = 0
    for mask in counts.known:
        used |= mask
    nodes = tuple(node for node in sorted(set(numa_nodes)) if used & mask_of((node,)))
    subsets = _subsets(nodes)
    known = _reach(counts.known, subsets)
    usable = _reach(_sum(counts.available, counts.reusable), subsets)
    sizes = zip(subsets.sizes, known, strict=True)
    # From all devices, also those in use: when no hint is preferred, the policy learns that a
    # better alignment exists and is taken (KEP-693).
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
    """Sets of nodes in the order of hints: as bit masks of the nodes' numbers and of their
    positions among `nodes`, and as ready hints.
    """

    nodes: tuple[int, ...]
    masks: tuple[int, ...]
    positions: tuple[int, ...]
    sizes: tuple[int, ...]
    preferred: tuple[TopologyHint, ...]
    possible: tuple[TopologyHint, ...]


@lru_cache(maxsize=64)
def _subsets(nodes: tuple[int, ...]) -> _Subsets:
    """Return the non-empty subsets of `nodes` by size; of very many nodes not all of them."""
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
    """Return for each subset how many devices have at least one node in it.

    Up to twelve nodes the answers for all subsets come from a table filled by adding halves: a
    device is not reached by a subset exactly when all its nodes lie in the rest.
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
