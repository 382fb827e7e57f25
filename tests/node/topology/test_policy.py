"""The merge of hints: golden vectors, a slow form of the rule, and bounds of time."""

import random
import time
from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubedevices.errors import AdmissionRejected
from kubedevices.node.topology.hints import Hints, TopologyHint
from kubedevices.node.topology.options import POLICIES, TopologySettings
from kubedevices.node.topology.policy import (
    Decision,
    ProviderHints,
    TopologyAffinityError,
    decide,
)
from kubedevices.values.numa import NumaNodes
from tests.golden_data import cases


def settings(
    policy: str, nodes: Sequence[int], distances: Sequence[Sequence[int]] = ()
) -> TopologySettings:
    by_node = {
        one: dict(zip(nodes, row, strict=True)) for one, row in zip(nodes, distances, strict=False)
    }
    return TopologySettings(policy, "container", tuple(nodes), bool(distances), by_node)


def hint(text: str) -> TopologyHint:
    """`"01+"` is nodes 0 and 1, preferred; `"*-"` is any node, not preferred."""
    nodes, preferred = text[:-1], text[-1] == "+"
    return TopologyHint(None if nodes == "*" else NumaNodes(map(int, nodes)), preferred)


def provider(*hints: str) -> ProviderHints:
    return {"r": [hint(each) for each in hints]}


def shown(decision: Decision) -> tuple[str, bool]:
    nodes = "*" if decision.numa_nodes is None else "".join(map(str, decision.numa_nodes))
    return nodes + "-+"[decision.hint.preferred], decision.admit


# ---------------------------------------------------------------- golden vectors


def golden_hints(hints: list[dict[str, Any]] | None) -> Hints:
    if hints is None:
        return None
    return [
        TopologyHint(None if each["mask"] is None else NumaNodes(each["mask"]), each["preferred"])
        for each in hints
    ]


@pytest.mark.parametrize(("number", "case"), cases("topology_merge"))
def test_decisions_are_those_of_the_kubelet(number: int, case: Any) -> None:
    """Mask, preference and admission are those of kubelet 1.32, for any order of providers."""
    nodes = case["numa_nodes"]
    distances = case.get("distances", {})
    rows = [distances[str(node)] for node in nodes] if case["prefer_closest"] else []
    chosen = settings(case["policy"], nodes, rows)
    providers = [
        {resource: golden_hints(hints) for resource, hints in each.items()}
        for each in case["providers"]
    ]
    for _ in range(3):
        decision = decide(chosen, providers)
        mask = None if decision.numa_nodes is None else list(decision.numa_nodes)
        assert {"mask": mask, "preferred": decision.hint.preferred} == case["best"]
        assert decision.admit == case["admit"]
        random.Random(number).shuffle(providers)


# ---------------------------------------------------------------- the rule in its slow form


def slow_merge(chosen: TopologySettings, providers: Iterable[ProviderHints]) -> TopologyHint:
    """Try the whole product and keep the best hint, one comparison at a time."""
    lists: list[list[TopologyHint]] = []
    for each in providers:
        lists += [] if each else [[hint("*+")]]
        lists += [
            [hint("*+")] if hints is None else list(hints) or [hint("*-")]
            for hints in each.values()
        ]
    single = chosen.policy == "single-numa-node"
    if single:
        lists = [
            [h for h in hints if h.preferred and (h.numa_nodes is None or len(h.numa_nodes) == 1)]
            for hints in lists
        ]
    narrowest = [
        min(len(h.numa_nodes) for h in hints if h.numa_nodes is not None)
        for hints in lists
        if any(h.numa_nodes is not None for h in hints)
    ]
    everything = NumaNodes(chosen.numa_nodes)
    best: TopologyHint | None = None
    for combination in product(*lists):
        masks = [h.numa_nodes for h in combination if h.numa_nodes is not None]
        merged = everything
        for mask in masks:
            merged &= mask
        preferred = all(h.preferred for h in combination) and len(set(masks)) <= 1
        if merged.mask:
            candidate = TopologyHint(merged, preferred)
            best = better_hint(chosen, best, candidate, max(narrowest, default=0))
    best = best or TopologyHint(everything, False)
    return TopologyHint(None, best.preferred) if single and best.numa_nodes == everything else best


