"""A plugin of ours at a real kubelet, and a pod that gets its device."""

import json
import subprocess
import sys

from tests.kubernetes.cluster import BUSYBOX, CLUSTER_TEST, Cluster

pytestmark = CLUSTER_TEST

RESOURCE = "cluster.test/widget"


def pod(name: str, namespace: str, command: str, devices: int = 1) -> str:
    """Return the manifest of a pod with some devices that runs a shell command."""
    container: dict[str, object] = {
        "name": "main",
        "image": BUSYBOX,
        "command": ["sh", "-c", command],
    }
    container["resources"] = {"limits": {RESOURCE: devices}}
    spec = {"restartPolicy": "Never", "containers": [container]}
    metadata = {"name": name, "namespace": namespace}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def test_a_pod_gets_the_environment_of_its_device(cluster: Cluster) -> None:
    """From `simulate` beside the kubelet to a process in a container, over a kubelet restart."""
    simulate = [sys.executable, "-m", "kubedevices.cli", "simulate", "--resource-name", RESOURCE]
    simulate += ["--number-devices", "2", "--env-prefix", "WIDGET"]
    plugin = subprocess.Popen(cluster.words("exec", *simulate))
    try:
        with cluster.namespace("cluster-test") as namespace:
            cluster.wait("2 widgets", lambda: cluster.allocatable(RESOURCE) == 2)
            cluster("restart", "kubelet")
            cluster.wait("2 widgets again", lambda: cluster.allocatable(RESOURCE) == 2)
            manifest = pod("first", namespace, r"tr '\0' '\n' </proc/1/environ; sleep 1000")
            cluster.kubectl("create", "--filename=-", stdin=manifest)
            ready = ("--for=condition=Ready", "pod/first", "--timeout=50s")
            cluster.kubectl("wait", f"--namespace={namespace}", *ready)
            assert "WIDGET_" in cluster.kubectl("logs", f"--namespace={namespace}", "first")
    finally:
        plugin.terminate()
        assert plugin.wait(30) == 0
