"""The rows of selectors, with the API server and the scheduler of a real Kubernetes."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.kubernetes.cluster import BUSYBOX, CLUSTER_TEST, Cluster
from tests.kubernetes.dra_node import GROUP
from tests.values.selectors.test_selector import DEVICE, DRIVER, ROWS

pytestmark = [*CLUSTER_TEST, pytest.mark.timeout(1800)]

_AT_ONCE = 80
"""Pods at once; a node takes 110."""

_REFUSED = ("compilation", "cost", "length")


@pytest.fixture
def devices(cluster: Cluster) -> Iterator[None]:
    """Publish one device of the rows for each pod of a batch."""
    names = [{"name": f"d{i}", **DEVICE} for i in range(_AT_ONCE)]
    spec = {
        "driver": DRIVER,
        "allNodes": True,
        "pool": {"name": "rows", "generation": 1, "resourceSliceCount": 1},
        "devices": names,
    }
    _create(cluster, [_made("ResourceSlice", "rows", spec), _made("DeviceClass", "rows", {})])
    yield
    cluster.kubectl("delete", "resourceslice/rows", "deviceclass/rows")


def test_a_real_scheduler_gives_the_answers_of_the_rows(cluster: Cluster, devices: None) -> None:
    """True, false, an error, or refused when the claim is written: as our evaluator says."""
    rows = [(right.split()[0], expression) for right, expression in ROWS]
    differ = []
    with cluster.namespace("selectors") as namespace:
        for start in range(0, len(rows), _AT_ONCE):
            batch = rows[start : start + _AT_ONCE]
            answers = _answers(cluster, namespace, [expression for _, expression in batch])
            differ += [
                (right, answer, expression)
                for (right, expression), answer in zip(batch, answers, strict=True)
                if answer != ("refused" if right in _REFUSED else right)
            ]
    assert not differ


def _answers(cluster: Cluster, namespace: str, expressions: Sequence[str]) -> list[str]:
    names = [f"row-{i}" for i in range(len(expressions))]
    claims = [
        _made("ResourceClaim", name, {"devices": {"requests": [_request(each)]}}, namespace)
        for name, each in zip(names, expressions, strict=True)
    ]
    _create(cluster, claims)
    found = cluster.get("resourceclaims", f"--namespace={namespace}")["items"]
    accepted = {each["metadata"]["name"] for each in found}
    _create(cluster, [_pod(name, namespace) for name in names if name in accepted])
    cluster.wait(
        "decisions about all pods", lambda: "" not in _decided(cluster, namespace).values()
    )
    decided = _decided(cluster, namespace)
    everything = ("pods,resourceclaims", "--all", f"--namespace={namespace}")
    cluster.kubectl("delete", *everything, "--force", "--grace-period=0", timeout=120)
    return [decided.get(name, "refused") for name in names]


def _decided(cluster: Cluster, namespace: str) -> dict[str, str]:
    """Return the answer for each pod; "" while the scheduler has not decided."""
    pods = cluster.get("pods", f"--namespace={namespace}")["items"]
    return {each["metadata"]["name"]: _decision(each) for each in pods}


def _decision(pod: Any) -> str:
    conditions = pod.get("status", {}).get("conditions", ())
    found = next((each for each in conditions if each["type"] == "PodScheduled"), None)
    if found is None:
        return ""
    if found["status"] == "True":
        return "true"
    text = found.get("message", "")
    if "could not be converted to bool" in text:
        return "result"
    return "evaluation" if found.get("reason") == "SchedulerError" else "false"


def _request(expression: str) -> dict[str, Any]:
    selectors = [{"cel": {"expression": expression}}]
    return {"name": "r", "exactly": {"deviceClassName": "rows", "selectors": selectors}}


def _made(kind: str, name: str, spec: Any, namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": GROUP, "kind": kind, "metadata": metadata, "spec": spec}


def _pod(name: str, namespace: str) -> dict[str, Any]:
    claims = [{"name": "r"}]
    container = {"name": "main", "image": BUSYBOX, "resources": {"claims": claims}}
    spec = {
        "containers": [container],
        "resourceClaims": [{"name": "r", "resourceClaimName": name}],
    }
    return _made("Pod", name, spec, namespace) | {"apiVersion": "v1"}


def _create(cluster: Cluster, objects: Sequence[Any]) -> None:
    """Create objects; the server may refuse some of them."""
    made = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    cluster.run("kubectl", "create", "--filename=-", stdin=json.dumps(made), timeout=120)
