"""Defines the metrics of kubedevices.

Code that counts something calls a `Metrics` with one of these metrics. `NO_METRICS` ignores the
call, so a process without a metrics page pays nothing. `pages.prometheus` stores the values. The
metrics of a DRA driver are in `dra.driver_metrics`.

Names that begin with `kubelet_` or `plugin_manager_` are the names of a kubelet. Alerts, dashboards
and docs/observe.md contain metric names as text; tests compare them with this module.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, Protocol

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
"""The Content-Type of the text of `pages.prometheus`."""

DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

OTHER = "other"
"""The label value for names that a peer may invent, and for all series above `SERIES_LIMIT`."""

SERIES_LIMIT = 2000
"""Most series of one metric. Labels come from peers, and a series stays until the process ends."""


class Metric(NamedTuple):
    """One metric; `buckets` are the upper bounds of a histogram, in the unit of the metric."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


class Sample(NamedTuple):
    """One value of a metric, with the values of its labels, in the order of `Metric.labels`."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


# ---------------------------------------------------------------- metrics of a kubelet

REGISTRATIONS = Metric(
    "kubelet_device_plugin_registration_total",
    "counter",
    "Register calls, refused ones included; of resources never accepted: other.",
    ("resource_name",),
)
ALLOCATION_SECONDS = Metric(
    "kubelet_device_plugin_alloc_duration_seconds",
    "histogram",
    "How long a plugin took to answer Allocate, failures included.",
    ("resource_name",),
    DEFAULT_BUCKETS,
)
POD_RESOURCES_REQUESTS = Metric(
    "kubelet_pod_resources_endpoint_requests_total",
    "counter",
    "Calls to the podresources service.",
    ("server_api_version",),
)
POD_RESOURCES_BY_METHOD: Mapping[str, Metric] = {
    method: Metric(
        f"kubelet_pod_resources_endpoint_requests_{method}",
        "counter",
        f"Calls of {method} of the podresources service.",
        ("server_api_version",),
    )
    for method in ("list", "get_allocatable", "get")
}
POD_RESOURCES_ERRORS: Mapping[str, Metric] = {
    method: Metric(
        f"kubelet_pod_resources_endpoint_errors_{method}",
        "counter",
        f"Failed calls of {method} of the podresources service.",
        ("server_api_version",),
    )
    for method in ("list", "get_allocatable", "get")
}
TOPOLOGY_REQUESTS = Metric(
    "kubelet_topology_manager_admission_requests_total",
    "counter",
    "Pods that asked for devices.",
)
TOPOLOGY_ERRORS = Metric(
    "kubelet_topology_manager_admission_errors_total",
    "counter",
    "Pods that were refused because their devices could not be aligned.",
)
TOPOLOGY_MILLISECONDS = Metric(
    "kubelet_topology_manager_admission_duration_ms",
    "histogram",
    "How long the admission of a pod took, in milliseconds.",
    (),
    tuple(0.05 * 2**power for power in range(15)),
)
ALIGNED_CONTAINERS = Metric(
    "kubelet_container_aligned_compute_resources_count",
    "counter",
    "Containers whose devices are on one NUMA node.",
    ("scope", "boundary"),
)
WATCHED_PLUGINS = Metric(
    "plugin_manager_total_plugins",
    "gauge",
    "Sockets in the plugin registry directory, by state.",
    ("socket_path", "state"),
)

# ---------------------------------------------------------------- metrics of our node

CAPACITY = Metric(
    "kubedevices_node_devices_capacity", "gauge", "Devices of a resource.", ("resource",)
)
ALLOCATABLE = Metric(
    "kubedevices_node_devices_allocatable",
    "gauge",
    "Healthy devices of a resource, held or not.",
    ("resource",),
)
HELD = Metric(
    "kubedevices_node_devices_held", "gauge", "Devices that containers hold.", ("resource",)
)
ADMISSIONS = Metric(
    "kubedevices_node_admissions_total", "counter", "Pods admitted or rejected.", ("result",)
)
DAMAGED_STATE = Metric(
    "kubedevices_node_damaged_state_total",
    "counter",
    "Files of the node's own state that were found damaged and kept aside.",
)

# ---------------------------------------------------------------- metrics of our plugins

_PLUGIN = "kubedevices_plugin_"
_RESOURCE = ("resource",)
DEVICES = Metric(
    f"{_PLUGIN}devices", "gauge", "Devices of a resource, by health.", ("resource", "health")
)
LEFT_OUT = Metric(
    f"{_PLUGIN}devices_left_out",
    "gauge",
    "Devices that were found and are not offered, because a kubelet takes no list of that size.",
    _RESOURCE,
)
REGISTERED = Metric(
    f"{_PLUGIN}registered", "gauge", "1 while a kubelet knows the resource from us.", _RESOURCE
)
PROXIED_CONNECTED = Metric(
    "kubedevices_proxied_plugin_connected", "gauge", "1 while a vendor's plugin is here.", _RESOURCE
)
STREAMS = Metric(f"{_PLUGIN}streams", "gauge", "Open ListAndWatch streams.", _RESOURCE)
PLUGIN_REGISTRATIONS = Metric(
    f"{_PLUGIN}registrations_total",
    "counter",
    "Attempts to register, by result: success or failure.",
    ("resource", "result"),
)
KUBELET_RESTARTS = Metric(
    f"{_PLUGIN}kubelet_restarts_total", "counter", "New kubelet sockets seen.", _RESOURCE
)
UPDATES = Metric(
    f"{_PLUGIN}updates_total", "counter", "Device lists sent over all streams.", _RESOURCE
)
ALLOCATIONS = Metric(
    f"{_PLUGIN}allocations_total",
    "counter",
    "Allocate calls, by result: success or failure.",
    ("resource", "result"),
)
ALLOCATE_SECONDS = Metric(
    f"{_PLUGIN}allocate_seconds",
    "histogram",
    "How long Allocate took, failures included.",
    _RESOURCE,
    DEFAULT_BUCKETS,
)
PREFERRED_ERRORS = Metric(
    f"{_PLUGIN}preferred_errors_total",
    "counter",
    "GetPreferredAllocation calls in which the hook failed.",
    _RESOURCE,
)
PRE_START_ERRORS = Metric(
    f"{_PLUGIN}pre_start_errors_total", "counter", "PreStartContainer calls that failed.", _RESOURCE
)
LATE_HOOKS = Metric(
    f"{_PLUGIN}hook_timeouts_total",
    "counter",
    "Calls that failed because the plugin's own code did not answer in time.",
    ("resource", "hook"),
)
SCAN_SECONDS = Metric(f"{_PLUGIN}scan_seconds", "gauge", "How long the last scan took.")
SCAN_ERRORS = Metric(f"{_PLUGIN}scan_errors_total", "counter", "Scans that failed.")
MIDDLEWARE_EVENTS = Metric(
    "kubedevices_middleware_events_total",
    "counter",
    "What a middleware did, by middleware, device type and event.",
    ("middleware", "device_type", "event"),
)
CONFIG_RELOADS = Metric(
    f"{_PLUGIN}config_reloads_total",
    "counter",
    "Readings of a changed configuration, by result: success or failure.",
    ("result",),
)
CONFIG_IN_FORCE = Metric(
    f"{_PLUGIN}config_last_reload_successful",
    "gauge",
    "1 while the configuration file is what is in force, 0 while it cannot be used.",
)
CONFIG_RELOADED = Metric(
    f"{_PLUGIN}config_reload_success_timestamp_seconds",
    "gauge",
    "When the configuration in force was read.",
)
DEVICE_ALLOCATED = Metric(
    f"{_PLUGIN}device_allocated",
    "gauge",
    "1 for each device that a container holds, after the kubelet's podresources.",
    ("resource", "device", "pod_namespace", "pod_name", "container_name"),
)

DROPPED_LINES = Metric(
    "kubedevices_dropped_lines_total",
    "counter",
    "Lines of output that nobody read in time, or that could not be written.",
    ("stream",),
)
NODE_LABEL = "node"
"""A label of every series of a plugin. The address of a pod changes, and names no node."""

BUILD = Metric("kubedevices_build_info", "gauge", "1; the label says which version.", ("version",))

NODE_BEGINNINGS = (
    Sample(ADMISSIONS, ("admitted",), 0),
    Sample(ADMISSIONS, ("rejected",), 0),
    Sample(DAMAGED_STATE, (), 0),
    Sample(TOPOLOGY_REQUESTS, (), 0),
    Sample(TOPOLOGY_ERRORS, (), 0),
)
"""Counters that a node exports as 0 before the first event."""

Collect = Callable[[], Iterable[Sample]]


class Metrics(Protocol):
    """Accepts values of metrics."""

    def count(self, metric: Metric, *labels: str) -> None:
        """Add one to a counter."""

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Add a value to a histogram."""

    def collect_from(self, collect: Collect) -> None:
        """Call `collect` for gauges at every scrape."""


class NoMetrics:
    """Ignores every value."""

    def count(self, metric: Metric, *labels: str) -> None:
        """Ignore the value."""

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Ignore the value."""

    def collect_from(self, collect: Collect) -> None:
        """Never call it."""


NO_METRICS = NoMetrics()
