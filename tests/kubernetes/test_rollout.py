"""An update of our DaemonSet never removes a device, not even shortly."""

from tests.kubernetes.cluster import CLUSTER_TEST, Cluster
from tests.kubernetes.rollout import DEVICES, Rollouts

pytestmark = CLUSTER_TEST


def test_a_rollout_never_removes_devices(cluster: Cluster) -> None:
    """Neither in the API nor in the kubelet; pods that are created meanwhile get their devices."""
    with cluster.namespace("rollout-test") as namespace:
        rollouts = Rollouts(cluster, namespace)
        rollouts.deploy()
        figures = rollouts.roll(2, pods=3)
        assert figures.gaps == []
        assert set(figures.api) == {str(DEVICES)}
        assert figures.phases == {"Succeeded": 6}
        assert figures.questions > 10
