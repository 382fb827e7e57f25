"""`deploy` and `undeploy` of a DRA driver: objects that are in no namespace."""

from typing import Any

import pytest

from kubedevices.cli import main
from tests.cli.test_deploy import FakeCluster, cluster, deploy

__all__ = ["cluster"]

CLASS = "simple-device.example.com"
KINDS = ("ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy")


def without_namespace(cluster: FakeCluster) -> set[str]:
    kinds = (*KINDS, "ValidatingAdmissionPolicyBinding", "DeviceClass")
    return {name for name in cluster.names() if name.startswith(tuple(f"{k}/" for k in kinds))}


def add(cluster: FakeCluster, kind: str, name: str, **labels: str) -> None:
    """Put an object into the cluster that is in no namespace."""
    made: dict[str, Any] = {"kind": kind, "metadata": {"name": name, "uid": name, "labels": labels}}
    cluster.write(objects=[*cluster.read()["objects"], made])


def test_undeploy_removes_the_rights_and_classes_of_a_driver(cluster: FakeCluster) -> None:
    """And nothing of a driver of ours in another namespace."""
    mine = {"app.kubernetes.io/managed-by": "kubedevices", "kubedevices-namespace": "other"}
    add(cluster, "ClusterRole", "other.driver", **mine)
    assert deploy("--mode", "dra") == 0
    assert len(without_namespace(cluster)) == 6
    assert f"DeviceClass/{CLASS}" in cluster.names()
    assert deploy("--mode", "dra") == 0  # an upgrade
    assert main(["undeploy", "simulate", "--mode", "dra"]) == 0
    assert cluster.names() == {"ClusterRole/other.driver"}


def test_undeploy_by_name_finds_them_too(cluster: FakeCluster) -> None:
    """Without the mode, by the labels."""
    assert deploy("--mode", "dra", "--name", "gpus") == 0
    assert main(["undeploy", "simulate", "--name", "gpus"]) == 0
    assert not cluster.names()


def test_a_class_of_others_is_not_changed(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is applied then."""
    add(cluster, "DeviceClass", CLASS)
    assert deploy("--mode", "dra") == 1
    assert f"deviceclass/{CLASS} in namespace lab was not created by" in capsys.readouterr().err
    assert without_namespace(cluster) == {f"DeviceClass/{CLASS}"}


def test_a_class_of_another_driver_of_ours_is_not_taken_over(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """The end of one of them would take the class away from the other."""
    assert deploy("--mode", "dra", "--name", "one") == 0
    assert deploy("--mode", "dra", "--name", "two") == 1
    assert f"deviceclass/{CLASS} was created for another driver" in capsys.readouterr().err
    assert deploy("--mode", "dra", "--name", "one") == 0


def test_undeploy_works_without_the_right_to_list_dra_objects(cluster: FakeCluster) -> None:
    """A device plugin has none of them; nor does an old cluster know these kinds."""
    assert deploy() == 0
    words = ("get clusterrole", "get validating", "get deviceclass")
    cluster.write(refuse=dict.fromkeys(words, "(Forbidden)"))
    assert main(["undeploy", "simulate"]) == 0
    assert not cluster.names()


def test_undeploy_removes_the_dra_objects_that_it_may_list(cluster: FakeCluster) -> None:
    """A cluster that does not know one of the kinds."""
    assert deploy("--mode", "dra") == 0
    cluster.write(refuse={"get clusterrole,": "no such kind", "get deviceclass ": "no such kind"})
    assert main(["undeploy", "simulate", "--mode", "dra"]) == 0
    assert without_namespace(cluster) == {f"DeviceClass/{CLASS}"}


def test_a_mode_file_needs_no_second_deployment(cluster: FakeCluster) -> None:
    """The mode is in the ConfigMap, which `undeploy` removes with the others."""
    assert deploy("--mode-file", "configmap") == 0
    (config,) = [each for each in cluster.read()["objects"] if each["kind"] == "ConfigMap"]
    assert config["data"] == {"mode": "device-plugin"}
    assert main(["undeploy", "simulate"]) == 0
    assert not cluster.names()


def test_a_second_driver_of_a_domain_is_refused_before_it_is_applied(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take the devices of the first out of the slices. On other nodes it does no harm."""
    monkeypatch.setenv("RESOURCE_NAME", "ex.lab/gpu")
    assert deploy("--mode", "dra", "--node-label", "pool=a") == 0
    before = cluster.names()
    monkeypatch.setenv("RESOURCE_NAME", "ex.lab/nic")
    assert deploy("--mode", "dra") == 1
    assert "is the DRA driver ex.lab already: a domain has one" in capsys.readouterr().err
    assert deploy("--mode", "dra", "--node-label", "pool=a", "--node-label", "x=y") == 1
    assert cluster.names() == before
    assert deploy("--mode", "dra", "--node-label", "pool=b") == 0
    monkeypatch.setenv("RESOURCE_NAME", "other.lab/nic")
    assert deploy("--mode", "dra") == 0
    monkeypatch.setenv("RESOURCE_NAME", "ex.lab/card")
    assert deploy() == 0, "device plugins share a domain"
