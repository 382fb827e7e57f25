"""Pods with devices over a reboot of the node."""

import pytest

from benchmarks import reboot
from tests.kubernetes.cluster import CLUSTER_TEST, Cluster

pytestmark = [*CLUSTER_TEST, pytest.mark.timeout(600)]


def test_pods_keep_their_devices_if_the_plugin_starts_first(cluster: Cluster) -> None:
    """The plugin is a process of the host that runs before the kubelet: all pods start again."""
    size = reboot.Size(pods=4, reboots=1)
    with cluster.namespace(reboot.NAMESPACE), reboot.host_process(cluster, size.pods):
        assert reboot.survivors(cluster, size) == [size.pods]
