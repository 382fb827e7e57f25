"""How many pods with devices run again after a reboot of a real Kubernetes node.

The plugin runs in two ways: as a process of the host that starts before the kubelet, and as a
DaemonSet, which the kubelet has to start. A pod that the kubelet admits before the plugin has
registered fails with UnexpectedAdmissionError and stays failed. `python -m benchmarks.reboot` needs
root and the program `cluster`; see docs/development/real-kubernetes.md. The image of the DaemonSet
is built in the same way as for `python -m benchmarks footprint`.
"""

import argparse
import contextlib
import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks import measure
from kubedevices.cli.cluster.manifests import IMAGE
from kubedevices.manifests.deployment import Deployment
from kubedevices.manifests.workload import documents
from tests.image_host import build_image, image_host
from tests.kubernetes.cluster import BUSYBOX, Cluster, running_cluster

RESOURCE = "reboot.test/widget"
NAMESPACE = "reboot"
PODS = 50
TIMEOUT = 240
"""Seconds for all pods to be admitted or refused: two cores start fifty containers in a minute."""


class Size(NamedTuple):
    """How many pods, and how many reboots for each way to run the plugin."""

    pods: int
    reboots: int


FULL, QUICK = Size(PODS, 10), Size(5, 1)


def pod(number: int) -> object:
    """Return a pod that requests one device and sleeps."""
    container = {
        "name": "main",
        "image": BUSYBOX,
        "command": ["sleep", "1000000"],
        "resources": {"limits": {RESOURCE: 1}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"p{number}", "namespace": NAMESPACE, "labels": {"app": "reboot"}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
    }


@contextlib.contextmanager
def host_process(cluster: Cluster, devices: int) -> Iterator[None]:
    """Run the plugin as a process of the host, which runs before the kubelet starts."""
    command = ["nice", "-n", "-10", sys.executable, "-m", "kubedevices.cli", "simulate"]
    command += ["--resource-name", RESOURCE, "--number-devices", str(devices)]
    command += ["--socket-dir", str(cluster.plugin_dir)]
    with (cluster.directory / "plugin.log").open("a") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def daemon_set(cluster: Cluster, devices: int) -> Iterator[None]:
    """Run the plugin as the DaemonSet of our manifests."""
    env = {"RESOURCE_NAME": RESOURCE, "NUMBER_DEVICES": str(devices)}
    manifests = documents(Deployment("simulate", IMAGE, namespace="plugin", env=env))
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
    cluster.kubectl("apply", "--filename=-", stdin=text)
    try:
        yield
    finally:
        cluster.kubectl("delete", "namespace", "plugin", timeout=120)


WAYS = {"process of the host, before the kubelet": host_process, "DaemonSet": daemon_set}


def survivors(cluster: Cluster, size: Size) -> list[int]:
    """Return the number of pods that ran again after each reboot; failed pods are created again."""
    found = []
    for _ in range(size.reboots):
        fill(cluster, size.pods)
        before = started(cluster)
        cluster("reboot", timeout=TIMEOUT)
        is_over = functools.partial(all_settled, cluster, before)
        cluster.wait("each pod is back or refused", is_over, TIMEOUT)
        found.append(sum(each["status"]["phase"] == "Running" for each in pods(cluster)))
    return found


def all_settled(cluster: Cluster, before: dict[str, str]) -> bool:
    """Whether each pod has failed, or runs another container than `before` the reboot."""
    return all(
        each["status"]["phase"] == "Failed"
        or containers(each).get("main") not in (None, before[each["metadata"]["name"]])
        for each in pods(cluster)
    )


def pods(cluster: Cluster) -> list[dict[str, dict[str, str]]]:
    """Return the pods of the benchmark."""
    return list(cluster.get("pods", f"--namespace={NAMESPACE}")["items"])


def containers(pod_: object) -> dict[str, str]:
    """Return the IDs of the running containers of a pod, by the names of the containers."""
    statuses = pod_["status"].get("containerStatuses", ())  # type: ignore[index]
    return {each["name"]: each["containerID"] for each in statuses if "running" in each["state"]}


def started(cluster: Cluster) -> dict[str, str]:
    """Return the ID of the container of each pod, by the name of the pod."""
    return {each["metadata"]["name"]: containers(each)["main"] for each in pods(cluster)}


def fill(cluster: Cluster, wanted: int) -> None:
    """Delete failed pods, and create pods until `wanted` pods run."""
    cluster.kubectl(
        *("delete", "pods", f"--namespace={NAMESPACE}", "--field-selector=status.phase=Failed"),
        timeout=TIMEOUT,
    )
    cluster.wait("all devices", lambda: cluster.allocatable(RESOURCE) == wanted, TIMEOUT)
    existing = {each["metadata"]["name"] for each in pods(cluster)}
    missing = [pod(number) for number in range(wanted) if f"p{number}" not in existing]
    if missing:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": missing})
        cluster.kubectl("create", "--filename=-", stdin=text, timeout=TIMEOUT)
    cluster.wait(
        "all pods run", lambda: all("main" in containers(each) for each in pods(cluster)), TIMEOUT
    )


def main() -> None:
    """Print the table of docs/performance.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reboot", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only test that the benchmark works")
    size = QUICK if parser.parse_args().quick else FULL
    rows = []
    with running_cluster() as cluster, tempfile.TemporaryDirectory() as directory:
        with image_host() as host:
            build_image(host)
            host.podman("save", f"--output={directory}/image.tar", host.image, timeout=TIMEOUT)
        cluster("load", f"{directory}/image.tar", timeout=TIMEOUT)
        for name, way in WAYS.items():
            with cluster.namespace(NAMESPACE), way(cluster, size.pods):
                found = survivors(cluster, size)
            cluster.wait("the end of the pods", lambda: not pods(cluster), TIMEOUT)
            rows.append([name, str(size.pods), str(size.reboots), " ".join(map(str, found))])
    header = ["plugin", "pods with a device", "reboots", "pods that came back"]
    measure.table("A reboot of a node", header, rows)


if __name__ == "__main__":
    main()