def better_hint(
    chosen: TopologySettings, current: TopologyHint | None, candidate: TopologyHint, wanted: int
) -> TopologyHint:
    if current is None:
        return candidate
    if current.preferred != candidate.preferred:
        return current if current.preferred else candidate
    assert current.numa_nodes is not None
    assert candidate.numa_nodes is not None
    size, other = len(current.numa_nodes), len(candidate.numa_nodes)
    if not current.preferred:
        if size == wanted and other != wanted:
            return current
        if size < wanted and other != size:
            takes = other == wanted or size < other < wanted
            return candidate if takes else current
    return min(current, candidate, key=lambda h: fitness(chosen, h.numa_nodes))


def fitness(chosen: TopologySettings, mask: NumaNodes | None) -> tuple[float, ...]:
    assert mask is not None
    average = 0.0
    if chosen.prefer_closest and chosen.policy != "single-numa-node":
        average = sum(chosen.distances[a][b] for a in mask for b in mask) / len(mask) ** 2
    return (len(mask), average, mask.mask)


@st.composite
def merges(draw: st.DrawFn) -> tuple[TopologySettings, list[ProviderHints]]:
    nodes = draw(st.sampled_from([(0,), (0, 1), (1, 3), (0, 1, 2), (0, 1, 2, 3), (0, 8)]))
    rows = [[draw(st.integers(10, 13)) for _ in nodes] for _ in nodes]
    closest = draw(st.booleans())
    chosen = settings(draw(st.sampled_from(POLICIES[1:])), nodes, rows if closest else ())
    masks = st.sets(st.sampled_from([*nodes, 99]), min_size=1).map(NumaNodes)
    one = st.builds(TopologyHint, st.one_of(masks, masks, masks, st.none()), st.booleans())
    hints = st.one_of(st.none(), st.lists(one, max_size=5))
    each = st.dictionaries(st.sampled_from("ab"), hints, max_size=2)
    return chosen, draw(st.lists(each, max_size=3))


@given(merges())
def test_the_merge_equals_that_of_the_whole_product(
    case: tuple[TopologySettings, list[ProviderHints]],
) -> None:
    """The fast merge finds the same hint as a loop over the product."""
    chosen, providers = case
    assert decide(chosen, providers).hint == slow_merge(chosen, providers)


@given(merges(), st.randoms(use_true_random=False))
def test_the_order_of_providers_makes_no_difference(
    case: tuple[TopologySettings, list[ProviderHints]], shuffler: random.Random
) -> None:
    """Providers, resources and hints in another order give the same decision."""
    chosen, providers = case
    other = [
        {
            resource: None if hints is None else shuffler.sample(list(hints), len(hints))
            for resource, hints in sorted(each.items(), reverse=True)
        }
        for each in shuffler.sample(providers, len(providers))
    ]
    assert decide(chosen, other) == decide(chosen, providers)


# ---------------------------------------------------------------- examples


@pytest.mark.parametrize(
    ("policy", "admit"), [("best-effort", True), ("restricted", False), ("single-numa-node", False)]
)
def test_a_device_and_a_cpu_on_different_nodes(policy: str, admit: bool) -> None:
    """Only best-effort admits a device on node 0 with a CPU on node 1."""
    decision = decide(settings(policy, (0, 1)), [provider("0+", "01-"), provider("1+", "01-")])
    assert decision.admit == admit
    assert not decision.hint.preferred
    if policy != "single-numa-node":
        assert shown(decision)[0] == "0-"


def test_policy_none_admits_without_a_mask() -> None:
    """With policy none hints do not matter."""
    assert shown(decide(TopologySettings(), [provider()])) == ("*-", True)


def test_no_hint_provider_means_all_nodes_preferred() -> None:
    """Without any provider the result is all nodes, preferred."""
    assert shown(decide(settings("restricted", (0, 1)), [])) == ("01+", True)
    assert shown(decide(settings("single-numa-node", (0,)), [])) == ("*+", True)


