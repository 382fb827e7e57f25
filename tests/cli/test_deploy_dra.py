"""`deploy` and `undeploy` of a DRA driver: objects that are in no namespace."""

import pytest

from tests.cli.test_deploy import FakeCluster, cluster, deploy
from tests.command_line import CommandLine

__all__ = ["cluster", "deploy"]

CLASS = "simple-device.example.com"
KINDS = ("ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy")


def without_namespace(cluster: FakeCluster) -> set[str]:
    kinds = (*KINDS, "ValidatingAdmissionPolicyBinding", "DeviceClass")
    return {name for name in cluster.names() if name.startswith(tuple(f"{k}/" for k in kinds))}


def test_undeploy_removes_the_rights_and_classes_of_a_driver(
    cluster: FakeCluster, deploy: CommandLine, cli: CommandLine
) -> None:
    """And nothing of a driver of ours in another namespace."""
    mine = {"app.kubernetes.io/managed-by": "kubedevices", "kubedevices-namespace": "other"}
    cluster.add("ClusterRole", "other.driver", namespace="", metadata={"labels": mine})
    deploy("--mode", "dra")
    assert len(without_namespace(cluster)) == 6
    assert f"DeviceClass/{CLASS}" in cluster.names()
    deploy("--mode", "dra")  # an upgrade
    cli("undeploy", "simulate", "--mode", "dra")
    assert cluster.names() == {"ClusterRole/other.driver"}


def test_undeploy_by_name_finds_them_too(
    cluster: FakeCluster, deploy: CommandLine, cli: CommandLine
) -> None:
    """Without the mode, by the labels."""
    deploy("--mode", "dra", "--name", "gpus")
    cli("undeploy", "simulate", "--name", "gpus")
    assert not cluster.names()


def test_a_class_of_others_is_not_changed(cluster: FakeCluster, deploy: CommandLine) -> None:
    """Nothing is applied then."""
    cluster.add("DeviceClass", CLASS, namespace="")
    err = deploy("--mode", "dra", code=1).err
    assert f"deviceclass/{CLASS} in namespace lab was not created by" in err
    assert without_namespace(cluster) == {f"DeviceClass/{CLASS}"}


def test_a_class_of_another_driver_of_ours_is_not_taken_over(
    cluster: FakeCluster, deploy: CommandLine
) -> None:
    """The end of one of them would take the class away from the other."""
    deploy("--mode", "dra", "--name", "one")
    err = deploy("--mode", "dra", "--name", "two", code=1).err
    assert f"deviceclass/{CLASS} was created for another driver" in err
    deploy("--mode", "dra", "--name", "one")


def test_undeploy_works_without_the_right_to_list_dra_objects(
    cluster: FakeCluster, deploy: CommandLine, cli: CommandLine
) -> None:
    """A device plugin has none of them; nor does an old cluster know these kinds."""
    deploy()
    words = ("get clusterrole", "get validating", "get deviceclass")
    cluster.write(refuse=dict.fromkeys(words, "(Forbidden)"))
    cli("undeploy", "simulate")
    assert not cluster.names()


def test_undeploy_removes_the_dra_objects_that_it_may_list(
    cluster: FakeCluster, deploy: CommandLine, cli: CommandLine
) -> None:
    """A cluster that does not know one of the kinds."""
    deploy("--mode", "dra")
    cluster.write(refuse={"get clusterrole,": "no such kind", "get deviceclass ": "no such kind"})
    cli("undeploy", "simulate", "--mode", "dra")
    assert without_namespace(cluster) == {f"DeviceClass/{CLASS}"}


def test_a_mode_file_needs_no_second_deployment(
    cluster: FakeCluster, deploy: CommandLine, cli: CommandLine
) -> None:
    """The mode is in the ConfigMap, which `undeploy` removes with the others."""
    deploy("--mode-file", "configmap")
    (config,) = [each for each in cluster.read()["objects"] if each["kind"] == "ConfigMap"]
    assert config["data"] == {"mode": "device-plugin"}
    cli("undeploy", "simulate")
    assert not cluster.names()


