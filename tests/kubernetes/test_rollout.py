"""An update of our DaemonSet takes no device away, not for a moment."""

import pytest

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.rollout import DEVICES, Rollouts

pytestmark = pytest.mark.real_kubernetes


def test_a_rollout_leaves_no_gap(cluster: Cluster) -> None:
    """Neither in the API nor in the kubelet; pods that are made meanwhile get their devices."""
    with cluster.namespace("rollout-test") as namespace:
        rollouts = Rollouts(cluster, namespace)
        rollouts.deploy()
        figures = rollouts.roll(2, pods=3)
        assert figures.gaps == []
        assert set(figures.api) == {str(DEVICES)}
        assert figures.phases == {"Succeeded": 6}
        assert figures.questions > 10
