"""The schema of the settings of an admin for a plugin's objects: `--values` and the Helm chart.

The defaults are what `kubedevices manifests` prints without such a file. Values that are objects of
Kubernetes, such as an affinity, are not checked here: the API server checks them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kubedevices.config.checks import at_least
from kubedevices.config.keys import Complain, key
from kubedevices.manifests.affinity import shape_problem
from kubedevices.manifests.secret_directories import ADVICE, is_secret
from kubedevices.values.resource_name import DOMAIN, LABEL_LIMIT, LABEL_VALUE

PRIORITY_CLASS = "system-node-critical"
CONFIG_NAME_LIMIT = 20
"""Characters. The limit exists because the name is part of the name of a DaemonSet."""

_OUR_LABELS = ("app.kubernetes.io/", "kubedevices-namespace")
_TOO_MUCH = ("/dev", "/sys", "/usr")


def label_key(text: str) -> str:
    """Return why a text is no key of a label or annotation; empty if it is one."""
    prefix, slash, name = text.rpartition("/")
    is_key = LABEL_VALUE.fullmatch(name) and len(name) <= LABEL_LIMIT
    if is_key and (not slash or DOMAIN.fullmatch(prefix)):
        return ""
    return f"{text!r} is not a key of a label or annotation"


def _label_value(text: str) -> str:
    if not text or (LABEL_VALUE.fullmatch(text) and len(text) <= LABEL_LIMIT):
        return ""
    return f"{text!r} is not a value of a label"


def _own_directory(path: str) -> str:
    if not path:
        return ""
    if not path.startswith("/") or "//" in path or "/." in path or path.endswith("/"):
        return "must be an absolute path"
    if is_secret(path):
        return ADVICE
    if path in _TOO_MUCH or f"{path}/".startswith("/var/lib/kubelet/"):
        return "must be a separate directory, for example /run/kubedevices-simulator"
    return ""


def _capability(text: str) -> str:
    if re.fullmatch("[A-Z][A-Z_]*", text) and not text.startswith("CAP_"):
        return ""
    return f"{text!r} is not a capability: write SYS_ADMIN, without CAP_"


def config_name(text: str) -> str:
    """Return what is wrong with the name of a node configuration; empty if nothing is."""
    if re.fullmatch("[a-z0-9]([a-z0-9-]*[a-z0-9])?", text) and len(text) <= CONFIG_NAME_LIMIT:
        return ""
    return f"use a-z, 0-9 and '-', at most {CONFIG_NAME_LIMIT} of them"


_LABELS: dict[str, Any] = {
    "default_factory": dict,
    "check_key": label_key,
    "check": _label_value,
}


@dataclass(frozen=True, kw_only=True)
class ProbeTimes:
    """Times of a probe; for a missing key, the default time stays."""

    HINT: ClassVar[str] = "write '{periodSeconds: 5}'"

    initial_delay_seconds: int | None = key(
        "seconds from the start of the container to the first probe",
        default=None,
        check=at_least(0),
    )
    period_seconds: int | None = key("seconds between two probes", default=None, check=at_least(1))
    timeout_seconds: int | None = key(
        "seconds to wait for an answer", default=None, check=at_least(1)
    )
    failure_threshold: int | None = key(
        "failures in a row until the probe counts as failed", default=None, check=at_least(1)
    )
    success_threshold: int | None = key(
        "successes in a row until the probe counts as passed; 1 for the liveness probe",
        default=None,
        check=at_least(1),
    )


@dataclass(frozen=True, kw_only=True)
class MonitoringValues:
    """Objects and annotations for Prometheus and Grafana."""

    HINT: ClassVar[str] = "write '{enabled: true}'"

    enabled: bool = key(
        "true: the metrics also say which pod holds which device, and the pods have "
        "annotations that ask Prometheus to scrape them",
        default=False,
    )
    annotations: bool = key(
        "false: no such annotations, for example beside a PodMonitor", default=True
    )
    pod_monitor: bool = key("true: a PodMonitor for the Prometheus operator", default=False)
    prometheus_rule: bool = key(
        "true: a PrometheusRule with the alerts of docs/observe.md", default=False
    )
    dashboard: bool = key(
        "true: a ConfigMap with the dashboard, labelled for the sidecar of Grafana", default=False
    )
    labels: Mapping[str, str] = key(
        "labels of these three objects, by which an operator selects them", **_LABELS
    )


@dataclass(frozen=True, kw_only=True)
class NetworkPolicy:
    """Which peers may connect to the HTTP pages of the pods."""

    HINT: ClassVar[str] = "write '{enabled: true, from: [...]}'"

    enabled: bool = key(
        "true: only the peers in `from` may connect to the pods; the kubelet's probes come "
        "from the node, which network plugins always allow",
        default=False,
    )
    peers: tuple[Mapping[str, Any], ...] = key(
        "peers of a NetworkPolicy, such as {namespaceSelector: {matchLabels: {name: monitoring}}}; "
        "none for an empty list",
        name="from",
        default=(),
    )


@dataclass(frozen=True, kw_only=True)
class CommonValues:
    """Values that `manifests --values` and the chart have in common."""

    labels: Mapping[str, str] = key("further labels of all objects", **_LABELS)
    annotations: Mapping[str, str] = key(
        "further annotations of all objects", default_factory=dict, check_key=label_key
    )
    pod_labels: Mapping[str, str] = key("further labels of the pods", **_LABELS)
    pod_annotations: Mapping[str, str] = key(
        "further annotations of the pods", default_factory=dict, check_key=label_key
    )
    image_pull_policy: str = key(
        "Always, IfNotPresent or Never", default="", choices=("", "Always", "IfNotPresent", "Never")
    )
    image_pull_secrets: tuple[str, ...] = key(
        "names of Secrets for the registry of the image", default=()
    )
    node_selector: Mapping[str, str] = key("labels of the nodes that get a pod", **_LABELS)
    arch: tuple[str, ...] = key(
        "architectures of the nodes that get a pod, such as [amd64, arm64]; all by default",
        default=(),
        check=_label_value,
    )
    affinity: Mapping[str, Any] = key("affinity of the pods, as in a pod", default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = key(
        "tolerations of the pods, as in a pod", default=()
    )
    tolerate_control_plane: bool = key(
        "false: no pods on nodes with the taint of the control plane", default=True
    )
    priority_class_name: str = key(
        "priority class of the pods; an empty text for none", default=PRIORITY_CLASS
    )
    update_strategy: Mapping[str, Any] = key(
        "update strategy of the DaemonSet; by default a new pod starts before the old pod "
        "ends, unless a node must not have two pods",
        default_factory=dict,
    )
    termination_grace_period_seconds: int | None = key(
        "seconds that a pod has to end after SIGTERM", default=None, check=at_least(1)
    )
    resources: Mapping[str, Any] = key(
        "requests and limits of the container; by default they follow from the number of devices",
        default_factory=dict,
    )
    readiness_probe: ProbeTimes = key("times of the readiness probe", default=ProbeTimes())
    liveness_probe: ProbeTimes = key("times of the liveness probe", default=ProbeTimes())
    extra_arguments: tuple[str, ...] = key(
        "further arguments of kubedevices, such as --log-level=debug", default=()
    )
    log_format: str = key("text (default) or json", default="", choices=("", "text", "json"))
    metrics: MonitoringValues = key(
        "objects and annotations for Prometheus and Grafana", default=MonitoringValues()
    )
    network_policy: NetworkPolicy = key(
        "which peers may connect to the HTTP pages of the pods", default=NetworkPolicy()
    )
    resource_quota: bool = key(
        "false: no ResourceQuota; clusters that restrict priority classes need it", default=True
    )
    privileged: bool = key(
        "true: the container may open every device file of the host, for commands of "
        "health checks such as nvidia-smi",
        default=False,
    )
    capabilities: tuple[str, ...] = key(
        "capabilities of the container, for commands of health checks, such as SYS_ADMIN",
        default=(),
        check=_capability,
    )
    openshift: bool = key(
        "true: SecurityContextConstraints for the plugin's account, and the SELinux type "
        "of device plugins",
        default=False,
    )
    control_socket_dir: str = key(
        "simulate: directory of the host for the control socket, control.sock",
        default="",
        check=_own_directory,
    )
    versioned_config: bool = key(
        "true: each text of the configuration gets its own ConfigMap, so that `kubectl "
        "rollout undo` or `helm rollback` also restores the configuration",
        default=False,
    )
    node_config_label: str = key(
        "label of nodes; its value is the name of one of `nodeConfigs`",
        default="kubedevices-config",
        check=label_key,
    )

    @classmethod
    def validate(cls, values: Mapping[str, Any], complain: Complain) -> None:
        """Check that no label of kubedevices is replaced, and the shape of the affinity."""
        metrics: MonitoringValues = values.get("metrics", MonitoringValues())
        given: list[tuple[tuple[str, ...], Mapping[str, str]]] = [
            (("labels",), values.get("labels", {})),
            (("podLabels",), values.get("pod_labels", {})),
            (("metrics", "labels"), metrics.labels),
        ]
        for path, labels in given:
            for label in labels:
                if label.startswith(_OUR_LABELS):
                    complain((*path, label), "kubedevices sets this label", "use another label")
        if found := shape_problem(values.get("affinity", {})):
            complain(("affinity", *found[0]), found[1], "")


@dataclass(frozen=True, kw_only=True)
class NodeConfig:
    """Another configuration, for the nodes with the label."""

    HINT: ClassVar[str] = "write '- {name: big, configFile: big.yaml}'"

    name: str = key("value of the label of these nodes", check=config_name)
    config_file: str = key("configuration file, beside the file of values")


@dataclass(frozen=True, kw_only=True)
class AdminValues(CommonValues):
    """The file of `manifests`, `deploy` and `undeploy --values`."""

    create_namespace: bool = key("false: do not create the namespace", default=True)
    pod_security_labels: bool = key(
        "false: create the namespace without the labels of Pod Security", default=True
    )
    node_configs: tuple[NodeConfig, ...] = key(
        "configurations of nodes with the label; all other nodes get that of --config",
        default=(),
        unique="name",
    )


DEFAULT_VALUES = AdminValues()
"""The values without a file."""


def plain(value: Any) -> Any:
    """Return a value with dicts and lists instead of immutable mappings and tuples."""
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return value