def test_the_mode_of_a_node_may_be_its_label(cluster: FakeCluster, deploy: CommandLine) -> None:
    """The pods get the name of the label, and the right to read their node."""
    deploy("--mode-label", "ex.lab/mode")
    objects = {each["kind"]: each for each in cluster.read()["objects"]}
    (container,) = objects["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    arguments = container["args"]
    assert arguments[arguments.index("--mode-label") + 1] == "ex.lab/mode"
    rules = objects["ClusterRole"]["rules"]
    verbs = {verb for each in rules if "nodes" in each["resources"] for verb in each["verbs"]}
    assert {"get", "watch"} <= verbs


def test_a_second_driver_of_a_domain_is_refused_before_it_is_applied(
    cluster: FakeCluster, deploy: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take the devices of the first out of the slices. On other nodes it does no harm."""
    monkeypatch.setenv("RESOURCE_NAME", "ex.lab/gpu")
    deploy("--mode", "dra", "--node-label", "pool=a")
    before = cluster.names()
    monkeypatch.setenv("RESOURCE_NAME", "ex.lab/nic")
    err = deploy("--mode", "dra", code=1).err
    assert "is the DRA driver ex.lab already: a domain has one" in err
    deploy("--mode", "dra", "--node-label", "pool=a", "--node-label", "x=y", code=1)
    assert cluster.names() == before
    deploy("--mode", "dra", "--node-label", "pool=b")
    monkeypatch.setenv("RESOURCE_NAME", "other.lab/nic")
    deploy("--mode", "dra")
    monkeypatch.setenv("RESOURCE_NAME", "ex.lab/card")
    deploy()


def claim(cluster: FakeCluster, name: str, driver: str, *pods: str, space: str = "jobs") -> None:
    """Add an allocated claim that `pods` of another namespace than the driver's use."""
    results = [{"request": "r", "driver": driver, "pool": "n1", "device": "d"}]
    users = [{"resource": "pods", "name": each, "uid": each} for each in pods]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": users}
    cluster.add("ResourceClaim", name, namespace=space, status=status)


def test_undeploy_names_the_pods_that_will_hang(
    cluster: FakeCluster, deploy: CommandLine, cli: CommandLine
) -> None:
    """Of this driver only, in all namespaces, before the objects are deleted; by --name as well."""
    deploy("--mode", "dra", "--name", "gpus")
    claim(cluster, "one", "example.com", "train-0", "train-1")
    claim(cluster, "two", "example.com", "infer", space="web")
    claim(cluster, "free", "example.com")
    claim(cluster, "foreign", "other.example", "safe")
    cluster.add("ResourceClaim", "waits", namespace="jobs")
    error = cli("undeploy", "simulate", "--name", "gpus").err
    assert "3 pods with claims of the driver example.com: jobs/train-0, jobs/train-1, web" in error
    assert "will hang in Terminating" in error
    assert "safe" not in error
    commands = cluster.read()["commands"]
    asked = commands.index("get resourceclaims --all-namespaces --ignore-not-found --output=json")
    assert asked < min(i for i, each in enumerate(commands) if each.startswith("delete"))


def test_undeploy_of_an_idle_driver_says_nothing_of_claims(
    cluster: FakeCluster, deploy: CommandLine, cli: CommandLine
) -> None:
    """Nor does `undeploy` of a device plugin ask for claims at all."""
    deploy("--mode", "dra")
    assert "hang" not in cli("undeploy", "simulate", "--mode", "dra").err
    cluster.write(commands=[])
    deploy()
    cli("undeploy", "simulate")
    assert not [each for each in cluster.read()["commands"] if "resourceclaims" in each]


def test_undeploy_without_the_right_to_see_claims_says_so(
    cluster: FakeCluster, deploy: CommandLine, cli: CommandLine
) -> None:
    """The driver is deleted nevertheless."""
    deploy("--mode", "dra")
    cluster.write(refuse={"get resourceclaims": "(Forbidden)"})
    error = cli("undeploy", "simulate", "--mode", "dra").err
    assert "claims cannot be seen (kubectl get: Error from server (Forbidden)" in error
    assert not cluster.names()
