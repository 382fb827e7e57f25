"""`kubedevices deploy` and `undeploy`, with a kubectl whose cluster is a file."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kubedevices.cli.cluster import kubectl
from tests.cli import fake_kubectl
from tests.command_line import CommandLine

IMAGE = "registry.example.com/kubedevices:1"
NAME = "kubedevices-simulate-example-com-simple-device"
DONE = {
    "observedGeneration": 1,
    "desiredNumberScheduled": 2,
    "updatedNumberScheduled": 2,
    "numberAvailable": 2,
}
READY: dict[str, Any] = {
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    "spec": {},
}
NOT_DONE = DONE | {"updatedNumberScheduled": 1, "numberAvailable": 1}


class FakeCluster:
    """What the stand-in for kubectl keeps."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.write(objects=[], refuse={}, commands=[], status=DONE, log="")

    def read(self) -> Any:
        return json.loads(self.file.read_text())

    def write(self, **changed: Any) -> None:
        old = self.read() if self.file.exists() else {}
        self.file.write_text(json.dumps(old | changed))

    def add(self, kind: str, name: str, *, namespace: str = "lab", **more: Any) -> str:
        """Put an object of somebody else into the cluster; return its uid."""
        uid = f"{kind}-{name}"
        metadata = {"name": name, "uid": uid, **more.pop("metadata", {})}
        if namespace and kind != "Namespace":
            metadata |= {"namespace": namespace}
        self.write(objects=[*self.read()["objects"], {"kind": kind, "metadata": metadata, **more}])
        return uid

    def names(self) -> set[str]:
        return {f"{each['kind']}/{each['metadata']['name']}" for each in self.read()["objects"]}

    def labels(self, name: str) -> dict[str, str]:
        (found,) = [each for each in self.read()["objects"] if each["metadata"]["name"] == name]
        return found["metadata"].get("labels") or {}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Give an empty cluster, and a kubectl that changes it in the process of the test."""
    file = tmp_path / "cluster.json"

    def run(command: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[str]":
        assert command[0] == "kubectl"
        done = fake_kubectl.run_in_process(file, command, options["stdin"].read().decode())
        options["stdout"].write(done.stdout.encode())
        options["stderr"].write(done.stderr.encode())
        return done

    replaced = SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(kubectl, "subprocess", replaced)
    monkeypatch.setenv("NAMESPACE", "lab")
    return FakeCluster(file)


@pytest.fixture
def kubectl_program(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> FakeCluster:
    """Give the same cluster, and a kubectl on the PATH that changes it."""
    monkeypatch.setattr(kubectl, "subprocess", subprocess)
    program = tmp_path / "kubectl"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{fake_kubectl.__file__}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CLUSTER", str(cluster.file))
    return cluster


@pytest.fixture
def deploy(cli: CommandLine) -> CommandLine:
    return cli.of("deploy", "simulate", "--image", IMAGE)


OURS = {f"{kind}/{NAME}" for kind in ("ServiceAccount", "ResourceQuota", "DaemonSet")}


def test_undeploy_removes_everything_that_deploy_created(
    kubectl_program: FakeCluster, deploy: CommandLine, cli: CommandLine
) -> None:
    """With the namespace, which was not there before; and again, when it is all gone."""
    cluster = kubectl_program
    assert "serves on 2 nodes" in deploy().out
    assert cluster.names() == {"Namespace/lab"} | OURS
    assert cluster.labels("lab")["pod-security.kubernetes.io/enforce"] == "privileged"
    deploy()  # an upgrade
    cli("undeploy", "simulate")
    assert cluster.names() == set()
    cli("undeploy", "simulate")


def test_an_existing_namespace_is_not_changed(
    cluster: FakeCluster, deploy: CommandLine, cli: CommandLine
) -> None:
    """Its labels too, and everything in it; said in a line each time."""
    cluster.add("Namespace", "lab", metadata={"labels": {"team": "a"}})
    cluster.add("ConfigMap", "precious")
    assert "namespace/lab exists already and is not changed" in deploy().out
    assert cluster.labels("lab") == {"team": "a"}
    assert "namespace/lab is left: `kubedevices deploy` did not" in cli("undeploy", "simulate").out
    assert cluster.names() == {"Namespace/lab", "ConfigMap/precious"}


@pytest.mark.parametrize("kind", ["ConfigMap", "Gadget", "DaemonSet", "Pod"])
def test_undeploy_leaves_a_namespace_with_other_objects(
    cluster: FakeCluster, deploy: CommandLine, cli: CommandLine, kind: str
) -> None:
    """Whatever their kind: a definition that somebody else brought counts too."""
    deploy()
    cluster.add(kind, "precious")
    shown = cli("undeploy", "simulate")
    assert cluster.names() == {"Namespace/lab", f"{kind}/precious"}
    expected = f"namespace/lab is left, because it has other objects: {kind.lower()}/precious"
    assert expected in shown.out


def test_undeploy_deletes_a_namespace_with_only_default_objects(
    cluster: FakeCluster, deploy: CommandLine, cli: CommandLine
) -> None:
    """Pods of our DaemonSet that still end, and what every namespace has."""
    deploy()
    (daemon_set,) = [each for each in cluster.read()["objects"] if each["kind"] == "DaemonSet"]
    owners = {"ownerReferences": [{"uid": daemon_set["metadata"]["uid"]}]}
    pod = cluster.add("Pod", "ends", metadata=owners)
    cluster.add("Secret", "of-the-pod", metadata={"ownerReferences": [{"uid": pod}]})
    cluster.add("Event", "something")
    cluster.add("ConfigMap", "kube-root-ca.crt")
    cluster.add("ServiceAccount", "default")
    cli("undeploy", "simulate")
    assert cluster.names() == set()


def test_a_namespace_that_cannot_be_listed_is_left(
    cluster: FakeCluster, deploy: CommandLine, cli: CommandLine
) -> None:
    """An API that is down hides what others have in it."""
    deploy()
    cluster.write(refuse={"api-resources": "unable to retrieve the complete list"})
    shown = cli("undeploy", "simulate")
    assert cluster.names() == {"Namespace/lab"}
    assert "is not deleted: its content cannot be seen" in shown.out


def test_two_plugins_live_in_one_namespace(
    cluster: FakeCluster, deploy: CommandLine, cli: CommandLine
) -> None:
    """Each goes by itself; the last takes the namespace with it."""
    deploy()
    cli("deploy", "expose", "--image", IMAGE)
    second = "kubedevices-expose-devices-example-com"
    assert f"daemonset/{second}" in cli("undeploy", "simulate").out
    assert not OURS & cluster.names()
    assert f"DaemonSet/{second}" in cluster.names()
    assert f"plugins there: {second}" in cli("undeploy", "simulate").out
    cli("undeploy", "expose", "--config", "gone.yaml", "--name", second)
    assert cluster.names() == set()


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_a_policy_that_would_refuse_the_pods_is_reported_at_once(
    cluster: FakeCluster, deploy: CommandLine, level: str
) -> None:
    """With the label that is needed; nothing is applied."""
    labels = {"pod-security.kubernetes.io/enforce": level}
    cluster.add("Namespace", "lab", metadata={"labels": labels})
    error = deploy(code=1).err
    assert f"enforces the Pod Security level '{level}'" in error
    assert "pod-security.kubernetes.io/enforce=privileged" in error
    assert cluster.names() == {"Namespace/lab"}
    assert cluster.labels("lab") == labels


def test_a_foreign_object_is_not_replaced(
    cluster: FakeCluster, deploy: CommandLine, cli: CommandLine
) -> None:
    """Nor deleted later."""
    cluster.add("Namespace", "lab")
    cluster.add("DaemonSet", NAME, metadata={"labels": {"app.kubernetes.io/name": "kubedevices"}})
    assert f"daemonset/{NAME} in namespace lab was not created by" in deploy(code=1).err
    cli("undeploy", "simulate")
    assert cluster.names() == {"Namespace/lab", f"DaemonSet/{NAME}"}


@pytest.mark.parametrize(
    ("beginning", "code"),
    [("get namespace", 0), ("quota", 0), ("apply", 1), ("get events", 1)],
)
def test_missing_rights_are_an_error_only_if_needed(
    cluster: FakeCluster, deploy: CommandLine, beginning: str, code: int
) -> None:
    """Who may not look at namespaces or make quotas can still deploy into one that is there."""
    if beginning == "quota":
        cluster.write(refuse_kind="ResourceQuota")
    else:
        cluster.write(refuse={beginning: '(Forbidden): namespaces "lab" is forbidden'})
    cluster.write(status=NOT_DONE if beginning == "get events" else DONE)
    error = deploy(code=code).err
    assert ("(Forbidden)" in error) is (beginning != "get namespace")


def container(**state: Any) -> dict[str, Any]:
    return {"status": {"containerStatuses": [state]}, "spec": {"nodeName": "node-1"}}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (
            container(state={"waiting": {"reason": "ErrImagePull", "message": "no such host"}}),
            ["p on node-1: ErrImagePull: no such host; push the image"],
        ),
        (
            container(
                state={"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
                lastState={
                    "terminated": {
                        "exitCode": 2,
                        "reason": "Error",
                        "message": "a\nFILE:3: wrong\n",
                    }
                },
            ),
            ["CrashLoopBackOff: back-off 10s; ended with exit code 2 (Error)", "FILE:3: wrong"],
        ),
        (
            container(state={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}),
            ["ended with exit code 137 (OOMKilled)"],
        ),
        (
            {"status": {"reason": "UnexpectedAdmissionError", "message": "no"}, "spec": {}},
            ["p on no node yet: UnexpectedAdmissionError: no"],
        ),
        (container(state={"running": {}}), ["p on node-1: not ready yet", "p: not registered"]),
        (
            container(state={"waiting": {"reason": "ContainerCreating"}}),
            ["p on node-1: FailedMount: hostPath type check failed"],
        ),
    ],
)
def test_the_reason_of_a_pod_is_printed(
    cluster: FakeCluster, deploy: CommandLine, pod: dict[str, Any], expected: Sequence[str]
) -> None:
    """Waiting reasons, the last words of what ended, events of mounts, the log of what runs."""
    deploy("--timeout", "0")
    labels = {"app.kubernetes.io/name": "kubedevices", "app.kubernetes.io/instance": NAME}
    cluster.write(status=NOT_DONE, log="not registered: example.com/gpu\n")
    cluster.add("Pod", "p", metadata={"labels": labels}, **pod)
    cluster.add("Pod", "other", metadata={"labels": labels}, **READY)
    if "not ready" not in expected[0]:
        told = {"reason": "FailedMount", "message": "hostPath type check failed"}
        cluster.add("Event", "e", type="Warning", involvedObject={"name": "p"}, **told)
    probe = {"reason": "Unhealthy", "message": "Readiness probe failed", "lastTimestamp": "1"}
    if "not ready" in expected[0]:
        cluster.add("Event", "u", type="Warning", involvedObject={"name": "p"}, **probe)
    error = deploy("--timeout", "0.1", code=1).err
    assert error.count("Readiness probe failed") == ("not ready" in expected[0])
    for each in expected:
        assert each in error
    assert "other" not in error
    assert f"after 0.1 s {NAME} serves on 1 of 2 nodes" in error


def revision(cluster: FakeCluster, number: int) -> dict[str, str]:
    """Add a version to the history of the DaemonSet; return the labels of its pods."""
    labels = {"app.kubernetes.io/name": "kubedevices", "app.kubernetes.io/instance": NAME}
    labels |= {"controller-revision-hash": f"h{number}"}
    spec: dict[str, Any] = {"template": {"spec": {}}}
    metadata = {"labels": labels}
    cluster.add(
        "ControllerRevision", f"r{number}", metadata=metadata, revision=number, data={"spec": spec}
    )
    return labels


def test_a_bad_update_advises_to_go_back_to_the_older_version(
    cluster: FakeCluster, deploy: CommandLine
) -> None:
    """The older version still serves two nodes, and `undeploy` would end it there, too."""
    deploy("--timeout", "0")
    # The tenth version is newer than the ninth: revisions are numbers, not texts.
    old, new = revision(cluster, 9), revision(cluster, 10)
    for name in ("a", "b"):
        cluster.add("Pod", name, metadata={"labels": old}, **READY)
    waiting = container(state={"waiting": {"reason": "ErrImagePull"}})
    cluster.add("Pod", "p", metadata={"labels": new}, **waiting)
    cluster.write(status=NOT_DONE)
    error = deploy("--timeout", "0.1", code=1).err
    assert f"new version of {NAME} serves on 0 of 2 nodes, and the older version on 2" in error
    assert f"`kubectl --namespace lab rollout undo daemonset/{NAME}` goes back" in error
    assert "undeploy" not in error
    assert "configuration" not in error  # this plugin has none


def test_a_bad_update_says_that_the_configuration_does_not_go_back(
    cluster: FakeCluster, tmp_path: Path, deploy: CommandLine
) -> None:
    """The ConfigMap has the new text already, unless each text has a ConfigMap of its own."""
    (tmp_path / "values.yaml").write_text("versionedConfig: true\n")
    file = tmp_path / "sim.yaml"
    file.write_text("version: 1\nresources: [{resourceName: example.com/simple-device}]\n")
    revision(cluster, 1)
    revision(cluster, 2)
    cluster.write(status=NOT_DONE)
    plain = ("--config", str(file), "--timeout", "0.1")
    assert "but not to its configuration" in deploy(*plain, code=1).err
    error = deploy(*plain, "--values", tmp_path / "values.yaml", code=1).err
    assert "rollout undo" in error
    assert "but not to its configuration" not in error


def test_a_bad_first_rollout_advises_to_undeploy(cluster: FakeCluster, deploy: CommandLine) -> None:
    """There is no older version, also if the user may not see the history."""
    revision(cluster, 1)
    cluster.write(status=NOT_DONE)
    assert "`undeploy` removes it" in deploy("--timeout", "0.1", code=1).err
    cluster.write(refuse={"get controllerrevisions": "(Forbidden)"})
    assert "`undeploy` removes it" in deploy("--timeout", "0.1", code=1).err


def test_a_pod_that_may_not_be_created_is_reported(
    cluster: FakeCluster, deploy: CommandLine
) -> None:
    """Quotas and policies refuse the DaemonSet's pods: its newest warning says so, once."""
    cluster.write(status=NOT_DONE)
    for name, message, time in (("a", "old", "2026-01-01"), ("b", "exceeded quota", "2026-01-02")):
        about = {"reason": "FailedCreate", "message": message, "lastTimestamp": time}
        cluster.add("Event", name, type="Warning", involvedObject={"name": NAME}, **about)
    error = deploy("--timeout", "0.1", code=1).err
    assert f"{NAME}: FailedCreate: exceeded quota" in error
    assert "old" not in error


