"""Sums over all subsets of a set of NUMA nodes at once. For topology hints and their merge.

A table has one entry per subset, at the index whose bits are its members: 2**n entries for n nodes,
and n * 2**n additions where going through all pairs of subsets would take 4**n steps.
"""

from collections.abc import Iterable
from operator import add, mul, sub


def sum_over_subsets(table: list[int]) -> list[int]:
    """Return for each set the sum of `table` over all its subsets, itself included.

    Each round adds the entries without the lowest member to those with it, and moves that member to
    the top of the index; after one round per member all are back in their places.
    """
    for _ in range(len(table).bit_length() - 1):
        without, having = table[0::2], table[1::2]
        table = without + list(map(add, without, having))
    return table


def undo_sum_over_subsets(sums: list[int]) -> list[int]:
    """Return the table that `sum_over_subsets` turns into `sums`."""
    for _ in range(len(sums).bit_length() - 1):
        without, having = sums[0::2], sums[1::2]
        sums = without + list(map(sub, having, without))
    return sums


def all_unions(lists: Iterable[Iterable[int]], places: int) -> set[int]:
    """Return every union of one set from each list, all given as bits below `places`.

    Counts for each set how many choices lie within it, which is a product; what the sets within it
    do not account for are the choices whose union it is.
    """
    choices = [1] * (1 << places)
    for sets in lists:
        table = [0] * (1 << places)
        for each in sets:
            table[each] += 1
        choices = list(map(mul, choices, sum_over_subsets(table)))
    return {union for union, count in enumerate(undo_sum_over_subsets(choices)) if count}
