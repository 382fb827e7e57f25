"""Sums over all subsets of a set of NUMA nodes at once. For topology hints and their merge.

A table has one entry per subset, at the index whose bits are its members: 2**n entries for n nodes,
and n * 2**n additions where going through all pairs of subsets would take 4**n steps.
"""

from collections.abc import Sequence
from operator import add, mul, sub


def sum_over_subsets(table: list[int]) -> list[int]:
    """Return for each set the sum of `table` over all its subsets, itself included."""
    if len(table) == 1:
        return table
    half = len(table) // 2
    low, high = sum_over_subsets(table[:half]), sum_over_subsets(table[half:])
    return low + list(map(add, low, high))


def undo_sum_over_subsets(sums: list[int]) -> list[int]:
    """Return the table that `sum_over_subsets` turns into `sums`."""
    if len(sums) == 1:
        return sums
    half = len(sums) // 2
    low, high = sums[:half], sums[half:]
    return undo_sum_over_subsets(low) + undo_sum_over_subsets(list(map(sub, high, low)))


def all_unions(one: Sequence[int], other: Sequence[int], places: int) -> set[int]:
    """Return every union of a set of `one` and a set of `other`, all given as bits.

    Counts for each set how many pairs lie within it, which is a product; what the sets within it
    do not account for are the pairs whose union it is.
    """
    products = map(mul, _within(one, places), _within(other, places))
    pairs = undo_sum_over_subsets(list(products))
    return {union for union, count in enumerate(pairs) if count}


def _within(sets: Sequence[int], places: int) -> list[int]:
    table = [0] * (1 << places)
    for each in sets:
        table[each] += 1
    return sum_over_subsets(table)
