"""`kubedevices deploy` and `undeploy` in a real cluster."""

import os
import shlex
from pathlib import Path

import pytest

from kubedevices.cli import main
from tests.kubernetes.cluster import CLUSTER_TEST, Cluster

pytestmark = CLUSTER_TEST

NOWHERE = "localhost/nobody/imported:this"


@pytest.fixture
def kubectl(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Put a kubectl for the cluster into PATH."""
    program = tmp_path / "kubectl"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(cluster.words("kubectl"))} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return cluster


def names(cluster: Cluster, kinds: str, namespace: str) -> set[str]:
    items = cluster.get(kinds, f"--namespace={namespace}")["items"]
    return {each["metadata"]["name"] for each in items}


def test_a_foreign_namespace_is_not_changed(
    kubectl: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its labels and objects stay; our objects are deleted when `undeploy` returns."""
    with kubectl.namespace("of-others") as name:
        kubectl.kubectl("label", "namespace", name, "pod-security.kubernetes.io/audit=baseline")
        kubectl.kubectl("create", f"--namespace={name}", "configmap", "precious")
        before = kubectl.get("namespace", name)["metadata"]["labels"]
        arguments = ("simulate", "--namespace", name, "--image", NOWHERE)
        assert main(["deploy", *arguments, "--timeout", "0"]) == 0
        assert kubectl.get("namespace", name)["metadata"]["labels"] == before
        assert len(names(kubectl, "daemonsets,resourcequotas", name)) == 1
        assert main(["undeploy", *arguments]) == 0
        assert f"namespace/{name} is left: `kubedevices deploy` did not" in capsys.readouterr().out
        assert kubectl.get("namespace", name)["status"]["phase"] == "Active"
        assert not names(kubectl, "daemonsets,resourcequotas,pods", name)
        assert "precious" in names(kubectl, "configmaps", name)


def test_our_namespace_is_deleted_when_it_is_empty(
    kubectl: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not before. The reason why the plugin did not start is printed."""
    name = "made-by-deploy"
    arguments = ("simulate", "--namespace", name, "--image", NOWHERE)
    try:
        assert main(["deploy", *arguments, "--timeout", "6"]) == 1
        assert "on node1: ErrImagePull: " in capsys.readouterr().err
        kubectl.kubectl("create", f"--namespace={name}", "configmap", "precious")
        assert main(["undeploy", *arguments]) == 0
        expected = f"namespace/{name} is left, because it has other objects: configmap/precious\n"
        assert capsys.readouterr().out.endswith(expected)
        kubectl.kubectl("delete", f"--namespace={name}", "configmap", "precious")
        assert main(["undeploy", *arguments]) == 0
        assert name not in names(kubectl, "namespaces", name)
    finally:
        kubectl.kubectl("delete", "namespace", name, "--ignore-not-found", "--wait=false")
