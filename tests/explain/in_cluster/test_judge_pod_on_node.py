"""Whether a pod may run on a node."""

from typing import Any

import pytest

from kubedevices.explain.in_cluster.judge_pod_on_node import why_not_on, why_silent
from kubedevices.explain.in_cluster.objects import ClusterObjects
from tests.explain.cluster_rig import named


def a_pod(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    containers = [{"resources": {"requests": {"cpu": cpu}}}]
    return named(name, metadata={"namespace": "a"}, spec={"containers": containers, **spec})


@pytest.mark.parametrize(
    ("used", "told"),
    [
        ("2", ""),
        ("3", "too little cpu: the pod asks for 2, 1 of 4 left"),
        ("4", ", 0 of 4 left"),
        ("6", ", 0 of 4 left"),
    ],
    ids=["room", "too little", "full", "beyond full"],
)
def test_a_node_says_how_much_is_left(used: str, told: str) -> None:
    """Also a node that was made smaller under its pods."""
    node = named("node1", status={"allocatable": {"cpu": "4"}})
    cluster = ClusterObjects(pods=[a_pod("old", used, nodeName="node1")], listed_nodes=[node])
    why = why_not_on(a_pod("new", "2"), node, cluster)
    assert why.endswith(told)
    assert bool(why) is bool(told)


@pytest.mark.parametrize(
    ("conditions", "why"),
    [
        ([], ""),
        ([{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": "True"}], ""),
        ([{"type": "Ready", "status": "Unknown"}], "is not ready: Ready is Unknown"),
        (
            [{"type": "Ready", "status": "False", "message": "no CNI", "lastTransitionTime": "9"}],
            "is not ready since 9: no CNI",
        ),
    ],
)
def test_only_a_node_that_is_not_ready_is_silent(conditions: list[Any], why: str) -> None:
    """A node has other conditions too, whose good status is False."""
    assert why_silent(named("node1", status={"conditions": conditions})) == why
