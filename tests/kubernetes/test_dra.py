"""`simulate --mode dra` beside a real kubelet, scheduler and API server."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.cluster import BUSYBOX, Cluster

pytestmark = [pytest.mark.real_kubernetes, pytest.mark.timeout(600)]

DRIVER = "dra.test"
GROUP = "resource.k8s.io/v1"
RULES = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
    {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get"]},
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceslices"],
        "verbs": ["list", "watch", "create", "update", "delete"],
    },
]
"""All that a driver may do; docs/dra.md has the same."""


class Driver:
    """The driver as a process on the node, with a service account that may do what it needs."""

    def __init__(self, cluster: Cluster, devices: int) -> None:
        self.cluster, self._devices = cluster, devices
        self.process: subprocess.Popen[bytes] | None = None
        self.config = cluster.directory / "dra.kubeconfig"
        self.control = cluster.directory / "dra.sock"

    def start(self) -> None:
        simulate = [sys.executable, "-m", "kubedevices.cli", "simulate", "--mode", "dra"]
        simulate += ["--resource-name", f"{DRIVER}/widget", "--env-prefix", "WIDGET"]
        simulate += ["--number-devices", str(self._devices), "--kubeconfig", str(self.config)]
        simulate += ["--control-socket", str(self.control)]
        self.process = subprocess.Popen(self.cluster.words("exec", *simulate))

    def kill(self) -> None:
        """SIGKILL, as for a process without memory."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)

    def tell(self, step: str) -> None:
        words = [sys.executable, "-m", "kubedevices.cli", "simulate", "--tell", step]
        self.cluster("exec", *words, "--control-socket", str(self.control))

    def slices(self) -> list[Any]:
        found: list[Any] = self.cluster.get("resourceslices")["items"]
        return [each for each in found if each["spec"]["driver"] == DRIVER]

    def published(self) -> list[str]:
        return [each["name"] for part in self.slices() for each in part["spec"]["devices"]]

    def cdi_files(self) -> list[Path]:
        return sorted(self.cluster.cdi_dir.glob(f"kubedevices_{DRIVER}-claim_*"))


def account(cluster: Cluster, config: Path) -> None:
    """Write a kubeconfig for a service account with just the rights of a driver."""
    name = {"metadata": {"name": "dra-driver"}}
    rbac = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": "dra-driver", "namespace": "default"}
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": "dra-driver"}
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount"},
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "rules": RULES},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "roleRef": role,
            "subjects": [subject],
        },
    ]
    for each in objects:
        cluster.kubectl("apply", "--filename=-", stdin=json.dumps(each | name))
    document = json.loads(cluster.kubectl("config", "view", "--raw", "--output=json"))
    document["users"][0]["user"] = {"token": cluster.kubectl("create", "token", "dra-driver")}
    config.write_text(json.dumps(document))
    config.chmod(0o600)


def make_class(cluster: Cluster, name: str, **spec: Any) -> None:
    """Make the class of the driver's widgets."""
    expression = (
        f'device.driver == "{DRIVER}" && '
        f'device.attributes["{DRIVER}"].?type.orValue("") == "widget"'
    )
    made = {
        "apiVersion": GROUP,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}], **spec},
    }
    cluster.kubectl("apply", "--filename=-", stdin=json.dumps(made))


@contextmanager
def running_driver(cluster: Cluster, devices: int = 2) -> Iterator[Driver]:
    """Run a driver whose widgets are of the class `widget`."""
    driver = Driver(cluster, devices)
    account(cluster, driver.config)
    make_class(cluster, "widget")
    driver.start()
    try:
        cluster.wait("published devices", lambda: len(driver.published()) == devices)
        yield driver
    finally:
        assert driver.process is not None
        driver.process.terminate()
        driver.process.wait(30)


@pytest.fixture
def driver(cluster: Cluster) -> Iterator[Driver]:
    with running_driver(cluster) as started:
        yield started


@pytest.fixture
def namespace(cluster: Cluster, driver: Driver) -> Iterator[str]:
    """Give a namespace; its pods are gone, and all claims given back, before the driver ends."""
    with cluster.namespace("dra-test") as name:
        request = {"name": "it", "exactly": {"deviceClassName": "widget"}}
        template = {
            "apiVersion": GROUP,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "widget", "namespace": name},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        }
        cluster.kubectl("create", "--filename=-", stdin=json.dumps(template))
        yield name
        cluster.kubectl("delete", "pods", "--all", f"--namespace={name}", "--now", timeout=120)
        cluster.wait("no CDI file is left", lambda: not driver.cdi_files())
    cluster.wait("an empty name", lambda: cluster.run("kubectl", "get", "ns", name).returncode)


def create_pod(cluster: Cluster, namespace: str, name: str, **limits: int) -> None:
    """Create a pod that prints its environment and waits; without `limits` it has a claim."""
    container: dict[str, Any] = {
        "name": "main",
        "image": BUSYBOX,
        "command": ["sh", "-c", r"tr '\0' '\n' </proc/1/environ; sleep 100000"],
    }
    spec: dict[str, Any] = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    if limits:
        container["resources"] = {"limits": {f"{DRIVER}/{key}": n for key, n in limits.items()}}
    else:
        container["resources"] = {"claims": [{"name": "w"}]}
        spec["resourceClaims"] = [{"name": "w", "resourceClaimTemplateName": "widget"}]
    metadata = {"name": name, "namespace": namespace}
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    cluster.kubectl("create", "--filename=-", stdin=json.dumps(made))


