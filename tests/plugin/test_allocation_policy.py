"""Ready policies: which devices to allocate first."""

import random
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kubedevices as kd
from kubedevices.errors import ImpossiblePreference, UsageError
from kubedevices.plugin.allocation_policy import (
    POLICIES,
    PolicyAllocator,
    choose,
    physical_device,
)
from kubedevices.values.allocation import (
    ContainerPreferredRequest,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
)
from kubedevices.values.device import natural_key

FOUR_CARDS = [f"card{card}-{share}" for card in range(4) for share in range(5)]


@pytest.mark.parametrize(
    ("policy", "available", "size", "expected"),
    [
        ("none", FOUR_CARDS, 4, "card0-0 card1-0 card2-0 card3-0"),
        ("none", ["card0-1", "card0-2", "card0-3", "card1-1"], 3, "card0-1 card0-2 card1-1"),
        ("none", ["card0-1", "card0-2", "card0-3", "card1-1"], 2, "card0-1 card1-1"),
        ("none", ["card10-0", "card2-0", "card2-1"], 1, "card2-0"),
        ("balanced", FOUR_CARDS, 4, "card0-0 card1-0 card2-0 card3-0"),
        ("balanced", FOUR_CARDS, 6, "card0-0 card0-1 card1-0 card1-1 card2-0 card3-0"),
        ("balanced", ["card0-0", "card1-0", "card1-1", "card1-2"], 2, "card1-0 card1-1"),
        ("balanced", ["card0-0", "card0-1", "card1-3", "card1-4"], 1, "card0-0"),
        ("packed", FOUR_CARDS, 4, "card0-0 card0-1 card0-2 card0-3"),
        ("packed", FOUR_CARDS, 6, "card0-0 card0-1 card0-2 card0-3 card0-4 card1-0"),
        ("packed", ["card10-0", "card9-0", "card2-1"], 2, "card2-1 card9-0"),
        ("distributed", FOUR_CARDS, 4, "card0-0 card1-0 card2-0 card3-0"),
    ],
)
def test_vectors(policy: str, available: list[str], size: int, expected: str) -> None:
    """The known answers, from any order of the available IDs."""
    for seed in range(5):
        shuffled = random.Random(seed).sample(available, len(available))
        assert choose(policy, shuffled, (), size) == expected.split()


def test_packed_fills_physical_devices_not_id_ranges() -> None:
    """Simulated devices of two NUMA nodes take turns: by ID alone both nodes would be used."""
    available = [f"gpu-{n}" for n in range(8)]

    def physical(device_id: str) -> str:
        return f"node{int(device_id[-1]) % 2}"

    for size, expected in ((4, "0246"), (6, "012346"), (8, "01234567")):
        chosen = choose("packed", available, (), size, physical=physical)
        assert chosen == [f"gpu-{n}" for n in expected]


@pytest.mark.parametrize(
    ("policy", "must_include", "size", "expected"),
    [
        ("none", ["card0-3"], 2, "card0-3 card1-0"),
        ("none", ["card0-3", "card1-1"], 4, "card0-3 card1-1 card2-0 card3-0"),
        ("balanced", ["card0-1"], 2, "card0-1 card1-0"),
        ("packed", ["card3-0"], 3, "card3-0 card0-0 card0-1"),
        ("distributed", ["card2-0"], 4, "card2-0 card0-0 card1-0 card3-0"),
    ],
)
def test_must_include_comes_first_and_counts(
    policy: str, must_include: list[str], size: int, expected: str
) -> None:
    """What must be included leads the answer and counts as a share of its card."""
    assert choose(policy, FOUR_CARDS, must_include, size) == expected.split()


@pytest.mark.parametrize(
    ("total", "size", "expected"),
    [
        ({"card0": 4, "card1": 4}, 1, "card1-0"),
        ({"card0": 4, "card1": 4}, 2, "card1-0 card1-1"),
        ({"card0": 4, "card1": 4}, 3, "card0-2 card1-0 card1-1"),
        ({"card0": 2, "card1": 6}, 2, "card0-2 card0-3"),
        ({}, 2, "card0-2 card1-0"),
        ({"card0": 1, "card1": 0}, 2, "card0-2 card1-0"),
    ],
)
def test_distributed_looks_at_what_is_held(total: dict[str, int], size: int, expected: str) -> None:
    """The card with the fewest shares in use is first; used is total minus available."""
    available = ["card0-2", "card0-3", "card1-0", "card1-1", "card1-2", "card1-3"]
    assert choose("distributed", available, (), size, total=total) == expected.split()


def test_distributed_breaks_ties_by_picks() -> None:
    """Among equally used cards the one picked less often in this call is next."""
    available = ["a-0", "a-1", "b-1", "b-2"]
    total = {"a": 2, "b": 3}
    assert choose("distributed", available, (), 1, total=total) == ["a-0"]
    assert choose("distributed", available, (), 2, total=total) == ["a-0", "b-1"]


@pytest.mark.parametrize("policy", ["balanced", "distributed"])
def test_ties_go_by_the_name_of_the_card(policy: str) -> None:
    """Among equal cards the first by name is taken, whatever their IDs look like."""
    chosen = choose(policy, ["1@b", "2@a10", "3@a9"], (), 1, physical=lambda text: text[2:])
    assert chosen == ["3@a9"]


