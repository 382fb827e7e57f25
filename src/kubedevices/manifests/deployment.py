"""What to deploy and where: the values that become manifests. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal, NamedTuple, TypeAlias

from kubedevices.config.keys import key
from kubedevices.manifests.values import DEFAULT_VALUES, AdminValues
from kubedevices.values import socket_paths
from kubedevices.values.socket_paths import DEVICE_PLUGIN_DIR

Plugin: TypeAlias = Literal["simulate", "expose", "proxy", "run"]
Mode: TypeAlias = Literal["device-plugin", "dra", "split"]

NAME = "kubedevices"
KUBELET_DIR = str(DEVICE_PLUGIN_DIR.parent)
PLUGIN_DIR = str(DEVICE_PLUGIN_DIR)
"""The plugin directory of every kubelet: `--root-dir` moves podresources, but not this."""
STATE_DIR = str(socket_paths.STATE_DIR)
INSIDE_DIR = str(socket_paths.INSIDE_DIR)
"""The directory of the host in which plugins behind a proxy register."""
CDI_DIR = "/var/run/cdi"
CONFIG_DIR = "/etc/kubedevices"
CONFIG_FILE = "config.yaml"
CONFIG_MAP = "configmap"
"""The value of `mode_file` if the mode comes from the ConfigMap, not from a file of the host."""

EXTENDED_RESOURCE_NAME = "{domain}/{type}"
"""The name under `limits:` of pods that a DeviceClass gets, as for a device plugin."""

MODE_DIR = "/etc/kubedevices-mode"
"""The path in the container of the directory with the host's mode file."""

DEV = "/dev"
HOST_DEV = "/host/dev"
METRICS_PORT = 9400
HOME_OF_PRIORITY = "kube-system"
"""The namespace in which system-node-critical needs no ResourceQuota in any cluster."""
LABEL = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
MANAGED_BY = "app.kubernetes.io/managed-by"
PART_OF = "app.kubernetes.io/part-of"
"""Label of a deployment for some nodes: the name of the plugin to which it belongs."""
POD_SECURITY = "pod-security.kubernetes.io"

EXAMPLE_DOMAIN = "devices.example.com"
EXAMPLE_CONFIG = f"""\
version: 1
namespace: {EXAMPLE_DOMAIN}
resources:
- name: "null"
  match: [{{path: /dev/null}}]
"""


class HostMount(NamedTuple):
    """A directory of the host at `path`; the container sees it at `inside`."""

    path: str
    inside: str
    read_only: bool = True


@dataclass(frozen=True, kw_only=True)
class PluginValues:
    """What a plugin serves and what its pods see: the same in a deployment and in the chart.

    `devices` is 0 for an unknown number. `mode` is the mode of the first start. The Pod Security
    level baseline does not allow the type of `selinux`.
    """

    env: Mapping[str, str] = key(
        "variables of the container, such as RESOURCE_NAME for simulate", default_factory=dict
    )
    arguments: tuple[str, ...] = key(
        "run: arguments such as [widgets:Widgets, --domain, example.com]", default=()
    )
    cdi: bool = key("expose: give devices to containers only by CDI", default=False)
    writes_cdi: bool = key(
        "true if the configuration asks for CDI: the pod may write CDI files", default=False
    )
    dev_dirs: tuple[str, ...] = key("expose: directories of /dev that the pod sees", default=(DEV,))
    host_dirs: tuple[str, ...] = key(
        "expose, proxy: other directories of the host that the configuration looks into", default=()
    )
    devices: int = key("simulate: number of devices; the memory follows from it", default=0)
    kubelet_dir: str = key("the kubelet's --root-dir", default=KUBELET_DIR)
    plugin_dir: str = key("plugin directory of the kubelet", default=PLUGIN_DIR)
    inside_dir: str = key(
        "proxy: directory of the host in which the other plugins register", default=INSIDE_DIR
    )
    mode: Mode = key("device-plugin, dra or split", default="device-plugin")
    mode_label: str = key(
        "label of the node with the mode, instead of a file: the plugin follows a change of it",
        default="",
    )
    dra_devices: tuple[str, ...] = key("split: globs of the devices that are in DRA", default=())
    domain: str = key("DRA: name of the driver", default="")
    device_types: tuple[str, ...] = key(
        "DRA: device types, each of which gets a DeviceClass", default=()
    )
    extended_resource_name: str = key(
        "DRA: pattern of the name that pods write under limits; an empty text for none, so "
        "that pods can only use claims",
        default=EXTENDED_RESOURCE_NAME,
    )
    selinux: bool = key("true: SELinux type container_device_plugin_t", default=False)


