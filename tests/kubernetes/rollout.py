"""Roll-outs of our DaemonSet on a real Kubernetes, and the devices that were missing meanwhile.

No image is built: the pods run this checkout with the Python of this host.
"""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubedevices.errors import KubedevicesError
from kubedevices.kubelet_api.pod_resources import PodResourcesClient
from kubedevices.manifests.deployment import Deployment
from kubedevices.manifests.workload import objects
from kubedevices.wire.grpc_channel import GrpcChannel
from tests.kubernetes.cluster import BUSYBOX, Cluster

RESOURCE = "cluster.test/rolled"
DEVICES = 100
ROOT = Path(__file__).parents[2]
_HOST = ("/usr", "/lib", "/lib64", str(Path(sys.base_prefix)), str(Path(sys.prefix)), str(ROOT))
_ASK_EVERY = 0.02
"""Seconds: a kubelet answers 100 questions per second."""


@dataclass
class Figures:
    """The measured values: allocatable in the API, seconds without devices in the kubelet, pods."""

    api: list[str] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    questions: int = 0
    turns: list[float] = field(default_factory=list)
    phases: Counter[str] = field(default_factory=Counter)


class Rollouts:
    """A simulator as a DaemonSet in `namespace`."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        env = {"RESOURCE_NAME": RESOURCE, "NUMBER_DEVICES": str(DEVICES)}
        self._deployment = Deployment("simulate", BUSYBOX, namespace=namespace, env=env)
        self._pods = 0

    def kubectl(self, *arguments: object, **options: Any) -> str:
        return self._cluster.kubectl(f"--namespace={self._namespace}", *arguments, **options)

    def deploy(self) -> None:
        """Start it, and wait until a roll-out may begin.

        Kubernetes surges only beside an old pod that is ready: it ends an unready pod first.
        """
        made = objects(self._deployment)
        run_from_host(made[-1]["spec"]["template"]["spec"])
        items = {"apiVersion": "v1", "kind": "List", "items": made}
        self.kubectl("apply", "--filename=-", stdin=json.dumps(items))
        self._cluster.wait(
            "devices", lambda: self._cluster.allocatable(RESOURCE) == DEVICES, timeout=180
        )
        self.kubectl("rollout", "status", f"daemonset/{self._deployment.name}", timeout=180)

    def roll(self, count: int, pods: int, limit: float = 180) -> Figures:
        """Update it several times, each time create pods meanwhile, and measure."""
        figures = Figures()
        with watched_api(self._cluster, RESOURCE, figures.api), self._watched_kubelet(figures):
            for turn in range(count):
                began = time.monotonic()
                name = f"daemonset/{self._deployment.name}"
                self.kubectl("set", "env", name, f"TURN={turn}")
                rollout = subprocess.Popen(
                    self._cluster.words(
                        "kubectl", f"--namespace={self._namespace}", "rollout", "status", name
                    ),
                    stdout=subprocess.DEVNULL,
                )
                try:
                    for _ in range(pods):
                        self._create_pod()
                    assert rollout.wait(limit) == 0
                finally:
                    rollout.kill()
                figures.turns.append(time.monotonic() - began)
            self._cluster.wait("the end of all pods", self._are_all_over, timeout=limit)
        figures.phases = Counter(each["status"]["phase"] for each in self._made_pods())
        return figures

    def _create_pod(self) -> None:
        self._pods += 1
        container = {
            "name": "main",
            "image": BUSYBOX,
            "command": ["true"],
            "resources": {"limits": {RESOURCE: 1}},
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"user-{self._pods}", "labels": {"made": "here"}},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
        self.kubectl("create", "--filename=-", stdin=json.dumps(pod))

    def _made_pods(self) -> list[Any]:
        found = self.kubectl("get", "pods", "--selector=made=here", "--output=json")
        items: list[Any] = json.loads(found)["items"]
        return items

    def _are_all_over(self) -> bool:
        pods = self._made_pods()
        return all(each["status"]["phase"] in ("Succeeded", "Failed") for each in pods)

    @contextmanager
    def _watched_kubelet(self, figures: Figures) -> Iterator[None]:
        """Ask the kubelet repeatedly how many devices are allocatable."""
        stop = threading.Event()
        socket = self._cluster.kubelet_dir / "pod-resources/kubelet.sock"
        thread = threading.Thread(target=lambda: asyncio.run(_ask(socket, figures, stop)))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


@contextmanager
def watched_api(cluster: Cluster, resource: str, seen: list[str]) -> Iterator[None]:
    """Append to `seen` the number of devices in the API at each change of the node."""
    escaped = resource.replace(".", "\\.")
    path = f"{{.status.allocatable.{escaped}}}{{'\\n'}}"
    watch = subprocess.Popen(
        cluster.words("kubectl", "get", "nodes", "--watch", f"--output=jsonpath={path}"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watch.stdout is not None
    reader = threading.Thread(target=lambda: seen.extend(map(str.strip, watch.stdout)))  # type: ignore[arg-type]
    reader.start()
    try:
        yield
    finally:
        watch.terminate()
        watch.wait()
        reader.join()
        watch.stdout.close()


async def _ask(socket: Path, figures: Figures, stop: threading.Event) -> None:
    good = time.monotonic()
    is_away = False
    async with await GrpcChannel.dial(socket) as channel:
        while not stop.is_set():
            await asyncio.sleep(_ASK_EVERY)
            try:
                found = await PodResourcesClient(channel).get_allocatable(timeout=10)
            except KubedevicesError:  # asked too often
                continue
            figures.questions += 1
            now = time.monotonic()
            count = sum(len(each.device_ids) for each in found if each.resource == RESOURCE)
            if count == DEVICES:
                if is_away:
                    figures.gaps.append(now - good)
                good, is_away = now, False
            else:
                is_away = True
    if is_away:
        figures.gaps.append(time.monotonic() - good)


def run_from_host(spec: Any, containers: str = "containers") -> None:
    """Change the pod so that its container, or its init container, runs this checkout."""
    (container,) = spec[containers]
    container["command"] = [sys.executable, "-m", "kubedevices.cli"]
    container.setdefault("env", []).extend(
        [
            {"name": "PYTHONPATH", "value": str(ROOT / "src")},
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
        ]
    )
    container["resources"] = {}
    for number, path in enumerate(dict.fromkeys(_HOST)):
        spec["volumes"].append({"name": f"run-{number}", "hostPath": {"path": path}})
        container["volumeMounts"].append(
            {"name": f"run-{number}", "mountPath": path, "readOnly": True}
        )
