"""A plugin's DaemonSet moves behind the proxy, in a real cluster; pods come before and after."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubedevices.cli import main
from kubedevices.manifests.deployment import STATE_DIR, Deployment
from kubedevices.manifests.workload import objects
from tests.kubernetes.cluster import BUSYBOX, CLUSTER_TEST, Cluster
from tests.kubernetes.rollout import run_from_host, watched_api

pytestmark = [*CLUSTER_TEST, pytest.mark.timeout(600)]

KEPT, SHARED = "proxied.test/kept", "proxied.test/shared"
THEIRS = f"""\
resources:
- {{resourceName: {KEPT}, numberDevicesOnNode: 2, deviceIDPrefix: kept}}
- {{resourceName: {SHARED}, numberDevicesOnNode: 1, deviceIDPrefix: shared}}
"""
RULES = f"""\
resources:
  {KEPT}: {{hold: 5m}}
  {SHARED}: {{hold: 5m, share: {{replicas: 4}}}}
"""
LIMIT = 120
NODES = "--selector=kubernetes.io/os=linux"


class Moved:
    """A plugin's DaemonSet and the proxy in one namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace

    def kubectl(self, *arguments: object, **options: Any) -> str:
        return self.cluster.kubectl(f"--namespace={self.namespace}", *arguments, **options)

    def deploy(self, deployment: Deployment, *, surge: bool) -> None:
        made = objects(deployment)
        run_from_host(made[-1]["spec"]["template"]["spec"])
        if not surge:  # as the DaemonSets of most plugins are
            del made[-1]["spec"]["updateStrategy"]
        items = {"apiVersion": "v1", "kind": "List", "items": made}
        self.kubectl("apply", "--filename=-", stdin=json.dumps(items))

    def allocatable(self, kept: int | None, shared: int | None) -> None:
        """Wait until the API has this number of allocatable devices."""

        def is_so() -> bool:
            found = self.cluster.allocatable
            return (found(KEPT), found(SHARED)) == (kept, shared)

        self.cluster.wait(f"{kept} kept and {shared} shared", is_so, timeout=LIMIT)

    def rollout(self, name: str) -> None:
        self.kubectl("rollout", "status", f"daemonset/{name}", "--timeout=100s", timeout=LIMIT)

    def create(self, name: str, resource: str) -> None:
        container = {
            "name": "main",
            "image": BUSYBOX,
            "command": ["sleep", "1000"],
            "resources": {"limits": {resource: 1}},
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
        }
        self.kubectl("create", "--filename=-", stdin=json.dumps(pod))

    def ready(self, *names: str) -> None:
        pods = [f"pod/{name}" for name in names]
        self.kubectl("wait", "--for=condition=Ready", *pods, "--timeout=100s", timeout=LIMIT)

    def status(self, pod: str) -> Any:
        return json.loads(self.kubectl("get", "pod", pod, "--output=json"))["status"]


@pytest.fixture
def moved(cluster: Cluster) -> Iterator[Moved]:
    with cluster.namespace("proxy-test") as namespace:
        yield Moved(cluster, namespace)
        cluster.kubectl("uncordon", NODES)


def test_a_plugin_moves_behind_the_proxy(
    moved: Moved, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the printed patch. Then it is shared and upgraded, and a device is cordoned."""
    theirs = Deployment(
        "simulate", BUSYBOX, namespace=moved.namespace, name="theirs", config=THEIRS
    )
    proxy = Deployment("proxy", BUSYBOX, namespace=moved.namespace, name="proxy", config=RULES)
    moved.deploy(theirs, surge=False)
    moved.allocatable(2, 1)
    moved.create("before", KEPT)
    moved.deploy(proxy, surge=True)
    moved.ready("before")

    file, patch = tmp_path / "theirs.yaml", tmp_path / "patch.yaml"
    file.write_text(moved.kubectl("get", "daemonset", "theirs", "--output=yaml"))
    assert main(["manifests", "proxy", "--patch", str(file), "--image", BUSYBOX]) == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    run_from_host(printed["spec"]["template"]["spec"], "initContainers")
    patch.write_text(json.dumps(printed))
    moved.cluster.kubectl("cordon", NODES)  # the kubelet rejects pods while the plugin is away
    moved.kubectl("patch", "daemonset", "theirs", f"--patch-file={patch}")
    moved.create("during", KEPT)
    moved.rollout("theirs")
    moved.rollout("proxy")  # ready, because every resource of its file is served
    moved.allocatable(2, 4)
    moved.cluster.kubectl("uncordon", NODES)

    # Four pods on one device; a pod that was there before, and one that came meanwhile, run on.
    sharing = [f"shares-{number}" for number in range(4)]
    for name in sharing:
        moved.create(name, SHARED)
    moved.ready("before", "during", *sharing)
    assert moved.status("before")["containerStatuses"][0]["restartCount"] == 0

    # The plugin is upgraded, and is away meanwhile: the API never says so.
    seen: dict[str, list[str]] = {KEPT: [], SHARED: []}
    with (
        watched_api(moved.cluster, KEPT, seen[KEPT]),
        watched_api(moved.cluster, SHARED, seen[SHARED]),
    ):
        moved.kubectl("set", "env", "daemonset/theirs", "VERSION=2")
        moved.rollout("theirs")
    assert {name: {*numbers} for name, numbers in seen.items()} == {KEPT: {"2"}, SHARED: {"4"}}

    # The kubelet restarts: everything is there again, and a pod comes and goes.
    moved.cluster("restart", "kubelet")
    moved.allocatable(2, 4)
    moved.kubectl("delete", "pod", "during", "--now")
    moved.create("after", KEPT)
    moved.ready("before", "after", *sharing)

    # One device is cordoned: allocatable falls, and the pod that has it is told.
    (device,) = held(moved, "before")
    cordon = [sys.executable, "-m", "kubedevices.cli", "cordon", f"{KEPT}/{device}", "--anyway"]
    moved.cluster("exec", *cordon, "--reason", "fan", "--state-dir", STATE_DIR)
    moved.allocatable(1, 4)
    moved.cluster.wait("its health in the pod's status", lambda: is_told(moved.status("before")))


def held(moved: Moved, pod: str) -> list[str]:
    """Return the devices in the status of a pod."""
    (container,) = moved.status(pod)["containerStatuses"]
    return [
        each["resourceID"]
        for resource in container.get("allocatedResourcesStatus", [])
        for each in resource["resources"]
    ]


def is_told(status: Any) -> bool:
    (container,) = status["containerStatuses"]
    return any(
        each["health"] == "Unhealthy"
        for resource in container.get("allocatedResourcesStatus", [])
        for each in resource["resources"]
    )
