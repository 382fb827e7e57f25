"""Which NUMA nodes a container or pod gets: the policies best-effort, restricted, single-numa-node.

`decide` merges the hints of all providers, as the topology manager of the kubelet does. A pure
decision. `manager` collects the hints and remembers the decisions. `options` checks the settings.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from kubedevices.errors import AdmissionRejected
from kubedevices.node.topology.hints import Hints, TopologyHint, all_unions
from kubedevices.node.topology.options import TopologySettings
from kubedevices.values.numa import NumaNodes, mask_of, nodes_of

ProviderHints = Mapping[str, Hints]
"""The hints of one provider, by resource. Empty: the provider has no preference."""

# NUMA nodes. `_count_intersections` makes tables of 2**16 entries at most.
_COUNTING_LIMIT = 16


class Decision(NamedTuple):
    """The merged hint, and whether the policy admits the pod."""

    hint: TopologyHint
    admit: bool

    @property
    def numa_nodes(self) -> NumaNodes | None:
        """The nodes to allocate from, None if NUMA nodes do not matter."""
        return self.hint.numa_nodes


class TopologyAffinityError(AdmissionRejected):
    """The policy found no set of NUMA nodes for all resources of the pod or container."""

    def __init__(self) -> None:
        super().__init__(
            "TopologyAffinityError", "Resources cannot be allocated with Topology locality"
        )


def decide(settings: TopologySettings, providers: Iterable[ProviderHints]) -> Decision:
    """Merge the hints of all providers. The order of the providers makes no difference."""
    if settings.policy == "none":
        return Decision(TopologyHint(None, False), True)
    lists = [_HintList.of(hints) for provider in providers for hints in _flatten(provider)]
    single = settings.policy == "single-numa-node"
    if single:
        lists = [each.only_single() for each in lists]
    everything = mask_of(settings.numa_nodes)
    hint = _merge(lists, everything, _MaskOrder(settings, lists))
    if single and hint.numa_nodes == NumaNodes.of_mask(everything):
        # As in the kubelet: the set of all nodes of the machine is no alignment, also on a machine
        # with one node.
        hint = TopologyHint(None, hint.preferred)
    # best-effort admits every pod; restricted and single-numa-node only one with a preferred hint.
    return Decision(hint, settings.policy == "best-effort" or hint.preferred)


def _flatten(provider: ProviderHints) -> Iterable[Sequence[TopologyHint]]:
    if not provider:
        return ((TopologyHint(None, True),),)
    return tuple(
        (TopologyHint(None, True),) if hints is None else hints or (TopologyHint(None, False),)
        for hints in provider.values()
    )


class _HintList(NamedTuple):
    """The hints of one resource, as masks of NUMA nodes.

    A hint without nodes fits any mask: `any_preferred` and `any_possible` say whether the resource
    has a preferred and a not preferred hint of this kind.
    """

    preferred: frozenset[int]
    possible: frozenset[int]
    any_preferred: bool
    any_possible: bool

    @classmethod
    def of(cls, hints: Sequence[TopologyHint]) -> "_HintList":
        """Make it of a list of hints; equal hints count once."""
        masks: tuple[set[int], set[int]] = (set(), set())
        anything = [False, False]
        for numa_nodes, preferred in hints:
            if numa_nodes is None:
                anything[preferred] = True
            else:
                masks[preferred].add(numa_nodes.mask)
        return cls(frozenset(masks[True]), frozenset(masks[False]), anything[True], anything[False])

    @property
    def masks(self) -> frozenset[int]:
        """All masks, preferred or not."""
        return self.preferred | self.possible

    @property
    def is_empty(self) -> bool:
        """Whether the list has no hint."""
        return not (self.preferred or self.possible or self.any_preferred or self.any_possible)

    def only_single(self) -> "_HintList":
        """Return only the preferred hints with one node or without nodes."""
        single = frozenset(mask for mask in self.preferred if mask.bit_count() == 1)
        return _HintList(single, frozenset(), self.any_preferred, False)


class _MaskOrder:
    """Sort keys for merged masks: the best mask has the smallest key."""

    def __init__(self, settings: TopologySettings, lists: Iterable[_HintList]) -> None:
        narrowest = [min(map(int.bit_count, each.masks)) for each in lists if each.masks]
        self._best_size = max(narrowest, default=0)
        closest = settings.prefer_closest and settings.policy != "single-numa-node"
        self._distances = settings.distances if closest else None

    def preferred(self, mask: int) -> tuple[int, ...]:
        """Return the key of a preferred mask: few nodes, then short distance, then low number."""
        return (mask.bit_count(), self._distance(mask), mask)

    def possible(self, mask: int) -> tuple[int, ...]:
        """Return the key of a mask that is not preferred.

        First masks of the wanted size, then smaller masks (the largest first), then larger masks.
        The wanted size is the largest number of nodes that any list needs at least. With a smaller
        mask, a list lacks a node; a larger mask has more nodes than needed.
        """
        size = mask.bit_count()
        wanted = self._best_size
        rank = (0, 0) if size == wanted else (1, -size) if size < wanted else (2, size)
        return (*rank, self._distance(mask), mask)

    def _distance(self, mask: int) -> int:
        """Return the sum over all pairs; masks of one size sort as by the average."""
        if self._distances is None:
            return 0
        nodes = nodes_of(mask)
        return sum(self._distances[one][other] for one in nodes for other in nodes)


def _merge(lists: Sequence[_HintList], everything: int, order: _MaskOrder) -> TopologyHint:
    if not any(each.is_empty for each in lists):
        if preferred := _agreed(lists, everything):
            return TopologyHint(NumaNodes.of_mask(min(preferred, key=order.preferred)), True)
        if possible := _intersections([_choices(each, everything) for each in lists], everything):
            return TopologyHint(NumaNodes.of_mask(min(possible, key=order.possible)), False)
    return TopologyHint(NumaNodes.of_mask(everything), False)


def _agreed(lists: Sequence[_HintList], everything: int) -> set[int]:
    """Return the masks that every list prefers; a list with `any_preferred` prefers every mask."""
    strict = [each.preferred for each in lists if not each.any_preferred]
    if strict:
        common = reduce(frozenset.intersection, strict)
        return {mask & everything for mask in common if mask & everything}
    found = {everything} if everything else set()
    for each in lists:
        found |= {mask & everything for mask in each.preferred if mask & everything}
    return found


def _choices(each: _HintList, everything: int) -> set[int]:
    """Return the masks of a list that an intersection may be made of."""
    choices = {mask & everything for mask in each.masks}
    if each.any_preferred or each.any_possible:
        choices.add(everything)
    return choices


# ---------------------------------------------------------------- intersections


def _intersections(lists: Iterable[Collection[int]], everything: int) -> set[int]:
    """Return every non-empty intersection of one mask from each list.

    The number of combinations has no bound, but the number of different results has. With few
    masks, one list after the other is intersected. With many masks, counting takes fewer steps.
    """
    in_order = sorted(lists, key=len)
    nodes = everything.bit_count()
    steps, results = 0, 1
    for masks in in_order:
        steps += results * len(masks)
        results = min(results * len(masks), 1 << nodes)
    if nodes <= _COUNTING_LIMIT and steps > (len(in_order) + 1) * (nodes << nodes):
        return _count_intersections(in_order, everything)
    found = {everything} - {0}
    for masks in in_order:
        found = {one & other for one in found for other in masks}
        found.discard(0)
    return found


def _count_intersections(lists: Iterable[Collection[int]], everything: int) -> set[int]:
    """Count instead: what an intersection lacks is the union of what its masks lack."""
    bits = [1 << node for node in nodes_of(everything)]
    all_places = (1 << len(bits)) - 1

    def lacking(mask: int) -> int:
        if everything == all_places:
            return everything ^ mask
        return sum(1 << place for place, bit in enumerate(bits) if not mask & bit)

    unions = all_unions(([lacking(mask) for mask in masks] for masks in lists), len(bits))
    return {
        sum(bit for place, bit in enumerate(bits) if not union >> place & 1)
        for union in unions - {all_places}
    }