@pytest.mark.parametrize("other", [(), ("0+",), ("0+", "1+", "01-")])
@pytest.mark.parametrize("node", [0, 3, 7])
def test_filtered_device_hints_merge_with_those_of_cpus(other: tuple[str, ...], node: int) -> None:
    """FilteredDeviceHintsMergeWithOtherProviders: the result is the device's node."""
    others = [f"{each}" for each in range(8)]
    cpus = [f"{each}+" for each in others] + [f"{a}{b}-" for a, b in combinations(others, 2)]
    devices = provider(f"{node}+")
    decision = decide(settings("restricted", range(8)), [devices, provider(*cpus), {"m": None}])
    assert shown(decision) == (f"{node}+", True)


def test_the_closer_pair_wins_only_with_prefer_closest() -> None:
    """Of two pairs of equal size the lower numbers win; with prefer-closest, the shorter
    distance.
    """
    pairs = [provider("01+", "02+")]
    far = [[10, 30, 20], [30, 10, 30], [20, 30, 10]]
    assert shown(decide(settings("restricted", (0, 1, 2)), pairs))[0] == "01+"
    assert shown(decide(settings("restricted", (0, 1, 2), far), pairs))[0] == "02+"


def test_without_a_set_of_the_wanted_size_the_largest_smaller_set_wins() -> None:
    """A provider wants three nodes. Of the intersections {0} and {1,2} the larger one wins."""
    providers = [provider("012-"), provider("0-", "12-")]
    assert shown(decide(settings("best-effort", (0, 1, 2)), providers))[0] == "12-"


def test_a_larger_set_than_wanted_is_the_last_choice() -> None:
    """Of a smaller and a larger set than the most demanding list needs, the smaller set wins."""
    providers = [provider("01-", "0123-"), provider("0-", "*-")]
    chosen = settings("best-effort", (0, 1, 2, 3))
    assert shown(decide(chosen, providers))[0] == "01-", "the wanted size is best"
    providers = [provider("02-", "0123-"), provider("012-", "13-")]
    assert shown(decide(chosen, providers))[0] == "02-"


def test_distances_do_not_matter_for_a_single_node() -> None:
    """With single-numa-node the lower node wins, for any distance of a node to itself."""
    rows = [[13, 20], [20, 10]]
    either = [provider("0+", "1+")]
    assert shown(decide(settings("single-numa-node", (0, 1), rows), either))[0] == "0+"
    assert shown(decide(settings("restricted", (0, 1), rows), either))[0] == "1+"


def test_a_topology_rejection_has_the_kubelets_words() -> None:
    """Reason and message are those for which tools search in a rejected pod."""
    with pytest.raises(AdmissionRejected, match="Resources cannot be allocated with Topology") as e:
        raise TopologyAffinityError
    assert e.value.reason == "TopologyAffinityError"


# ---------------------------------------------------------------- bounds


def full(nodes: int, best: int) -> ProviderHints:
    sizes = range(1, nodes + 1)
    return {
        "r": [
            TopologyHint(NumaNodes(chosen), size == best)
            for size in sizes
            for chosen in combinations(range(nodes), size)
        ]
    }


@pytest.mark.parametrize("policy", POLICIES[1:])
def test_the_time_of_a_merge_is_bounded(policy: str) -> None:
    """Eight providers with all 255 sets of eight nodes have 255**8 combinations; the
    limit is 2 s.
    """
    providers = [full(8, 1 + each % 3) for each in range(8)]
    began = time.thread_time()
    decide(settings(policy, range(8)), providers)
    assert time.thread_time() - began < 2


@pytest.mark.parametrize("nodes", [(0, 1, 2, 3, 4), (0, 2, 5, 8, 9)])
def test_counting_and_pairing_give_the_same_result(nodes: tuple[int, ...]) -> None:
    """Long lists are counted instead of paired."""
    chooser = random.Random(7)
    subsets = [NumaNodes(c) for size in range(1, 6) for c in combinations(nodes, size)]
    for _ in range(20):
        providers: list[ProviderHints] = [
            {"r": [TopologyHint(each, False) for each in chooser.sample(subsets, 28)]}
            for _ in range(2)
        ]
        chosen = settings("best-effort", nodes)
        assert decide(chosen, providers).hint == slow_merge(chosen, providers)
