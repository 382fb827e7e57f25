"""The scheduling of a plugin's pod: nodes, tolerations, priority class. Pure."""

from collections.abc import Sequence
from typing import Any

from kubedevices.manifests.affinity import with_conditions
from kubedevices.manifests.deployment import Deployment
from kubedevices.manifests.values import AdminValues, plain

_CONTROL_PLANE = "node-role.kubernetes.io/control-plane:NoSchedule"


def scheduling(deployment: Deployment) -> dict[str, Any]:
    """Return the fields of a pod's spec that choose its nodes."""
    admin = deployment.admin
    nodes = {"kubernetes.io/os": "linux", **admin.node_selector, **deployment.node_labels}
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
    """Return the toleration for a taint: `KEY` or `KEY=VALUE`, each also with `:EFFECT`."""
    # Pods do not tolerate all taints: a pod never starts on a virtual node, so an update would
    # never end.
    rest, _, effect = taint.partition(":")
    key, equals, value = rest.partition("=")
    toleration: dict[str, Any] = {"key": key, "operator": "Equal" if equals else "Exists"}
    return (
        toleration | ({"value": value} if equals else {}) | ({"effect": effect} if effect else {})
    )


def _affinity(admin: AdminValues, other_configs: Sequence[str]) -> dict[str, Any]:
    """Return the admin's affinity with the conditions for architecture and node configuration."""
    conditions: list[dict[str, Any]] = []
    if admin.arch:
        arch = {"key": "kubernetes.io/arch", "operator": "In", "values": [*admin.arch]}
        conditions.append(arch)
    if other_configs:
        label = admin.node_config_label
        conditions.append({"key": label, "operator": "NotIn", "values": [*other_configs]})
    return with_conditions(plain(admin.affinity), conditions)
