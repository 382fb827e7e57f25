"""Settings of the topology manager, and their errors in the kubelet's words."""

from collections.abc import Mapping, Sequence

import pytest

from kubedevices.errors import UsageError
from kubedevices.node.topology.options import TopologySettings, check_settings

EIGHT = range(8)


def test_all_settings() -> None:
    """Policy, scope, nodes and distances by node number are in the result."""
    found = check_settings(
        "restricted",
        "pod",
        {"prefer-closest-numa-nodes": "true", "max-allowable-numa-nodes": "9"},
        numa_nodes=[8, 0],
        distances={0: [10, 20], 8: [21, 10]},
    )
    assert found == TopologySettings(
        "restricted", "pod", (0, 8), True, {0: {0: 10, 8: 20}, 8: {0: 21, 8: 10}}
    )


def test_policy_none_ignores_everything_else() -> None:
    """With policy none neither scope nor options nor nodes are checked."""
    found = check_settings("none", "galaxy", {"x": "y"}, numa_nodes=range(64))
    assert found == TopologySettings()


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_true_in_all_spellings_of_go(text: str) -> None:
    """The spellings that Go's strconv.ParseBool accepts."""
    options = {"prefer-closest-numa-nodes": text}
    assert check_settings("best-effort", options=options).prefer_closest


@pytest.mark.parametrize(
    ("policy", "scope", "options", "numa_nodes", "message"),
    [
        ("x", "container", {}, (), 'unknown policy: "x"'),
        ("restricted", "x", {}, (), 'unknown scope: "x"'),
        ("restricted", "pod", {"x": "1"}, (), 'unknown Topology Manager Policy option: "x"'),
        (
            "restricted",
            "pod",
            {"prefer-closest-numa-nodes": "yes"},
            (),
            (
                'bad value for option "prefer-closest-numa-nodes": '
                'strconv.ParseBool: parsing "yes": invalid syntax'
            ),
        ),
        (
            "restricted",
            "pod",
            {"max-allowable-numa-nodes": "many"},
            (),
            (
                'unable to convert policy option to integer "max-allowable-numa-nodes": '
                'strconv.Atoi: parsing "many": invalid syntax'
            ),
        ),
        (
            "restricted",
            "pod",
            {"max-allowable-numa-nodes": "7"},
            (),
            'the minimum value of "max-allowable-numa-nodes" should not be less than 8',
        ),
        (
            "restricted",
            "pod",
            {},
            range(9),
            "unsupported on machines with more than 8 NUMA Nodes",
        ),
        (
            "restricted",
            "pod",
            {"prefer-closest-numa-nodes": "true"},
            (0, 1),
            "cannot discover NUMA topology: error getting NUMA distances from cadvisor",
        ),
    ],
)
def test_errors_have_the_kubelets_words(
    policy: str, scope: str, options: Mapping[str, str], numa_nodes: Sequence[int], message: str
) -> None:
    """Each error is a usage error with the kubelet's text."""
    with pytest.raises(UsageError) as caught:
        check_settings(policy, scope, options, numa_nodes=numa_nodes)
    assert str(caught.value) == message


def test_the_limit_of_nodes_can_be_raised() -> None:
    """Nine nodes are allowed with a higher limit."""
    options = {"max-allowable-numa-nodes": "9"}
    found = check_settings("restricted", options=options, numa_nodes=range(9))
    assert found.numa_nodes == tuple(range(9))