@pytest.mark.parametrize(
    ("device_id", "expected"),
    [
        ("card0-1", "card0"),
        ("GPU-4a-7", "GPU-4a"),
        ("GPU-4a-7::3", "GPU-4a-7"),
        ("fuse", "fuse"),
        ("-1", "-1"),
        ("0000:00:02.0-1", "0000:00:02.0"),
    ],
)
def test_the_physical_device_of_an_id(device_id: str, expected: str) -> None:
    """The usual spellings of a share are understood."""
    assert physical_device(device_id) == expected


def test_another_spelling_of_shares() -> None:
    """`physical` decides what belongs together."""
    available = ["1@a", "2@a", "1@b"]
    chosen = choose("balanced", available, (), 1, physical=lambda text: text.partition("@")[2])
    assert chosen == ["1@a"]
    assert choose("balanced", available, (), 1) == ["1@a"]
    chosen = choose("none", available, (), 2, physical=lambda text: text.partition("@")[2])
    assert chosen == ["1@a", "1@b"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("must_include", "size", "text"),
    [
        ((), 5, "cannot prefer 5 of 4 available devices: there are not that many"),
        ((), -1, "cannot prefer -1 of 4 available devices"),
        (("a-0", "a-1"), 1, "cannot prefer 1 of 4 available devices: 2 must be included"),
        (("z-9",), 2, "z-9 must be included and is not available"),
    ],
)
def test_an_impossible_size_is_an_error(
    policy: str, must_include: tuple[str, ...], size: int, text: str
) -> None:
    """A size that cannot be had is an error, not a shorter list."""
    with pytest.raises(ImpossiblePreference, match=re.escape(text)) as caught:
        choose(policy, ["a-0", "a-1", "b-0", "b-1", "b-1"], must_include, size)
    assert (caught.value.size, caught.value.available) == (size, 4)


@st.composite
def requests(draw: st.DrawFn) -> ContainerPreferredRequest:
    """Make requests a kubelet could send."""
    available = draw(
        st.lists(st.builds("card{}-{}".format, st.integers(0, 5), st.integers(0, 9)), unique=True)
    )
    must_include = draw(st.lists(st.sampled_from(available), unique=True)) if available else []
    size = draw(st.integers(len(must_include), len(available)))
    return ContainerPreferredRequest(tuple(available), tuple(must_include), size)


@settings(deadline=None)
@given(st.sampled_from(list(POLICIES)), requests(), st.randoms())
def test_every_policy_answers_rightly(
    policy: str, request: ContainerPreferredRequest, shuffler: random.Random
) -> None:
    """An answer has the right size, unique available IDs, must-include first, no chance."""
    chosen = choose(policy, request.available, request.must_include, request.size)
    assert len(chosen) == len(set(chosen)) == request.size
    assert set(chosen) <= set(request.available)
    assert set(chosen[: len(request.must_include)]) == set(request.must_include)
    again = list(request.available)
    shuffler.shuffle(again)
    assert choose(policy, again, request.must_include, request.size) == chosen


@settings(deadline=None)
@given(requests())
def test_packed_uses_the_lowest_ids(request: ContainerPreferredRequest) -> None:
    """Packed leaves no lower ID behind than the highest it picked."""
    chosen = choose("packed", request.available, (), request.size)
    assert chosen == sorted(request.available, key=natural_key)[: request.size]


@settings(deadline=None)
@given(requests())
def test_balanced_leaves_cards_level(request: ContainerPreferredRequest) -> None:
    """Balanced never takes from a card that has two fewer free shares than another one."""
    chosen = choose("balanced", request.available, (), request.size)
    before = Counter(map(physical_device, request.available))
    taken = Counter(map(physical_device, chosen))
    left = {card: before[card] - taken[card] for card in before}
    for card in taken:
        assert left[card] + 1 >= max(left.values())


@settings(deadline=None)
@given(requests())
def test_policy_none_takes_one_share_of_each_card_first(request: ContainerPreferredRequest) -> None:
    """None takes a second share of a card only when every card has given one."""
    chosen = choose("none", request.available, (), request.size)
    cards = set(map(physical_device, request.available))
    taken = Counter(map(physical_device, chosen))
    if max(taken.values(), default=0) > 1:
        assert set(taken) == cards


def test_a_policy_as_an_ability() -> None:
    """Inheriting `PolicyAllocator` and naming a policy is all a plugin needs."""

    class Cards(PolicyAllocator):
        allocation_policy = "distributed"

        def count_shares(self) -> dict[str, int]:
            return {"card0": 4, "card1": 3}

    container = ContainerPreferredRequest(("card0-1", "card1-0", "card1-1", "card1-2"), (), 2)
    request = PreferredAllocationRequest((container, container))
    answer = Cards().get_preferred_allocation(request)
    assert answer == PreferredAllocationResponse((["card1-0", "card1-1"],) * 2)
    assert isinstance(Cards(), kd.PreferredAllocator)


def test_a_misspelt_policy_is_named() -> None:
    """A policy that does not exist is refused when the class is made."""
    text = "unknown allocation policy 'balance' (one of none, balanced, packed, distributed)"
    with pytest.raises(UsageError, match=re.escape(text)):
        type("Cards", (PolicyAllocator,), {"allocation_policy": "balance"})
    with pytest.raises(UsageError, match=re.escape(text)):
        choose("balance", [], [], 0)
