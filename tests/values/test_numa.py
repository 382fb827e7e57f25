"""Sets of NUMA nodes."""

import copy
import pickle
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubedevices.errors import UsageError
from kubedevices.values.numa import ELSEWHERE, NumaNodes, mask_of, nodes_of, parse_numa_nodes

node_sets = st.sets(st.integers(0, 70), max_size=6)


@given(node_sets)
def test_a_set_returns_its_nodes_in_order(nodes: set[int]) -> None:
    """Nodes go in in any order and come out ascending."""
    made = NumaNodes(nodes)
    assert list(made) == sorted(nodes)
    assert len(made) == len(nodes)
    assert all(node in made for node in nodes)
    assert nodes_of(mask_of(tuple(nodes))) == tuple(sorted(nodes))
    assert eval(repr(made)) == made


@given(node_sets, node_sets)
def test_sets_behave_as_sets(one: set[int], other: set[int]) -> None:
    """Equality, hash, intersection and union are those of the nodes."""
    assert NumaNodes(one) & NumaNodes(other) == NumaNodes(one & other)
    assert NumaNodes(one) | NumaNodes(other) == NumaNodes(one | other)
    assert (NumaNodes(one) == NumaNodes(other)) == (one == other)
    assert hash(NumaNodes(one)) == hash(NumaNodes(sorted(one)))


@given(node_sets, node_sets)
def test_the_narrower_set_is_less(one: set[int], other: set[int]) -> None:
    """Fewer nodes come first, then the smaller bit mask."""
    rank = [(len(nodes), sum(1 << node for node in nodes)) for nodes in (one, other)]
    assert (NumaNodes(one) < NumaNodes(other)) == (rank[0] < rank[1])
    assert (NumaNodes(one) >= NumaNodes(other)) == (rank[0] >= rank[1])


@pytest.mark.parametrize("node", [-1, 1024, 2**62, -(2**63)])
def test_a_number_that_no_machine_has_has_its_own_bit(node: int) -> None:
    """A plugin may report any 64-bit number; it neither counts as a node nor costs memory."""
    assert mask_of((node,)) == ELSEWHERE
    assert list(NumaNodes([node, 3])) == [3]
    assert node not in NumaNodes([node])


def test_a_set_is_frozen() -> None:
    """A set cannot change, can be a key, and survives copying and pickling."""
    nodes = NumaNodes([0, 2])
    with pytest.raises(FrozenInstanceError):
        nodes.mask = 7  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del nodes.mask
    assert copy.deepcopy(nodes) == pickle.loads(pickle.dumps(nodes)) == nodes
    assert {nodes: 1}[NumaNodes([2, 0])] == 1
    same_content: object = {0, 2}
    assert nodes != same_content
    assert "0" not in nodes


@pytest.mark.parametrize(
    ("text", "nodes"),
    [("0", (0,)), ("0-3", (0, 1, 2, 3)), ("0-1,8\n", (0, 1, 8)), ("3, 1", (1, 3)), ("", ())],
)
def test_a_list_as_the_kernel_writes_it(text: str, nodes: tuple[int, ...]) -> None:
    """Numbers and ranges, separated by commas."""
    assert parse_numa_nodes(text) == nodes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "NUMA nodes 'x': 'x' is neither a number nor a range like 0-3"),
        ("0,,1", "NUMA nodes '0,,1': '' is neither a number nor a range like 0-3"),
        ("3-1", "NUMA nodes '3-1': the range '3-1' goes backwards"),
        ("0-999999", "NUMA nodes '0-999999': 999999 is too large, nodes are numbered 0 to 1023"),
    ],
)
def test_an_invalid_list_of_numa_nodes(text: str, message: str) -> None:
    """What is wrong is said, with the part it is about."""
    with pytest.raises(UsageError) as caught:
        parse_numa_nodes(text)
    assert str(caught.value) == message
