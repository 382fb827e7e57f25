"""Defines the metrics of kubedevices.

Code that counts something calls a `Metrics` with one of these metrics. `NO_METRICS` ignores the
call, so a process without a metrics page pays nothing. `pages.prometheus` stores the values. The
metrics of a DRA driver are in `dra.driver_metrics`.

Names that begin with `kubelet_` or `plugin_manager_` are the names of a kubelet. Alerts, dashboards
and docs/observe.md contain metric names as text; tests compare them with this module.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

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


def counter(name: str, meaning: str, labels: str = "") -> Metric:
    """Return a metric that only grows; `labels` are names with spaces between them."""
    return Metric(name, "counter", meaning, (*labels.split(),))


def gauge(name: str, meaning: str, labels: str = "") -> Metric:
    """Return a metric of the present."""
    return Metric(name, "gauge", meaning, (*labels.split(),))


def histogram(
    name: str, meaning: str, labels: str = "", buckets: tuple[float, ...] = DEFAULT_BUCKETS
) -> Metric:
    """Return a metric of how large values are."""
    return Metric(name, "histogram", meaning, (*labels.split(),), buckets)


class Sample(NamedTuple):
    """One value of a metric, with the values of its labels, in the order of `Metric.labels`."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


# ---------------------------------------------------------------- metrics of a kubelet

REGISTRATIONS = counter(
    "kubelet_device_plugin_registration_total",
    "Register calls, refused ones included; of resources never accepted: other.",
    "resource_name",
)
ALLOCATION_SECONDS = histogram(
    "kubelet_device_plugin_alloc_duration_seconds",
    "How long a plugin took to answer Allocate, failures included.",
    "resource_name",
)
POD_RESOURCES_REQUESTS = counter(
    "kubelet_pod_resources_endpoint_requests_total",
    "Calls to the podresources service.",
    "server_api_version",
)
POD_RESOURCES_BY_METHOD: Mapping[str, Metric] = {
    method: counter(
        f"kubelet_pod_resources_endpoint_requests_{method}",
        f"Calls of {method} of the podresources service.",
        "server_api_version",
    )
    for method in ("list", "get_allocatable", "get")
}
POD_RESOURCES_ERRORS: Mapping[str, Metric] = {
    method: counter(
        f"kubelet_pod_resources_endpoint_errors_{method}",
        f"Failed calls of {method} of the podresources service.",
        "server_api_version",
    )
    for method in ("list", "get_allocatable", "get")
}
TOPOLOGY_REQUESTS = counter(
    "kubelet_topology_manager_admission_requests_total", "Pods that asked for devices."
)
TOPOLOGY_ERRORS = counter(
    "kubelet_topology_manager_admission_errors_total",
    "Pods that were refused because their devices could not be aligned.",
)
TOPOLOGY_MILLISECONDS = histogram(
    "kubelet_topology_manager_admission_duration_ms",
    "How long the admission of a pod took, in milliseconds.",
    buckets=tuple(0.05 * 2**power for power in range(15)),
)
ALIGNED_CONTAINERS = counter(
    "kubelet_container_aligned_compute_resources_count",
    "Containers whose devices are on one NUMA node.",
    "scope boundary",
)
WATCHED_PLUGINS = gauge(
    "plugin_manager_total_plugins",
    "Sockets in the plugin registry directory, by state.",
    "socket_path state",
)

# ---------------------------------------------------------------- metrics of our node

CAPACITY = gauge("kubedevices_node_devices_capacity", "Devices of a resource.", "resource")
ALLOCATABLE = gauge(
    "kubedevices_node_devices_allocatable",
    "Healthy devices of a resource, held or not.",
    "resource",
)
HELD = gauge("kubedevices_node_devices_held", "Devices that containers hold.", "resource")
ADMISSIONS = counter("kubedevices_node_admissions_total", "Pods admitted or rejected.", "result")
DAMAGED_STATE = counter(
    "kubedevices_node_damaged_state_total",
    "Files of the node's own state that were found damaged and kept aside.",
)

# ---------------------------------------------------------------- metrics of our plugins

