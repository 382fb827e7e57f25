"""`kubedevices explain` beside a real kubelet: it names every fault, and only faults."""

import json
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.cluster import BUSYBOX, CLUSTER_TEST, Cluster

pytestmark = [*CLUSTER_TEST, pytest.mark.timeout(600)]

KUBEDEVICES = [sys.executable, "-m", "kubedevices.cli"]
PLUGIN_DIR = "/var/lib/kubelet/device-plugins"
LIMIT = 180
Manifest = dict[str, Any]


def manifest(name: str, containers: list[Manifest], **spec: Any) -> Manifest:
    spec = {"terminationGracePeriodSeconds": 0, "containers": containers} | spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def with_python(name: str, command: list[str], mounts: dict[str, Any], **spec: Any) -> Manifest:
    """Return a pod that runs this Python, with the needed directories of the host.

    `mounts` are further volumes, by their path in the container.
    """
    used = [Path(sys.executable).resolve(), *map(Path, (sys.executable, __file__, *sys.path))]
    tops = {f"/{each.parts[1]}" for each in used if each.is_dir() or each.is_file()}
    tops |= {each for each in ("/usr", "/bin", "/lib", "/lib64") if Path(each).exists()}
    volumes = {top: {"hostPath": {"path": top}} for top in sorted(tops)} | mounts
    container: Manifest = {
        "name": "plugin",
        "image": BUSYBOX,
        "command": command,
        "workingDir": str(Path(__file__).parents[2]),
        "volumeMounts": [{"name": f"v{i}", "mountPath": path} for i, path in enumerate(volumes)],
        "securityContext": {"privileged": True},
    }
    sources = [{"name": f"v{i}"} | source for i, source in enumerate(volumes.values())]
    return manifest(name, [container], volumes=sources, **spec)


def simulator(name: str, *options: str, is_apart: bool = False, **spec: Any) -> Manifest:
    source: Manifest = {"emptyDir": {}} if is_apart else {"hostPath": {"path": PLUGIN_DIR}}
    resource = ["--resource-name", f"explain.test/{name}", "--plugin-name", name, *options]
    return with_python(name, [*KUBEDEVICES, "simulate", *resource], {PLUGIN_DIR: source}, **spec)


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    with cluster.namespace("explain-test") as name:
        yield name
    cluster.wait(
        "no pods left", lambda: not cluster.get("pods", "--namespace=explain-test")["items"]
    )
    cluster.kubectl("delete", "namespace", "explain-test", "--ignore-not-found", timeout=LIMIT)


def create(cluster: Cluster, namespace: str, *pods: Manifest) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": list(pods)}
    cluster.kubectl("create", f"--namespace={namespace}", "-f", "-", stdin=json.dumps(listed))


def explain(cluster: Cluster, *arguments: str, pod: str = "") -> list[Manifest]:
    """Return the findings of the node, or of a pod that has the host below /host."""
    words: list[str] = [*KUBEDEVICES, "explain", *arguments, "-o", "json"]
    namespace = "--namespace=explain-test"
    where = ["kubectl", "exec", namespace, pod, "--"] if pod else ["exec"]
    done = cluster.run(*where, *words, timeout=LIMIT)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    return [*report["findings"], *(each for r in report["resources"] for each in r["findings"])]


def about(findings: list[Manifest], *words: str) -> tuple[str, str]:
    """Return result and text of the finding with these words in its text."""
    texts = {f"{each['looked_at']}: {each['found']}": each["result"] for each in findings}
    (found,) = [text for text in texts if all(word in text for word in words)]
    return texts[found], found


def wrong(findings: list[Manifest]) -> set[str]:
    """Return the steps of all warnings and problems."""
    return {each["step"] for each in findings if each["result"] not in ("ok", "unknown")}


