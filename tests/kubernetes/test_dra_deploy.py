"""The printed manifests of a DRA driver, applied in a real cluster."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from kubedevices.cli import main
from kubedevices.manifests.dra_access import OF_NAMESPACE
from kubedevices.manifests.ownership import CLUSTER_KINDS
from tests.kubernetes.cluster import BUSYBOX, CLUSTER_TEST, Cluster
from tests.kubernetes.rollout import run_from_host

pytestmark = [*CLUSTER_TEST, pytest.mark.timeout(600)]

DOMAIN = "deployed.test"
RESOURCE = f"{DOMAIN}/widget"
NAMESPACE = "dra-deployed"
NAME = "driver"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{NAME}"
NODE_CLAIM = "authentication.kubernetes.io/node-name"


@contextmanager
def deployed(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], *arguments: str
) -> Iterator[list[Any]]:
    """Apply the output of `manifests` for a simulator with two devices; give the documents."""
    words = ["manifests", "simulate", "--namespace", NAMESPACE, "--name", NAME, "--image", BUSYBOX]
    assert main([*words, *arguments]) == 0
    found = [each for each in yaml.safe_load_all(capsys.readouterr().out) if each]
    pod = found[-1]["spec"]["template"]["spec"]
    # As a user would see it, the image is that of kubedevices; here it is this checkout.
    run_from_host(pod)
    items = {"apiVersion": "v1", "kind": "List", "items": found}
    cluster.kubectl("apply", "--filename=-", stdin=json.dumps(items))
    try:
        status = ("rollout", "status", f"daemonset/{NAME}", f"--namespace={NAMESPACE}")
        cluster.kubectl(*status, "--timeout=120s", timeout=150)
        yield found
    finally:
        # Pods give their claims back to the driver, so they go first.
        users = ("delete", "pods", f"--namespace={NAMESPACE}", "--selector=uses=devices", "--now")
        cluster.kubectl(*users, timeout=120)
        mine = f"--selector={OF_NAMESPACE}={NAMESPACE}"
        cluster.kubectl("delete", "namespace", NAMESPACE, "--now", timeout=180)
        cluster.kubectl("delete", ",".join(CLUSTER_KINDS), mine)
        cluster.kubectl("delete", "resourceslices", f"--field-selector=spec.driver={DOMAIN}")


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESOURCE_NAME", RESOURCE)
    monkeypatch.setenv("NUMBER_DEVICES", "2")
    monkeypatch.setenv("ENV_PREFIX", "WIDGET")


def run_pod(cluster: Cluster, name: str) -> list[str]:
    """Start a pod with `limits:`, and return the variables of its devices."""
    container = {
        "name": "main",
        "image": BUSYBOX,
        "command": ["sh", "-c", r"tr '\0' '\n' </proc/1/environ; sleep 100000"],
        "resources": {"limits": {RESOURCE: 1}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"uses": "devices"}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }
    cluster.kubectl("create", "--filename=-", stdin=json.dumps(pod))
    where = f"--namespace={NAMESPACE}"
    cluster.kubectl(
        "wait", where, "--for=condition=Ready", f"pod/{name}", "--timeout=90s", timeout=120
    )

    def variables() -> list[str]:
        lines = cluster.kubectl("logs", where, name).splitlines()
        return [each for each in lines if each.startswith("WIDGET_")]

    cluster.wait("its environment", variables)
    return variables()


def claim_of(cluster: Cluster, name: str) -> Any:
    pod = cluster.get("pod", name, f"--namespace={NAMESPACE}")
    return pod["status"].get("extendedResourceClaimStatus")


def slice_of(driver: str, node: str) -> dict[str, Any]:
    """Return an empty slice as a driver writes it."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"generateName": "x-"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [],
        },
    }


def refusal(cluster: Cluster, made: dict[str, Any], *identity: str) -> str:
    """Return why an account may not create a slice; empty if it may."""
    done = cluster.run(
        *("kubectl", "create", "--dry-run=server", "--filename=-", *identity),
        stdin=json.dumps(made),
    )
    return done.stderr if done.returncode else ""


def test_the_manifests_serve_pods_by_dra(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ready means registered and published; a pod with limits gets its device by a claim.

    A pod of the driver may write only the slices of its own node and driver."""
    with deployed(cluster, capsys, "--mode", "dra") as found:
        (made,) = (
            each
            for each in cluster.get("resourceslices")["items"]
            if each["spec"]["driver"] == DOMAIN
        )
        assert (made["spec"]["nodeName"], len(made["spec"]["devices"])) == ("node1", 2)
        assert {each["kind"] for each in found} >= {"DeviceClass", "ValidatingAdmissionPolicy"}
        assert len(run_pod(cluster, "limited")) == 1
        assert claim_of(cluster, "limited")
        as_driver = ("--as", ACCOUNT)
        on_node = (*as_driver, f"--as-user-extra={NODE_CLAIM}=node1")
        assert not refusal(cluster, slice_of(DOMAIN, "node1"), *on_node)
        assert "belongs to no pod" in refusal(cluster, slice_of(DOMAIN, "node1"), *as_driver)
        other_node = refusal(cluster, slice_of(DOMAIN, "node2"), *on_node)
        assert "may write slices of the node node1 only" in other_node
        other_driver = refusal(cluster, slice_of("other.test", "node1"), *on_node)
        assert f"of the driver {DOMAIN} only" in other_driver
        assert not refusal(cluster, slice_of("other.test", "node2")), "an administrator may"
        name = f"resourceslices/{made['metadata']['name']}"
        delete = ("kubectl", "delete", "--dry-run=server", name)
        assert cluster.run(*delete, *on_node).returncode == 0
        elsewhere = (*as_driver, f"--as-user-extra={NODE_CLAIM}=node2")
        assert "of the node node2 only" in cluster.run(*delete, *elsewhere).stderr
        for verb, resource in (("list", "pods"), ("get", "secrets"), ("update", "resourceclaims")):
            asked = ("kubectl", "auth", "can-i", verb, resource, "--all-namespaces", *as_driver)
            assert cluster.run(*asked).stdout.strip() == "no"


def test_the_mode_of_a_deployment_is_changed_on_the_node(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each node has one file. All pods have one manifest, and each its own device."""
    mode_file = "/var/lib/kubedevices-mode/mode"
    cluster("exec", "rm", "-f", mode_file)
    with deployed(cluster, capsys, "--mode-file", mode_file):
        cluster.wait("a device plugin", lambda: cluster.allocatable(RESOURCE) == 2)
        first = run_pod(cluster, "first")
        assert not claim_of(cluster, "first")
        cluster("exec", "sh", "-c", f"echo dra > {mode_file}")
        cluster.wait(
            "a slice with the other device",
            lambda: any(
                len(each["spec"].get("devices", [])) == 1
                for each in cluster.get("resourceslices")["items"]
                if each["spec"]["driver"] == DOMAIN
            ),
        )
        second = run_pod(cluster, "second")
        assert claim_of(cluster, "second")
        assert {*first} & {*second} == set()
