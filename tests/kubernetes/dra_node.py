"""A DRA driver as a process on the node of a real Kubernetes, and pods with its devices."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kubedevices.manifests.dra_access import RULES
from tests.kubernetes.cluster import BUSYBOX, Cluster

DRIVER = "dra.test"
GROUP = "resource.k8s.io/v1"


class Driver:
    """The driver as a process on the node, with a service account of minimal rights.

    `more` are further arguments of `simulate`; with `--mode-file` it starts as a device
    plugin.
    """

    def __init__(self, cluster: Cluster, devices: int, *more: str, domain: str = DRIVER) -> None:
        self.cluster, self._devices, self.domain = cluster, devices, domain
        self._more = more if "--mode-file" in more else ("--mode", "dra", *more)
        self.process: subprocess.Popen[bytes] | None = None
        self.config = cluster.directory / "dra.kubeconfig"
        self.control = cluster.directory / f"{domain}.sock"
        self._log, self._log_start = cluster.directory / "log" / "driver.log", 0

    def start(self) -> None:
        simulate = [sys.executable, "-m", "kubedevices.cli", "simulate", *self._more]
        simulate += ["--resource-name", f"{self.domain}/widget", "--env-prefix", "WIDGET"]
        simulate += ["--number-devices", str(self._devices), "--kubeconfig", str(self.config)]
        simulate += ["--control-socket", str(self.control)]
        with self._log.open("ab") as log:
            self._log_start = log.tell()
            self.process = subprocess.Popen(self.cluster.words("exec", *simulate), stderr=log)

    def has_published(self) -> bool:
        """Whether this process has written its slices; slices of an earlier process may exist."""
        return b"are published on node" in self._log.read_bytes()[self._log_start :]

    def stop(self) -> None:
        """SIGTERM."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(30)

    def kill(self) -> None:
        """SIGKILL, as the kernel does when memory is short."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)

    def tell(self, step: str) -> None:
        words = [sys.executable, "-m", "kubedevices.cli", "simulate", "--tell", step]
        self.cluster("exec", *words, "--control-socket", str(self.control))

    def slices(self) -> list[Any]:
        found: list[Any] = self.cluster.get("resourceslices")["items"]
        return [each for each in found if each["spec"]["driver"] == self.domain]

    def published(self) -> list[str]:
        return [each["name"] for part in self.slices() for each in part["spec"].get("devices", [])]

    def cdi_files(self) -> list[Path]:
        return sorted(self.cluster.cdi_dir.glob(f"kubedevices_{self.domain}-claim_*"))


def account(cluster: Cluster, config: Path) -> None:
    """Write a kubeconfig for a service account with only the rights of a driver."""
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


def make_class(cluster: Cluster, name: str, domain: str = DRIVER, **spec: Any) -> None:
    """Create the DeviceClass of a driver's widgets."""
    expression = (
        f'device.driver == "{domain}" && '
        f'device.attributes["{domain}"].?type.orValue("") == "widget"'
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
        cluster.wait("a driver that has published", driver.has_published)
        cluster.wait("published devices", lambda: len(driver.published()) == devices)
        yield driver
    finally:
        driver.stop()


@contextmanager
def namespace_for(driver: Driver) -> Iterator[str]:
    """Give a namespace; before the driver ends, its pods are deleted and all claims unprepared."""
    cluster = driver.cluster
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
    """Wait for a pod to be ready; return the variables of its devices."""
    ready = ("--for=condition=Ready", f"pod/{name}", "--timeout=90s")
    cluster.kubectl("wait", f"--namespace={namespace}", *ready, timeout=120)
    cluster.wait("its environment", lambda: logs_of(cluster, namespace, name))
    return [line for line in logs_of(cluster, namespace, name) if line.startswith("WIDGET_")]


def logs_of(cluster: Cluster, namespace: str, name: str) -> list[str]:
    return cluster.kubectl("logs", f"--namespace={namespace}", name).splitlines()
