"""The Grafana dashboard deploy/grafana/kubedevices.json, created from the panels below.

`python -m tests.manifests.test_dashboard` writes the file `deploy/grafana/kubedevices.json`. The
names of metrics come from `kubedevices.pages.metrics`; docs/observe.md explains them.
"""

from typing import Any, NamedTuple

PLUGIN = "kubedevices_plugin_"
CHOSEN = 'node=~"$node",resource=~"$resource"'
SOURCE = {"type": "prometheus", "uid": "${source}"}
# During an update of a DaemonSet two pods report the same devices: `max` counts them once.
DEVICES = f"max by (node, resource, health) ({PLUGIN}devices{{{CHOSEN}}})"
HELD = (
    "max by (node, resource, device, pod_namespace, pod_name) "
    f"({PLUGIN}device_allocated{{{CHOSEN}}})"
)


class Panel(NamedTuple):
    """A panel: `width` in columns of 24, `queries` by their legends."""

    title: str
    kind: str
    width: int
    queries: dict[str, str]
    about: str = ""
    unit: str = "short"


def _count(health: str) -> str:
    chosen = DEVICES.replace(CHOSEN, f'{CHOSEN},health="{health}"')
    return f"sum({chosen}) or vector(0)"


def _per_resource(counter: str, more: str = "") -> str:
    return f"sum by (resource) (increase({PLUGIN}{counter}{{{CHOSEN}{more}}}[$__rate_interval]))"


def _quantile(share: float) -> str:
    rate = f"rate({PLUGIN}allocate_seconds_bucket{{{CHOSEN}}}[$__rate_interval])"
    return f"histogram_quantile({share}, sum by (resource, le) ({rate}))"


PANELS = (
    Panel("Healthy devices", "stat", 5, {"": _count("Healthy")}),
    Panel(
        "Unhealthy devices",
        "stat",
        5,
        {"": _count("Unhealthy")},
        "Also devices that were removed and are still in the list.",
    ),
    Panel(
        "Devices of pods",
        "stat",
        5,
        {"": f"count({HELD}) or vector(0)"},
        "Needs the option --pod-resources.",
    ),
    Panel(
        "Resources without a kubelet",
        "stat",
        5,
        {"": f"count(max by (node, resource) ({PLUGIN}streams{{{CHOSEN}}}) == 0) or vector(0)"},
        "Nodes on which no kubelet allocates devices of a resource now.",
    ),
    Panel(
        "Vendors' plugins away",
        "stat",
        4,
        {
            "": "count(max by (node, resource) "
            f"(kubedevices_proxied_plugin_connected{{{CHOSEN}}}) == 0) or vector(0)"
        },
        "Plugins that are not connected to their proxy; the proxy may still hold their devices.",
    ),
    Panel(
        "Devices by health",
        "timeseries",
        12,
        {"{{resource}} {{health}}": f"sum by (resource, health) ({DEVICES})"},
    ),
    Panel(
        "Allocated and all devices",
        "timeseries",
        12,
        {
            "{{resource}} allocated": f"count by (resource) ({HELD})",
            "{{resource}} all": f"sum by (resource) ({DEVICES})",
        },
    ),
    Panel(
        "Time of Allocate",
        "timeseries",
        12,
        {"{{resource}} median": _quantile(0.5), "{{resource}} 99 %": _quantile(0.99)},
        "How long pods wait for the plugin's answer.",
        "s",
    ),
    Panel(
        "Pods that did not start",
        "timeseries",
        12,
        {
            "{{resource}} Allocate": _per_resource("allocations_total", ',result="failure"'),
            "{{resource}} PreStart": _per_resource("pre_start_errors_total"),
            "{{resource}} time-outs": _per_resource("hook_timeouts_total"),
        },
    ),
    Panel(
        "Restarts",
        "timeseries",
        12,
        {
            "{{resource}} kubelet": _per_resource("kubelet_restarts_total"),
            "{{resource}} registrations": _per_resource("registrations_total", ',result="success"'),
        },
        "Many registrations without a kubelet restart: two plugins use the same resource name.",
    ),
    Panel(
        "Top holders",
        "table",
        12,
        {"": f"topk(20, count by (pod_namespace, pod_name, resource) ({HELD}))"},
    ),
)


def dashboard() -> dict[str, Any]:
    """Return the dashboard as JSON for Grafana's import."""
    panels, x, y = [], 0, 0
    for number, panel in enumerate(PANELS, start=1):
        height = 4 if panel.kind == "stat" else 8
        panels.append(_panel(number, panel, {"x": x, "y": y, "w": panel.width, "h": height}))
        x += panel.width
        if x >= 24:
            x, y = 0, y + height
    variables: list[dict[str, Any]] = [
        {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}
    ]
    for name in ("node", "resource"):
        query = f"label_values({PLUGIN}devices, {name})"
        variables.append(
            {
                "name": name,
                "type": "query",
                "datasource": SOURCE,
                "query": {"query": query, "refId": name},
                "definition": query,
                "refresh": 2,
                "includeAll": True,
                "allValue": ".*",
                "multi": True,
                "current": {"text": "All", "value": "$__all"},
            }
        )
    return {
        "title": "kubedevices",
        "uid": "kubedevices",
        "tags": ["kubernetes", "devices"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": variables},
        "panels": panels,
    }


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    is_table = panel.kind == "table"
    return {
        "id": number,
        "title": panel.title,
        "description": panel.about,
        "type": panel.kind,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + i),
                "datasource": SOURCE,
                "expr": query,
                "legendFormat": legend,
                "instant": panel.kind != "timeseries",
                "range": panel.kind == "timeseries",
                **({"format": "table"} if is_table else {}),
            }
            for i, (legend, query) in enumerate(panel.queries.items())
        ],
    }