def test_a_daemon_set_without_observed_generation_is_not_done(
    cluster: FakeCluster, deploy: CommandLine
) -> None:
    """Zeros of a status that is not filled in yet are no answer; no node at all is told."""
    nobody = {"desiredNumberScheduled": 0, "updatedNumberScheduled": 0, "numberAvailable": 0}
    cluster.write(status=nobody)
    assert "serves on 0 of 0 nodes" in deploy("--timeout", "0.1", code=1).err
    cluster.write(status=nobody | {"observedGeneration": 1})
    assert "no node is chosen" in deploy().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "which image?"),
        (["--image", "kubedevices:0.1.0"], "would pull docker.io/library/kubedevices:0.1.0"),
        (["--image", "me/kubedevices"], "would pull docker.io/me/kubedevices"),
    ],
)
def test_an_image_without_a_registry_is_refused(
    cluster: FakeCluster, cli: CommandLine, arguments: list[str], text: str
) -> None:
    """Before the cluster is asked anything, with what to do."""
    error = cli("deploy", "simulate", *arguments, code=2).err
    assert text in error
    assert "import it on every node" in error
    assert cluster.read()["commands"] == []


@pytest.mark.parametrize("verb", ["deploy", "undeploy"])
def test_a_proxy_has_another_way(cluster: FakeCluster, cli: CommandLine, verb: str) -> None:
    """No option speaks of it, and the error says why, and what to use."""
    assert "Use `kubedevices manifests proxy` and" in cli(verb, "proxy", code=2).err
    options = " ".join(cli(verb, "--help").out.partition("\noptions:")[2].split())
    assert "simulate, expose: configuration file" in options
    assert "proxy" not in options.replace("not for a proxy", "")
    assert cluster.read()["commands"] == []


def test_without_kubectl_the_error_has_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deploy: CommandLine, cli: CommandLine
) -> None:
    """For both verbs."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for command in (deploy, cli.of("undeploy", "simulate")):
        assert "kubectl is missing: install the Debian package" in command(code=3).err
