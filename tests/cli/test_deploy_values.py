"""`deploy` and `undeploy` with `--values`: objects that come, go and stay."""

import json
from pathlib import Path

import pytest

from kubedevices.cli import main
from tests.cli.test_deploy import IMAGE, FakeCluster, cluster

__all__ = ["cluster"]

COUNTS = ("desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable")
CONFIG = "version: 1\nnamespace: a.example\nresources: [{name: w, match: [{path: /run/%s/w}]}]\n"


def run(directory: Path, verb: str, values: str, text: str = "one") -> int:
    (directory / "values.yaml").write_text(values)
    (directory / "main.yaml").write_text(CONFIG % text)
    command = [verb, "expose", "--name", "lab", "--values", f"{directory}/values.yaml"]
    return main([*command, "--config", f"{directory}/main.yaml", "--image", IMAGE])


def revision(cluster: FakeCluster, number: int) -> None:
    """Note the pods of the DaemonSet, as Kubernetes does for `kubectl rollout undo`."""
    (daemon_set,) = [each for each in cluster.read()["objects"] if each["kind"] == "DaemonSet"]
    labels = daemon_set["spec"]["selector"]["matchLabels"]
    template = {"spec": {"template": daemon_set["spec"]["template"]}}
    metadata = {"labels": labels}
    cluster.add("ControllerRevision", f"lab-{number}", metadata=metadata, data=template)


def maps(cluster: FakeCluster) -> set[str]:
    return {name for name in cluster.names() if name.startswith("ConfigMap/lab")}


def test_versions_of_a_configuration_stay_while_pods_may_go_back_to_them(
    cluster: FakeCluster, short_dir: Path
) -> None:
    """Kubernetes forgets old revisions by itself; their versions go then."""
    values = "versionedConfig: true"
    seen: list[set[str]] = []
    for number, text in enumerate(("one", "two", "three")):
        assert run(short_dir, "deploy", values, text) == 0
        revision(cluster, number)
        seen.append(maps(cluster) - set().union(*seen))
    assert [len(each) for each in seen] == [1, 1, 1]
    objects = cluster.read()["objects"]
    cluster.write(objects=[each for each in objects if each["metadata"]["name"] != "lab-0"])
    assert run(short_dir, "deploy", values, "three") == 0
    assert maps(cluster) == seen[1] | seen[2]
    assert run(short_dir, "undeploy", values) == 0
    assert maps(cluster) == set()