def widgets_of(cluster: Cluster, namespace: str, name: str) -> list[str]:
    """Wait for a pod to be ready; return the variables that are its devices."""
    ready = ("--for=condition=Ready", f"pod/{name}", "--timeout=90s")
    cluster.kubectl("wait", f"--namespace={namespace}", *ready, timeout=120)
    cluster.wait("its environment", lambda: logs_of(cluster, namespace, name))
    return [line for line in logs_of(cluster, namespace, name) if line.startswith("WIDGET_")]


def logs_of(cluster: Cluster, namespace: str, name: str) -> list[str]:
    return cluster.kubectl("logs", f"--namespace={namespace}", name).splitlines()


def test_pods_get_the_devices_of_their_claims(
    cluster: Cluster, driver: Driver, namespace: str
) -> None:
    """Each its own; what one gives back the next one gets."""
    for name in ("first", "second"):
        create_pod(cluster, namespace, name)
    held = [widgets_of(cluster, namespace, name) for name in ("first", "second")]
    assert sorted(map(len, held)) == [1, 1]
    assert held[0] != held[1]
    assert len(driver.cdi_files()) == 2
    create_pod(cluster, namespace, "third")
    cluster.kubectl("delete", "pod", "first", f"--namespace={namespace}", "--now")
    assert widgets_of(cluster, namespace, "third") == held[0]
    assert len(driver.cdi_files()) == 2


def test_slices_are_back_after_a_kubelet_restart(cluster: Cluster, driver: Driver) -> None:
    """A kubelet deletes them when it starts: within 5 s they are there again."""
    before = [each["metadata"]["uid"] for each in driver.slices()]
    cluster("restart", "kubelet")
    started = time.monotonic()
    cluster.wait(
        "new slices",
        lambda: driver.published() and driver.slices()[0]["metadata"]["uid"] not in before,
        timeout=5,
    )
    assert len(driver.published()) == 2, time.monotonic() - started


def test_a_killed_driver_comes_back(cluster: Cluster, driver: Driver, namespace: str) -> None:
    """Pods run on, are deleted while it is away, and new pods wait for it."""
    create_pod(cluster, namespace, "stays")
    create_pod(cluster, namespace, "goes")
    stays, goes = (widgets_of(cluster, namespace, name) for name in ("stays", "goes"))
    driver.kill()
    cluster.kubectl("delete", "pod", "goes", f"--namespace={namespace}", "--wait=false")
    create_pod(cluster, namespace, "waits")
    driver.start()
    assert widgets_of(cluster, namespace, "waits") == goes
    assert widgets_of(cluster, namespace, "stays") == stays
    cluster.wait("two claims", lambda: len(driver.cdi_files()) == 2)


def test_a_reboot_keeps_pods_and_devices_together(
    cluster: Cluster, driver: Driver, namespace: str
) -> None:
    """Boot ID and CDI directory are new; the pod is started again with its own device."""
    create_pod(cluster, namespace, "stays")
    before = widgets_of(cluster, namespace, "stays")
    cluster("reboot", timeout=120)
    driver.kill()  # the process is gone with the node
    assert not driver.cdi_files()
    driver.start()

    def restarts() -> int:
        (status,) = cluster.get("pod", "stays", f"--namespace={namespace}")["status"][
            "containerStatuses"
        ]
        return int(status["restartCount"]) if "running" in status["state"] else 0

    cluster.wait("a new container", restarts, timeout=120)
    assert widgets_of(cluster, namespace, "stays") == before
    assert len(driver.cdi_files()) == 1


def test_an_unhealthy_device_is_seen(cluster: Cluster, driver: Driver, namespace: str) -> None:
    """In the status of its pod and as a taint, and no longer when it is well again."""
    create_pod(cluster, namespace, "holds")
    widgets_of(cluster, namespace, "holds")

    def seen() -> tuple[str, int]:
        pod = cluster.get("pod", "holds", f"--namespace={namespace}")
        (status,) = pod["status"]["containerStatuses"]
        (device,) = status["allocatedResourcesStatus"][0]["resources"]
        taints = [
            taint
            for each in driver.slices()
            for found in each["spec"]["devices"]
            for taint in found.get("taints", [])
            if taint["key"] == f"{DRIVER}/unhealthy" and taint["effect"] == "NoSchedule"
        ]
        return device["health"], len(taints)

    cluster.wait("healthy", lambda: seen() == ("Healthy", 0))
    driver.tell('{set: {id: "*", health: Unhealthy}}')
    cluster.wait("unhealthy", lambda: seen() == ("Unhealthy", 2), timeout=20)
    driver.tell('{set: {id: "*", health: Healthy}}')
    cluster.wait("healthy again", lambda: seen() == ("Healthy", 0), timeout=20)


def test_a_pod_with_limits_gets_a_device(cluster: Cluster, driver: Driver, namespace: str) -> None:
    """The class says the name of the resource; the pod is that of a device plugin."""
    make_class(cluster, "widget", extendedResourceName=f"{DRIVER}/widget")
    create_pod(cluster, namespace, "limited", widget=1)
    assert len(widgets_of(cluster, namespace, "limited")) == 1
    assert len(driver.cdi_files()) == 1


def test_more_devices_than_a_slice_holds(cluster: Cluster) -> None:
    """129 devices are two slices of one generation, and 64 fit where there is a taint."""
    with running_driver(cluster, devices=129) as driver:
        sizes = sorted(len(each["spec"]["devices"]) for each in driver.slices())
        assert sizes == [1, 128]
        driver.tell('{set: {id: "*-7", health: Unhealthy}}')
        cluster.wait("three slices", lambda: len(driver.slices()) == 3)

        def is_complete() -> bool:
            pools = [each["spec"]["pool"] for each in driver.slices()]
            return len(driver.published()) == 129 and all(each == pools[0] for each in pools)

        cluster.wait("one generation", is_complete)
