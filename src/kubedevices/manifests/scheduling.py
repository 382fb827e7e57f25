"""Which nodes get a pod of a plugin. Pure."""

from collections.abc import Sequence
from typing import Any

from kubedevices.manifests.deployment import Deployment
from kubedevices.manifests.values import AdminValues, plain

_CONTROL_PLANE = "node-role.kubernetes.io/control-plane:NoSchedule"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def scheduling(deployment: Deployment) -> dict[str, Any]:
    """Return what the spec of a pod says about its nodes."""
    admin = deployment.admin
    nodes = {"kubernetes.io/os": "linux", **deployment.node_labels, **admin.node_selector}
    if deployment.node_config:
        nodes[admin.node_config_label] = deployment.node_config
    found: dict[str, Any] = {}
    if admin.priority_class_name:
        found["priorityClassName"] = admin.priority_class_name
    found["nodeSelector"] = nodes
    if affinity := _affinity(admin, deployment.other_configs):
        found["affinity"] = affinity
    taints = [_CONTROL_PLANE] if admin.tolerate_control_plane else []
    tolerations = [
        *(as_toleration(taint) for taint in (*taints, *deployment.tolerations)),
        *plain(admin.tolerations),
    ]
    if tolerations:
        found["tolerations"] = tolerations
    return found


def as_toleration(taint: str) -> dict[str, Any]:
    """Return what goes with `KEY`, `KEY=VALUE`, either with `:EFFECT`.

    Not all taints: a virtual node, on which no pod of ours ever starts, would hold up every update.
    """
    rest, _, effect = taint.partition(":")
    key, equals, value = rest.partition("=")
    toleration: dict[str, Any] = {"key": key, "operator": "Equal" if equals else "Exists"}
    return (
        toleration | ({"value": value} if equals else {}) | ({"effect": effect} if effect else {})
    )


def _affinity(admin: AdminValues, other_configs: Sequence[str]) -> dict[str, Any]:
    """Return the admin's affinity, with our conditions in each of its alternatives.

    A node has to meet one of the terms: a condition of ours that stands in one only would not hold.
    """
    conditions: list[dict[str, Any]] = []
    if admin.arch:
        arch = {"key": "kubernetes.io/arch", "operator": "In", "values": [*admin.arch]}
        conditions.append(arch)
    if other_configs:
        label = admin.node_config_label
        conditions.append({"key": label, "operator": "NotIn", "values": [*other_configs]})
    affinity: dict[str, Any] = plain(admin.affinity)
    if not conditions:
        return affinity
    of_nodes = affinity.get("nodeAffinity") or {}
    terms = (of_nodes.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    terms = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or []), *conditions]}
        for term in terms
    ]
    return {**affinity, "nodeAffinity": {**of_nodes, _REQUIRED: {"nodeSelectorTerms": terms}}}