@dataclass(frozen=True)
class Deployment(PluginValues):
    """What to deploy and where.

    `config` is the text of a configuration file; for None, expose gets an example. With `metrics`
    the metrics also say which pod holds which device, and annotations ask Prometheus to scrape; all
    other HTTP pages are always served, for the kubelet's probes. `node_labels` select the nodes.
    `tolerations` are taints of nodes in the form of kubectl, `KEY=VALUE:EFFECT` or a part of that.
    `name` names every object, so that two plugins can be in one namespace. `mounts` belong to
    `run`, a plugin in its author's image. `mode_file` says where a later mode comes from: a file of
    the host, or `configmap` for the ConfigMap.

    `admin` is the content of `--values`. Each of its configurations for labelled nodes becomes a
    deployment of its own with this deployment as `part_of` and the configuration's name as
    `node_config`. This deployment does not run on the nodes of its `other_configs`.
    """

    plugin: Plugin
    image: str
    namespace: str = NAME
    config: str | None = None
    metrics: bool = False
    node_labels: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[str, ...] = ()
    name: str = NAME
    mounts: tuple[HostMount, ...] = ()
    mode_file: str | None = None
    admin: AdminValues = DEFAULT_VALUES
    part_of: str = ""
    node_config: str = ""
    other_configs: tuple[str, ...] = ()

    @property
    def follows_mode(self) -> bool:
        """Whether the mode may change while the pods run."""
        return self.mode_file is not None or bool(self.mode_label)

    @property
    def inside_registry(self) -> str:
        """The directory of the host for plugins behind a proxy that use the plugin watcher."""
        return inside_registry(self.inside_dir)

    @property
    def has_dra(self) -> bool:
        """Whether devices may be in DRA, now or later."""
        return self.mode != "device-plugin" or self.follows_mode

    @property
    def has_plugin(self) -> bool:
        """Whether devices may be those of a device plugin, now or later."""
        return self.mode != "dra" or self.follows_mode

    @property
    def asks_pod_resources(self) -> bool:
        """Whether the pods ask the kubelet which pod holds which device.

        A proxy always asks: while a plugin is away, `hold` needs to know which devices are free.
        """
        return self.metrics or self.plugin == "proxy"

    @property
    def is_alone(self) -> bool:
        """Whether a node must never have two pods of it, not even during an update.

        Two proxies cannot use the same directory, and a plugin registers with only one of them. Two
        pods that serve both device APIs would each decide in which API a device is.
        """
        return self.plugin == "proxy" or (self.has_dra and self.has_plugin)

    @property
    def selector(self) -> dict[str, str]:
        """The labels by which only this plugin's pods are selected."""
        return {LABEL: NAME, INSTANCE: self.name}

    @property
    def config_text(self) -> str | None:
        """The configuration in the ConfigMap, None if there is none."""
        if self.config is None and self.plugin == "expose":
            return EXAMPLE_CONFIG
        return self.config

    @property
    def map_data(self) -> dict[str, str]:
        """The data of the ConfigMap, by key; if it is empty, no ConfigMap is created."""
        found = {} if self.config_text is None else {CONFIG_FILE: self.config_text}
        return found | ({"mode": self.mode} if self.mode_file == CONFIG_MAP else {})

    @property
    def map_name(self) -> str:
        """The name of the ConfigMap, with the version if each text has its own ConfigMap."""
        return f"{self.name}-{self.map_version}" if self.admin.versioned_config else self.name

    @property
    def map_version(self) -> str:
        """A short text that changes with the data of the ConfigMap."""
        text = "".join(f"{key}\0{value}\0" for key, value in sorted(self.map_data.items()))
        return sha256(text.encode()).hexdigest()[:8]


def inside_registry(inside_dir: str) -> str:
    """Return the plugin registry that belongs to `inside_dir`: beside it, as at the kubelet."""
    return f"{inside_dir}_registry"


def kube_object(
    version: str, kind: str, about: Mapping[str, Any], **content: Any
) -> dict[str, Any]:
    """Return an object of the API of `version`; `about` is its metadata."""
    return {"apiVersion": version, "kind": kind, "metadata": about, **content}


def metadata(deployment: Deployment, **labels: str) -> dict[str, Any]:
    """Return name, namespace and labels of an object in the plugin's namespace."""
    found: dict[str, Any] = {
        "name": deployment.name,
        "namespace": deployment.namespace,
        "labels": own_labels(deployment) | labels,
    }
    if deployment.admin.annotations:
        found["annotations"] = {**deployment.admin.annotations}
    return found


def own_labels(deployment: Deployment) -> dict[str, str]:
    """Return the labels of every object; `undeploy` finds the objects by them."""
    part_of = {PART_OF: deployment.part_of} if deployment.part_of else {}
    return {**deployment.admin.labels, **deployment.selector, MANAGED_BY: NAME, **part_of}
