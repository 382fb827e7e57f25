"""Sets of NUMA nodes, as values. For topology hints and policies, and for lists like `0-1,3`.

A set is stored as a bit mask, so that the merge of hints is integer arithmetic. `host.sysfs` reads
the nodes of the machine.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, total_ordering

from kubedevices.errors import UsageError

NODE_LIMIT = 1024
"""Linux numbers NUMA nodes from 0 to 1023."""

ELSEWHERE = 1 << NODE_LIMIT
"""The bit for every number that no machine has: a plugin may report any 64-bit integer."""

_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


class BadNumaNodes(UsageError):
    """A list of NUMA nodes that is not of the form `0-1,3`."""

    def __init__(self, text: str, rule: str) -> None:
        self.text, self.rule = text, rule
        super().__init__(f"NUMA nodes {text!r}: {rule}")


@lru_cache(maxsize=4096)
def mask_of(nodes: tuple[int, ...]) -> int:
    """Return `nodes` as bits; impossible numbers become `ELSEWHERE`."""
    mask = 0
    for node in nodes:
        mask |= 1 << node if 0 <= node < NODE_LIMIT else ELSEWHERE
    return mask


def nodes_of(mask: int) -> tuple[int, ...]:
    """Return the node numbers of a bit mask, ascending, without `ELSEWHERE`."""
    mask &= ELSEWHERE - 1
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return tuple(found)


@total_ordering
@dataclass(frozen=True, slots=True, init=False, repr=False)
class NumaNodes:
    """A frozen set of NUMA nodes; `a < b` if `a` is narrower.

    The narrower set has fewer nodes, or as many nodes and the smaller bit mask. The merge of
    topology hints prefers sets in this order.
    """

    mask: int

    def __init__(self, nodes: Iterable[int] = ()) -> None:
        object.__setattr__(self, "mask", mask_of(tuple(nodes)))

    @classmethod
    def of_mask(cls, mask: int) -> "NumaNodes":
        """Return the set of a bit mask."""
        made = cls.__new__(cls)
        object.__setattr__(made, "mask", mask)
        return made

    def __iter__(self) -> Iterator[int]:
        """Iterate over the node numbers, ascending."""
        return iter(nodes_of(self.mask))

    def __len__(self) -> int:
        return self.mask.bit_count()

    def __contains__(self, node: object) -> bool:
        return isinstance(node, int) and 0 <= node < NODE_LIMIT and bool(self.mask >> node & 1)

    def __and__(self, other: "NumaNodes") -> "NumaNodes":
        return NumaNodes.of_mask(self.mask & other.mask)

    def __or__(self, other: "NumaNodes") -> "NumaNodes":
        return NumaNodes.of_mask(self.mask | other.mask)

    def __lt__(self, other: "NumaNodes") -> bool:
        return (len(self), self.mask) < (len(other), other.mask)

    def __repr__(self) -> str:
        return f"NumaNodes({list(self)})"


def parse_numa_nodes(text: str) -> tuple[int, ...]:
    """Return the nodes of `0-1,3`, the form of flags and of /sys/devices/system/node/online."""
    nodes: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise BadNumaNodes(text, f"{part.strip()!r} is neither a number nor a range like 0-3")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise BadNumaNodes(text, f"the range {part.strip()!r} goes backwards")
        if last >= NODE_LIMIT:
            raise BadNumaNodes(
                text, f"{last} is too large, nodes are numbered 0 to {NODE_LIMIT - 1}"
            )
        nodes.update(range(first, last + 1))
    return tuple(sorted(nodes))
