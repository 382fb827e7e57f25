"""Sums over subsets, compared with a loop over all subsets."""

from functools import reduce
from itertools import product
from operator import or_

from hypothesis import given
from hypothesis import strategies as st

from kubedevices.node.topology.hints import (
    all_unions,
    sum_over_subsets,
    undo_sum_over_subsets,
)

tables = st.integers(0, 5).flatmap(
    lambda places: st.lists(st.integers(-9, 9), min_size=1 << places, max_size=1 << places)
)


@given(tables)
def test_a_sum_covers_every_subset(table: list[int]) -> None:
    """Each entry is the sum of the entries whose index has only bits of its index."""
    expected = [
        sum(value for index, value in enumerate(table) if index & ~whole == 0)
        for whole in range(len(table))
    ]
    assert sum_over_subsets(table) == expected
    assert undo_sum_over_subsets(expected) == table


few_sets = st.lists(st.integers(0, 31), max_size=6)


@given(st.lists(few_sets, max_size=3))
def test_all_unions_are_those_of_the_product(lists: list[list[int]]) -> None:
    """Exactly the unions of one set from each list.

    Without lists, the only union is the empty set.
    """
    unions = {reduce(or_, chosen, 0) for chosen in product(*lists)}
    assert all_unions(lists, 5) == unions
