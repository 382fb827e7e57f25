"""What to deploy and where: the values that become manifests. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal, NamedTuple, TypeAlias

from kubedevices import socket_paths
from kubedevices.manifests.values import OURS, AdminValues
from kubedevices.socket_paths import DEVICE_PLUGIN_DIR

Plugin: TypeAlias = Literal["simulate", "expose", "proxy", "run"]
Mode: TypeAlias = Literal["device-plugin", "dra", "split"]

NAME = "kubedevices"
KUBELET_DIR = str(DEVICE_PLUGIN_DIR.parent)
PLUGIN_DIR = str(DEVICE_PLUGIN_DIR)
"""Where every kubelet looks for plugins: its `--root-dir` moves podresources, but not this."""
STATE_DIR = str(socket_paths.STATE_DIR)
INSIDE_DIR = str(socket_paths.INSIDE_DIR)
"""Where the plugins behind a proxy register, on the host."""
CDI_DIR = "/var/run/cdi"
CONFIG_DIR = "/etc/kubedevices"
CONFIG_FILE = "config.yaml"
CONFIG_MAP = "configmap"
"""Where a mode comes from that is not a file of the host."""

MODE_DIR = "/etc/kubedevices-mode"
"""Where the container sees the directory of such a file."""

DEV = "/dev"
HOST_DEV = "/host/dev"
METRICS_PORT = 9400
HOME_OF_PRIORITY = "kube-system"
"""Where system-node-critical may be used in every cluster; elsewhere some want a ResourceQuota."""
LABEL = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
MANAGED_BY = "app.kubernetes.io/managed-by"
PART_OF = "app.kubernetes.io/part-of"
"""The plugin to which a deployment for some nodes belongs."""
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
    """A directory of the host at `path`, and where the container sees it."""

    path: str
    inside: str
    read_only: bool = True


@dataclass(frozen=True)
class Deployment:
    """What to deploy and where.

    `env` are a simulator's settings, `config` is the text of a configuration file; expose has an
    example for None. `cdi` gives devices by CDI alone, `writes_cdi` lets the configuration decide.
    `dev_dirs` are the directories of /dev that expose looks into, `host_dirs` others of the host.
    `inside_dir` is where the plugins behind a proxy register.
    `metrics` adds which pod holds which device, and asks Prometheus to come; the other pages are
    there for the kubelet's probes in any case. `node_labels` select the nodes, `tolerations`
    are taints of nodes as kubectl writes them, `KEY=VALUE:EFFECT` or a part of that. `name` names
    every object, so that two plugins can live in one namespace. `selinux` asks for the type that
    SELinux has for device plugins; the Pod Security level baseline would not allow it. `devices` is
    how many are simulated, 0 for an unknown number: the memory follows from it. `arguments` and
    `mounts` are those of `run`, a plugin in an image of its author.

    `mode` is that of the first start. `mode_file` says where another may come from: a file of the
    host, or the ConfigMap for the word `configmap`. `dra_devices` are the globs of mode split.
    `domain` is the DRA driver, and `device_types` what gets a DeviceClass.

    `admin` is the file of `--values`. Its configurations of labelled nodes are deployments of their
    own, `part_of` this one, which leaves the nodes of its `other_configs` alone; `node_config` is
    the name of such a configuration.
    """

    plugin: Plugin
    image: str
    namespace: str = NAME
    kubelet_dir: str = KUBELET_DIR
    plugin_dir: str = PLUGIN_DIR
    inside_dir: str = INSIDE_DIR
    env: Mapping[str, str] = field(default_factory=dict)
    config: str | None = None
    cdi: bool = False
    writes_cdi: bool = False
    dev_dirs: tuple[str, ...] = (DEV,)
    host_dirs: tuple[str, ...] = ()
    metrics: bool = False
    node_labels: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[str, ...] = ()
    name: str = NAME
    selinux: bool = False
    devices: int = 0
    arguments: tuple[str, ...] = ()
    mounts: tuple[HostMount, ...] = ()
    mode: Mode = "device-plugin"
    mode_file: str | None = None
    dra_devices: tuple[str, ...] = ()
    domain: str = ""
    device_types: tuple[str, ...] = ()
    admin: AdminValues = OURS
    part_of: str = ""
    node_config: str = ""
    other_configs: tuple[str, ...] = ()

    @property
    def has_dra(self) -> bool:
        """Whether devices may be in DRA, now or later."""
        return self.mode != "device-plugin" or self.mode_file is not None

    @property
    def has_plugin(self) -> bool:
        """Whether devices may be those of a device plugin, now or later."""
        return self.mode != "dra" or self.mode_file is not None

    @property
    def is_alone(self) -> bool:
        """Whether a node must not have two pods, not even during an update.

        Not two proxies: plugins register with one of them, and the directory where they do is its
        own. Nor two pods that may be in both device APIs: each would decide where a device is.
        """
        return self.plugin == "proxy" or (self.has_dra and self.has_plugin)

    @property
    def selector(self) -> dict[str, str]:
        """The labels of this plugin's pods, and of no other's."""
        return {LABEL: NAME, INSTANCE: self.name}

    @property
    def config_text(self) -> str | None:
        """The configuration in the ConfigMap, None if there is none."""
        if self.config is None and self.plugin == "expose":
            return EXAMPLE_CONFIG
        return self.config

    @property
    def map_data(self) -> dict[str, str]:
        """Everything in the ConfigMap, by key; there is none for nothing."""
        found = {} if self.config_text is None else {CONFIG_FILE: self.config_text}
        return found | ({"mode": self.mode} if self.mode_file == CONFIG_MAP else {})

    @property
    def map_name(self) -> str:
        """The name of the ConfigMap, which contains the version where each text has its own."""
        return f"{self.name}-{self.map_version}" if self.admin.versioned_config else self.name

    @property
    def map_version(self) -> str:
        """A short text that changes with the data of the ConfigMap."""
        text = "".join(f"{key}\0{value}\0" for key, value in sorted(self.map_data.items()))
        return sha256(text.encode()).hexdigest()[:8]


def metadata(deployment: Deployment, **labels: str) -> dict[str, Any]:
    """Return name, namespace and labels of an object of a plugin, which lies in its namespace."""
    found: dict[str, Any] = {
        "name": deployment.name,
        "namespace": deployment.namespace,
        "labels": own_labels(deployment) | labels,
    }
    if deployment.admin.annotations:
        found["annotations"] = {**deployment.admin.annotations}
    return found


def own_labels(deployment: Deployment) -> dict[str, str]:
    """Return the labels of every object, by which they are found again."""
    part_of = {PART_OF: deployment.part_of} if deployment.part_of else {}
    return {**deployment.admin.labels, **deployment.selector, MANAGED_BY: NAME, **part_of}