def test_plugins_in_pods_are_judged(cluster: Cluster, namespace: str) -> None:
    """A healthy plugin is ok in any network namespace; an emptyDir is no deleted file."""
    pods = [
        simulator("own"),
        simulator("hostnet", hostNetwork=True),
        simulator("lost", is_apart=True),
    ]
    create(cluster, namespace, *pods)
    for name in ("own", "hostnet"):
        cluster.wait(name, partial(cluster.allocatable, f"explain.test/{name}"), LIMIT)
    cluster.wait("the third", lambda: "/lost." in str(explain(cluster)), LIMIT)
    findings = explain(cluster)
    for name in ("own", "hostnet"):
        result, text = about(findings, f"/{name}.", ".sock: ")
        assert (result, text.endswith("1 connection")) == ("ok", True)
        assert f"of pod {namespace}/{name})" in text
    result, text = about(findings, "/lost.", ".sock: ")
    assert (result, "in a directory of its container" in text) == ("problem", True)
    ours = [each for each in findings if re.search(r"/(own|hostnet|lost)\.", str(each))]
    assert [each["result"] for each in ours].count("problem") == 1
    assert about(findings, "2 healthy devices; a kubelet does not list")[0] == "unknown"


def test_containers_of_a_pod_are_judged(cluster: Cluster, namespace: str) -> None:
    """By their processes; a container that has not started is not taken for the pause process."""
    cluster("exec", "sh", "-c", "mknod /dev/kd-explain-0 c 1 3; chmod 0660 /dev/kd-explain-0")
    # Of the second device there is no file, so the container that gets it never starts.
    options = ("--device-file-prefix", "kd-explain", "--number-devices", "2")
    create(cluster, namespace, simulator("files", *options))
    cluster.wait("devices", lambda: cluster.allocatable("explain.test/files") == 2, LIMIT)
    base: Manifest = {"image": BUSYBOX, "command": ["sleep", "1000"]}
    limits: Manifest = {"resources": {"limits": {"explain.test/files": 1}}}
    user = {"securityContext": {"runAsUser": 1000, "runAsGroup": 1000}}
    first = manifest("first", [base | {"name": "root"}, base | {"name": "user"} | limits | user])
    create(cluster, namespace, first, manifest("second", [base | {"name": "user"} | limits | user]))

    def told() -> str:
        return str(
            [each for each in explain(cluster, "explain.test/files") if each["step"] == "container"]
        )

    cluster.wait("one container has its device", lambda: "may not open it" in told(), LIMIT)
    cluster.wait("the other has none", lambda: "no process of it was found" in told(), LIMIT)
    findings = explain(cluster, "explain.test/files")
    refused = about(findings, "sleep (user 1000, groups 1000) may not open it")
    assert (refused[0], "container user of pod explain-test/" in refused[1]) == ("problem", True)
    assert "is not in it" not in str(findings)


def test_explain_runs_in_a_debugging_pod_and_finds_a_frozen_kubelet(
    cluster: Cluster, namespace: str
) -> None:
    """As in `kubectl debug node`: the host's files, also the kubelet's, are below /host."""
    create(
        cluster,
        namespace,
        with_python(
            "debug",
            ["sleep", "10000"],
            {"/host": {"hostPath": {"path": "/"}}},
            hostNetwork=True,
            hostPID=True,
            hostIPC=True,
        ),
        simulator("own"),
    )
    cluster.wait("a device", lambda: cluster.allocatable("explain.test/own"), LIMIT)
    cluster.kubectl(
        *("wait", f"--namespace={namespace}", "--for=condition=Ready", "pod/debug"),
        *("--timeout=120s",),
        timeout=LIMIT,
    )
    findings = explain(cluster, "explain.test/own", pod="debug")
    assert about(findings, f"/host{PLUGIN_DIR}/own.", "1 connection")[0] == "ok"
    assert about(findings, "topology policy: none")[0] == "ok"
    # Whatever the tests before have left on the node: from the pod nothing more looks wrong.
    assert wrong(findings) <= wrong(explain(cluster, "explain.test/own"))
    kubelet = cluster("exec", "pgrep", "-x", "kubelet").strip()
    cluster("exec", "kill", "-STOP", kubelet)
    try:
        frozen = explain(cluster)
    finally:
        cluster("exec", "kill", "-CONT", kubelet)
    assert about(frozen, f"kubelet (pid {kubelet}) listens, but is stopped")[0] == "problem"