_PLUGIN = "kubedevices_plugin_"
DEVICES = gauge(f"{_PLUGIN}devices", "Devices of a resource, by health.", "resource health")
LEFT_OUT = gauge(
    f"{_PLUGIN}devices_left_out",
    "Devices that were found and are not offered, because a kubelet takes no list of that size.",
    "resource",
)
REGISTERED = gauge(
    f"{_PLUGIN}registered", "1 while a kubelet knows the resource from us.", "resource"
)
PROXIED_CONNECTED = gauge(
    "kubedevices_proxied_plugin_connected", "1 while a vendor's plugin is here.", "resource"
)
STREAMS = gauge(f"{_PLUGIN}streams", "Open ListAndWatch streams.", "resource")
PLUGIN_REGISTRATIONS = counter(
    f"{_PLUGIN}registrations_total",
    "Attempts to register, by result: success or failure.",
    "resource result",
)
KUBELET_RESTARTS = counter(
    f"{_PLUGIN}kubelet_restarts_total", "New kubelet sockets seen.", "resource"
)
UPDATES = counter(f"{_PLUGIN}updates_total", "Device lists sent over all streams.", "resource")
ALLOCATIONS = counter(
    f"{_PLUGIN}allocations_total",
    "Allocate calls, by result: success or failure.",
    "resource result",
)
ALLOCATE_SECONDS = histogram(
    f"{_PLUGIN}allocate_seconds", "How long Allocate took, failures included.", "resource"
)
PREFERRED_ERRORS = counter(
    f"{_PLUGIN}preferred_errors_total",
    "GetPreferredAllocation calls in which the hook failed.",
    "resource",
)
PRE_START_ERRORS = counter(
    f"{_PLUGIN}pre_start_errors_total", "PreStartContainer calls that failed.", "resource"
)
LATE_HOOKS = counter(
    f"{_PLUGIN}hook_timeouts_total",
    "Calls that failed because the plugin's own code did not answer in time.",
    "resource hook",
)
SCAN_SECONDS = gauge(f"{_PLUGIN}scan_seconds", "How long the last scan took.")
SCAN_ERRORS = counter(f"{_PLUGIN}scan_errors_total", "Scans that failed.")
MIDDLEWARE_EVENTS = counter(
    "kubedevices_middleware_events_total",
    "What a middleware did, by middleware, device type and event.",
    "middleware device_type event",
)
CONFIG_RELOADS = counter(
    f"{_PLUGIN}config_reloads_total",
    "Readings of a changed configuration, by result: success or failure.",
    "result",
)
CONFIG_IN_FORCE = gauge(
    f"{_PLUGIN}config_last_reload_successful",
    "1 while the configuration file is what is in force, 0 while it cannot be used.",
)
CONFIG_RELOADED = gauge(
    f"{_PLUGIN}config_reload_success_timestamp_seconds", "When the configuration in force was read."
)
DEVICE_ALLOCATED = gauge(
    f"{_PLUGIN}device_allocated",
    "1 for each device that a container holds, after the kubelet's podresources.",
    "resource device pod_namespace pod_name container_name",
)

DROPPED_LINES = counter(
    "kubedevices_dropped_lines_total",
    "Lines of output that nobody read in time, or that could not be written.",
    "stream",
)
NODE_LABEL = "node"
"""A label of every series of a plugin. The address of a pod changes, and names no node."""

BUILD = gauge("kubedevices_build_info", "1; the label says which version.", "version")

NODE_BEGINNINGS = (
    Sample(ADMISSIONS, ("admitted",), 0),
    Sample(ADMISSIONS, ("rejected",), 0),
    Sample(DAMAGED_STATE, (), 0),
    Sample(TOPOLOGY_REQUESTS, (), 0),
    Sample(TOPOLOGY_ERRORS, (), 0),
)
"""Counters that a node exports as 0 before the first event."""

Collect = Callable[[], Iterable[Sample]]


class Metrics:
    """Accepts values of metrics, and ignores them. `pages.prometheus` stores them."""

    def count(self, metric: Metric, *labels: str) -> None:
        """Add one to a counter."""

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Add a value to a histogram."""

    def collect_from(self, collect: Collect) -> None:
        """Call `collect` for gauges at every scrape."""


NO_METRICS = Metrics()
