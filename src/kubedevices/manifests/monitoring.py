"""Objects for Prometheus, Grafana and the network, for the HTTP pages of a plugin. Pure."""

import json
from typing import Any

from kubedevices.config.documents.yaml_text import USER, load_yaml
from kubedevices.manifests.alerts import ALERTS
from kubedevices.manifests.dashboard import dashboard
from kubedevices.manifests.deployment import Deployment, kube_object, metadata
from kubedevices.manifests.values import plain

PAGES = "pages"
"""The name of the port of the HTTP pages."""
_OPERATOR = "monitoring.coreos.com/v1"
_SIDECAR = {"grafana_dashboard": "1"}


def monitoring(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the objects that the values ask for, in the order to apply them."""
    metrics = deployment.admin.metrics
    found = []
    if deployment.admin.network_policy.enabled:
        found.append(network_policy(deployment))
    if metrics.pod_monitor:
        found.append(_operator_object(deployment, "PodMonitor", _pod_monitor(deployment)))
    if metrics.prometheus_rule:
        found.append(_operator_object(deployment, "PrometheusRule", load_yaml(ALERTS, USER)))
    if metrics.dashboard:
        found.append(_dashboard(deployment))
    return found


def network_policy(deployment: Deployment) -> dict[str, Any]:
    """Return a policy by which only the named peers reach the pages; pods open no connections."""
    rule = {"from": plain(deployment.admin.network_policy.peers), "ports": [{"port": PAGES}]}
    spec = {
        "podSelector": {"matchLabels": deployment.selector},
        "policyTypes": ["Ingress"],
        # A rule without peers would allow every peer; an empty list of rules allows none.
        "ingress": [rule] if rule["from"] else [],
    }
    return kube_object("networking.k8s.io/v1", "NetworkPolicy", metadata(deployment), spec=spec)


def _pod_monitor(deployment: Deployment) -> dict[str, Any]:
    # honorLabels: node, pod and container of a device's holder are not those of the plugin's pod.
    endpoint = {"port": PAGES, "path": "/metrics", "honorLabels": True}
    return {"selector": {"matchLabels": deployment.selector}, "podMetricsEndpoints": [endpoint]}


def _operator_object(deployment: Deployment, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    about = metadata(deployment)
    about["labels"] = {**about["labels"], **deployment.admin.metrics.labels}
    return kube_object(_OPERATOR, kind, about, spec=spec)


def _dashboard(deployment: Deployment) -> dict[str, Any]:
    about = metadata(deployment)
    about["name"] += "-dashboard"
    about["labels"] = {**about["labels"], **_SIDECAR, **deployment.admin.metrics.labels}
    text = json.dumps(dashboard(), indent=1) + "\n"
    return kube_object("v1", "ConfigMap", about, data={"kubedevices.json": text})
