"""The Helm chart in a real cluster: installed, changed, rolled back, removed."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT
from tests.host_needs import needs
from tests.kubernetes.cluster import BUSYBOX, CLUSTER_TEST, Cluster

pytestmark = [*CLUSTER_TEST, needs("helm"), pytest.mark.timeout(600)]

HELM = Path(sys.executable).parent / "helm"
NAMESPACE = "helm-lab"
RESOURCE = "helm.test/widget"
FROM_HOST = """
import json, sys, yaml
from tests.kubernetes.rollout import run_from_host
for each in yaml.safe_load_all(sys.stdin):
    if each and each["kind"] == "DaemonSet":
        run_from_host(each["spec"]["template"]["spec"])
    print("---", json.dumps(each), sep="\\n")
"""


class Helm:
    """Runs helm on the node, as admin of the cluster; the pods run this checkout."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.values = directory / "values.yaml"
        self._cluster = cluster
        self.renderer = directory / "from-host"
        command = shlex.join([sys.executable, "-c", FROM_HOST])
        self.renderer.write_text(f"#!/bin/sh\ncd {shlex.quote(str(ROOT))} && exec {command}\n")
        self.renderer.chmod(0o755)

    def __call__(self, verb: str, *arguments: object) -> str:
        command = (HELM, verb, "lab", f"--namespace={NAMESPACE}", *arguments)
        return self._cluster("exec", "--", *command, timeout=300)

    def apply(self, verb: str, devices: int, **values: Any) -> str:
        """Install or upgrade the chart with a simulator of `devices` devices."""
        config = f"resourceName: {RESOURCE}\nnumberDevicesOnNode: {devices}\n"
        repository, _, tag = BUSYBOX.partition(":")
        image = {"repository": repository, "tag": tag}
        found = {"plugin": "simulate", "image": image, "config": config, **values}
        self.values.write_text(json.dumps(found))
        chart = ROOT / "deploy/helm/kubedevices"
        options = ("--values", self.values, "--post-renderer", self.renderer)
        return self(verb, chart, *options, "--wait", "--timeout=120s")


def maps(cluster: Cluster) -> set[str]:
    items = cluster.get("configmaps", f"--namespace={NAMESPACE}")["items"]
    names = {each["metadata"]["name"] for each in items}
    return {name for name in names if name.startswith("kubedevices")}


def test_a_release_is_installed_changed_rolled_back_and_removed(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Its devices follow, the older configuration is back, and no object is left at the end."""
    helm = Helm(cluster, tmp_path)
    with cluster.namespace(NAMESPACE):
        told = helm.apply("install", 2, versionedConfig=True)
        assert "rollout status daemonset/kubedevices-lab" in told
        cluster.wait("two devices", lambda: cluster.allocatable(RESOURCE) == 2)
        before = maps(cluster)
        helm.apply(
            "upgrade",
            3,
            versionedConfig=True,
            nodeConfigs=[{"name": "big", "config": "none of these nodes"}],
            networkPolicy={"enabled": True},
        )
        cluster.wait("three devices", lambda: cluster.allocatable(RESOURCE) == 3)
        assert len(maps(cluster) - before) == 2
        helm("rollback", "--wait", "--timeout=120s")
        cluster.wait("two devices again", lambda: cluster.allocatable(RESOURCE) == 2)
        assert maps(cluster) == before
        helm("uninstall", "--wait", "--timeout=120s")
        kinds = "daemonsets,networkpolicies,resourcequotas"
        assert not cluster.get(kinds, f"--namespace={NAMESPACE}")["items"]
        assert not maps(cluster)
