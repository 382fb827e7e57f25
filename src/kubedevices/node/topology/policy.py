"""Which NUMA nodes a container or pod gets, from the hints of all who give it something.

Pure: hints in, a decision out. `manager` asks for hints and remembers decisions. `options` checks
the settings.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from kubedevices.errors import AdmissionRejected
from kubedevices.node.topology.hints import Hints, TopologyHint
from kubedevices.node.topology.options import TopologySettings
from kubedevices.node.topology.subset_sums import all_unions
from kubedevices.numa import NumaNodes, mask_of, nodes_of

ProviderHints = Mapping[str, Hints]
"""What one provider says: hints by resource; nothing at all for "I do not care"."""

# Tables of the counting have 2**16 entries at most.
_COUNTING_LIMIT = 16


class Decision(NamedTuple):
    """The nodes to use, None when it does not matter, and whether the pod may start."""

    hint: TopologyHint
    admit: bool

    @property
    def numa_nodes(self) -> NumaNodes | None:
        """Return the affinity that allocations should follow."""
        return self.hint.numa_nodes


class TopologyAffinityError(AdmissionRejected):
    """No set of NUMA nodes suits everything the pod or container asks for."""

    def __init__(self) -> None:
        super().__init__(
            "TopologyAffinityError", "Resources cannot be allocated with Topology locality"
        )


def decide(settings: TopologySettings, providers: Iterable[ProviderHints]) -> Decision:
    """Merge the hints of all providers; the order of the providers makes no difference."""
    if settings.policy == "none":
        return Decision(TopologyHint(None, False), True)
    lists = [_List.of(hints) for provider in providers for hints in _flatten(provider)]
    single = settings.policy == "single-numa-node"
    if single:
        lists = [each.only_single() for each in lists]
    everything = mask_of(settings.numa_nodes)
    hint = _merge(lists, everything, _Order(settings, lists))
    if single and hint.numa_nodes == NumaNodes.of_mask(everything):
        # As the kubelet says it: all nodes of the machine are no alignment, also where there is
        # just one.
        hint = TopologyHint(None, hint.preferred)
    return Decision(hint, settings.policy == "best-effort" or hint.preferred)


def _flatten(provider: ProviderHints) -> Iterable[Sequence[TopologyHint]]:
    if not provider:
        return ((TopologyHint(None, True),),)
    return tuple(
        (TopologyHint(None, True),) if hints is None else hints or (TopologyHint(None, False),)
        for hints in provider.values()
    )


class _List(NamedTuple):
    """The hints of one resource: the masks preferred and not, and the two kinds of "any"."""

    preferred: frozenset[int]
    possible: frozenset[int]
    any_preferred: bool
    any_possible: bool

    @classmethod
    def of(cls, hints: Sequence[TopologyHint]) -> "_List":
        """Sort a list of hints; equal hints count once."""
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
        """Return every mask, preferred or not."""
        return self.preferred | self.possible

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all can be chosen from the list."""
        return not (self.preferred or self.possible or self.any_preferred or self.any_possible)

    def only_single(self) -> "_List":
        """Keep the preferred hints for one node, and those for any."""
        single = frozenset(mask for mask in self.preferred if mask.bit_count() == 1)
        return _List(single, frozenset(), self.any_preferred, False)


class _Order:
    """Which of two merged masks is better, as sort keys."""

    def __init__(self, settings: TopologySettings, lists: Iterable[_List]) -> None:
        narrowest = [min(map(int.bit_count, each.masks)) for each in lists if each.masks]
        self._best_size = max(narrowest, default=0)
        closest = settings.prefer_closest and settings.policy != "single-numa-node"
        self._distances = settings.distances if closest else None

    def preferred(self, mask: int) -> tuple[int, ...]:
        """Order by size, smaller first; then by distance, then by the number of the mask."""
        return (mask.bit_count(), self._distance(mask), mask)

    def possible(self, mask: int) -> tuple[int, ...]:
        """Best: masks of the wanted size; then smaller ones, largest first; then larger ones.

        The wanted size is what the most demanding list needs: a smaller mask leaves a list without
        a node, a larger mask takes more nodes than needed.
        """
        size = mask.bit_count()
        wanted = self._best_size
        rank = (0, 0) if size == wanted else (1, -size) if size < wanted else (2, size)
        return (*rank, self._distance(mask), mask)

    def _distance(self, mask: int) -> int:
        """Return the sum over all pairs: among masks of one size it orders as the average does."""
        if self._distances is None:
            return 0
        nodes = nodes_of(mask)
        return sum(self._distances[one][other] for one in nodes for other in nodes)


def _merge(lists: Sequence[_List], everything: int, order: _Order) -> TopologyHint:
    if not any(each.is_empty for each in lists):
        if preferred := _agreed(lists, everything):
            return TopologyHint(NumaNodes.of_mask(min(preferred, key=order.preferred)), True)
        if possible := _intersections([_choices(each, everything) for each in lists], everything):
            return TopologyHint(NumaNodes.of_mask(min(possible, key=order.possible)), False)
    return TopologyHint(NumaNodes.of_mask(everything), False)


def _agreed(lists: Sequence[_List], everything: int) -> set[int]:
    """Return the preferred masks on which all agree: each list prefers the mask, or any mask."""
    strict = [each.preferred for each in lists if not each.any_preferred]
    if strict:
        common = reduce(frozenset.intersection, strict)
        return {mask & everything for mask in common if mask & everything}
    found = {everything} if everything else set()
    for each in lists:
        found |= {mask & everything for mask in each.preferred if mask & everything}
    return found


def _choices(each: _List, everything: int) -> set[int]:
    """Return what a list can contribute to an intersection."""
    choices = {mask & everything for mask in each.masks}
    if each.any_preferred or each.any_possible:
        choices.add(everything)
    return choices


# ---------------------------------------------------------------- intersections


def _intersections(lists: Iterable[Collection[int]], everything: int) -> set[int]:
    """Return every non-empty intersection of one mask from each list.

    The product of the lists grows beyond any bound, the number of different results does not. With
    few masks one list is folded in after the other; with many it is cheaper to count.
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
    """Do the same by counting: what an intersection lacks is the union of what each mask lacks."""
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