def test_nodes_with_a_configuration_of_their_own_come_and_go(
    cluster: FakeCluster, short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Objects of others stay, whatever their names."""
    (short_dir / "big.yaml").write_text(CONFIG % "big")
    cluster.add("ConfigMap", "lab-other")
    before = cluster.names()
    values = "nodeConfigs: [{name: big, configFile: big.yaml}]"
    assert run(short_dir, "deploy", values) == 0
    assert "lab-big serves on 2 nodes" in capsys.readouterr().out
    alone = {"ServiceAccount/lab", "ResourceQuota/lab", "ConfigMap/lab", "DaemonSet/lab"}
    big = {"ServiceAccount/lab-big", "ConfigMap/lab-big", "DaemonSet/lab-big"}
    assert cluster.names() - before == alone | big | {"Namespace/lab"}
    assert run(short_dir, "deploy", "{}") == 0
    assert cluster.names() - before == alone | {"Namespace/lab"}
    assert run(short_dir, "deploy", values) == 0
    assert run(short_dir, "undeploy", "{}") == 0
    assert cluster.names() == before | {"Namespace/lab"}


def test_a_user_without_the_right_to_list_can_deploy(
    cluster: FakeCluster, short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(short_dir, "deploy", "networkPolicy: {enabled: true}") == 0
    assert "NetworkPolicy/lab" in cluster.names()
    cluster.write(refuse={"get daemonset,": "(Forbidden): you may not"})
    assert run(short_dir, "deploy", "{}") == 0
    assert "may be left" in capsys.readouterr().err
    cluster.write(refuse={})
    assert run(short_dir, "deploy", "{}") == 0
    assert "NetworkPolicy/lab" not in cluster.names()


def test_a_missing_namespace_is_not_created_against_the_values(
    cluster: FakeCluster, short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(short_dir, "deploy", "createNamespace: false") == 1
    assert "kubectl create namespace lab" in capsys.readouterr().err
    assert cluster.names() == set()


def test_undeploy_deletes_objects_of_operators_too(cluster: FakeCluster, short_dir: Path) -> None:
    """In a cluster that knows their kinds."""
    values = "metrics: {podMonitor: true, prometheusRule: true}\nopenshift: true"
    assert run(short_dir, "deploy", values) == 0
    assert {"PodMonitor/lab", "PrometheusRule/lab"} <= cluster.names()
    assert json.dumps(cluster.read()).count('"SecurityContextConstraints"') == 1
    assert run(short_dir, "undeploy", "{}") == 0
    assert cluster.names() == set()


def test_superfluous_objects_of_every_kind_are_deleted(
    cluster: FakeCluster, short_dir: Path
) -> None:
    """Also rights, and also where the cluster does not know all the kinds."""
    assert run(short_dir, "deploy", "{}") == 0
    before = cluster.names()
    values = "metrics: {podMonitor: true, prometheusRule: true, dashboard: true}\nopenshift: true"
    assert run(short_dir, "deploy", values) == 0
    assert len(cluster.names() - before) == 4
    cluster.write(refuse={"get podmonitor,prom": "no such kind", "get prom": "no such kind"})
    assert run(short_dir, "deploy", "{}") == 0
    assert cluster.names() - before == {"PrometheusRule/lab"}


@pytest.mark.parametrize("timeout", ["0", "60"])
def test_rights_stay_until_older_pods_have_ended(
    timeout: str, cluster: FakeCluster, short_dir: Path
) -> None:
    """A driver needs them in order to withdraw its devices."""
    (short_dir / "main.yaml").write_text(CONFIG % "one")
    command = ["deploy", "expose", "--name", "lab", "--image", IMAGE]
    command += ["--config", f"{short_dir}/main.yaml"]
    assert main([*command, "--mode", "dra"]) == 0
    assert main([*command, "--timeout", timeout]) == 0
    has_rights = "ClusterRole/lab.lab" in cluster.names()
    assert has_rights is (timeout == "0")


@pytest.mark.parametrize(
    ("other", "values"),
    [
        ("lab-big", "nodeConfigs: [{name: big, configFile: main.yaml}]"),
        ("lab-dashboard", "metrics: {dashboard: true}"),
    ],
)
def test_a_deployment_does_not_change_objects_of_another(
    other: str,
    values: str,
    cluster: FakeCluster,
    short_dir: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["deploy", "expose", "--name", other, "--image", IMAGE]) == 0
    before = cluster.read()["objects"]
    assert run(short_dir, "deploy", values) == 1
    assert (
        f"/{other} in namespace lab was created for another deployment" in capsys.readouterr().err
    )
    assert cluster.read()["objects"] == before


def test_undeploy_continues_an_interrupted_undeploy(cluster: FakeCluster, short_dir: Path) -> None:
    """The DaemonSet is gone, an object of the operator is left."""
    assert run(short_dir, "deploy", "metrics: {podMonitor: true}") == 0
    left = [each for each in cluster.read()["objects"] if each["kind"] == "PodMonitor"]
    cluster.write(objects=left)
    assert run(short_dir, "undeploy", "{}") == 0
    assert cluster.names() == set()


def test_a_configuration_of_nodes_that_no_node_has_yet_says_how_nodes_get_it(
    cluster: FakeCluster, short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is no fault: the labels of nodes may come later."""
    (short_dir / "big.yaml").write_text(CONFIG % "big")
    cluster.write(status={**cluster.read()["status"], **dict.fromkeys(COUNTS, 0)})
    assert run(short_dir, "deploy", "nodeConfigs: [{name: big, configFile: big.yaml}]") == 0
    told = capsys.readouterr().err
    assert "`kubectl label node NODE kubedevices-config=big` chooses one" in told
    assert "no node is chosen for lab: see --node-label" in told
