"""A plugin as a DaemonSet, a node as a Pod: documents ready to be written as YAML.

Unprivileged: the plugin directory belongs to root, so user 0 without any capability can create its
socket there. Nothing reads the Kubernetes API, so there is no RBAC and no token.

Directories are mounted and not single device files, so that what is plugged in later appears. By
default it is all of /dev, read-only: drivers delete a directory of theirs, such as /dev/dri, and
make another, which a mount of the old one never shows. No file in it can be opened, for a container
is only allowed the devices that it is given.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal, NamedTuple, TypeAlias

from kubedevices import socket_paths
from kubedevices.manifests import memory
from kubedevices.socket_paths import DEVICE_PLUGIN_DIR

Plugin: TypeAlias = Literal["simulate", "expose", "proxy", "run"]

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
DEV = "/dev"
HOST_DEV = "/host/dev"
METRICS_PORT = 9400
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane:NoSchedule"
PRIORITY_CLASS = "system-node-critical"
HOME_OF_PRIORITY = "kube-system"
"""Where that class may be used in every cluster; elsewhere some want a ResourceQuota for it."""
LABEL = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
MANAGED_BY = "app.kubernetes.io/managed-by"
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

    @property
    def selector(self) -> dict[str, str]:
        """The labels of this plugin's pods, and of no other's."""
        return {LABEL: NAME, INSTANCE: self.name}

    @property
    def config_text(self) -> str | None:
        """What the ConfigMap says, None if there is none."""
        if self.config is None and self.plugin == "expose":
            return EXAMPLE_CONFIG
        return self.config


class _Volume(NamedTuple):
    """A directory of the host, and where the container sees it."""

    name: str
    path: str
    seen_at: str
    kind: Literal["Directory", "DirectoryOrCreate"]
    read_only: bool

    @property
    def source(self) -> dict[str, Any]:
        return {"name": self.name, "hostPath": {"path": self.path, "type": self.kind}}

    @property
    def mount(self) -> dict[str, Any]:
        read_only = {"readOnly": True} if self.read_only else {}
        return {"name": self.name, "mountPath": self.seen_at, **read_only}


def documents(deployment: Deployment) -> list[dict[str, Any]]:
    """Return everything to apply, in order."""
    return [namespace(deployment.namespace), *objects(deployment)]


def objects(deployment: Deployment) -> list[dict[str, Any]]:
    """Return what lies in the namespace, in the order to apply it."""
    wanted = [service_account(deployment)]
    if deployment.namespace != HOME_OF_PRIORITY:
        wanted.append(resource_quota(deployment))
    if deployment.config_text is not None:
        wanted.append(config_map(deployment))
    return [*wanted, daemon_set(deployment)]


def namespace(name: str) -> dict[str, Any]:
    """Return the namespace; hostPath volumes need the privileged pod security level."""
    levels = {f"{POD_SECURITY}/{mode}": "privileged" for mode in ("enforce", "audit", "warn")}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {LABEL: NAME, **levels}},
    }


def service_account(deployment: Deployment) -> dict[str, Any]:
    """Return an account of our own, so that rights for us are rights for nobody else."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(deployment),
        "automountServiceAccountToken": False,
    }


def resource_quota(deployment: Deployment) -> dict[str, Any]:
    """Return what clusters that restrict priority classes, such as GKE, want for ours: no limit."""
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": [PRIORITY_CLASS]}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": _metadata(deployment),
        "spec": {"hard": {"pods": "1G"}, "scopeSelector": {"matchExpressions": [scope]}},
    }


def config_map(deployment: Deployment) -> dict[str, Any]:
    """Return the configuration; expose follows a change of it without a restart."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(deployment),
        "data": {CONFIG_FILE: deployment.config_text},
    }


def daemon_set(deployment: Deployment) -> dict[str, Any]:
    """Return one pod per node, two during an update: the new one takes over from the old one.

    Not two proxies: plugins register with one of them, and the directory where they do is its own.
    """
    surge = {"maxSurge": 1, "maxUnavailable": 0}
    alone = {"maxSurge": 0, "maxUnavailable": 1}
    about: dict[str, Any] = {"labels": deployment.selector}
    if annotations := _annotations(deployment):
        about["annotations"] = annotations
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": _metadata(deployment),
        "spec": {
            "selector": {"matchLabels": deployment.selector},
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": alone if deployment.plugin == "proxy" else surge,
            },
            "template": {"metadata": about, "spec": pod_spec(deployment)},
        },
    }


def _annotations(deployment: Deployment) -> dict[str, str]:
    found: dict[str, str] = {}
    if deployment.metrics:
        found = {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": str(METRICS_PORT),
            "prometheus.io/path": "/metrics",
        }
    if deployment.plugin == "simulate" and deployment.config_text is not None:
        # The simulator reads its file once: another text must make other pods.
        found["checksum/config"] = sha256(deployment.config_text.encode()).hexdigest()[:16]
    return found


def pod_spec(deployment: Deployment) -> dict[str, Any]:
    """Return what runs on each node."""
    volumes = _volumes(deployment)
    container = _container(deployment.image, _arguments(deployment), volumes)
    container["resources"] = memory.resources(deployment.devices)
    container["env"] = _environment(deployment.env)
    container["ports"] = [{"name": "pages", "containerPort": METRICS_PORT}]
    container["readinessProbe"] = {
        "httpGet": {"path": "/readyz", "port": "pages"},
        "periodSeconds": 1,  # an update waits for it at each node
        "timeoutSeconds": 3,
    }
    container["livenessProbe"] = {
        "httpGet": {"path": "/healthz", "port": "pages"},
        # A blocked event loop is noticed within 3 × 4 + 3 s: meanwhile no pod is admitted.
        "periodSeconds": 4,
        "timeoutSeconds": 3,
        "failureThreshold": 3,
    }
    spec = {
        **_pod(selinux=deployment.selinux),
        "serviceAccountName": deployment.name,
        "priorityClassName": PRIORITY_CLASS,
        "nodeSelector": {"kubernetes.io/os": "linux", **deployment.node_labels},
        "tolerations": _tolerations(deployment.tolerations),
        "containers": [container],
        "volumes": [volume.source for volume in volumes],
    }
    if deployment.config_text is not None:
        spec["volumes"].append({"name": "config", "configMap": {"name": deployment.name}})
        mount = {"name": "config", "mountPath": CONFIG_DIR, "readOnly": True}
        container["volumeMounts"].append(mount)
    return spec


def _tolerations(taints: Sequence[str]) -> list[dict[str, Any]]:
    """Return what goes with `KEY`, `KEY=VALUE`, either with `:EFFECT`; the control plane's first.

    Not all taints: a virtual node, on which no pod of ours ever starts, would hold up every update.
    """
    found = []
    for taint in (_CONTROL_PLANE, *taints):
        rest, _, effect = taint.partition(":")
        key, equals, value = rest.partition("=")
        toleration: dict[str, Any] = {"key": key, "operator": "Equal" if equals else "Exists"}
        found.append(
            toleration
            | ({"value": value} if equals else {})
            | ({"effect": effect} if effect else {})
        )
    return found


def node_pod(image: str, plugin_dir: str = PLUGIN_DIR) -> dict[str, Any]:
    """Return the node for a host without Kubernetes, as `podman kube play` takes it."""
    volumes = [
        _Volume("plugins", plugin_dir, plugin_dir, "DirectoryOrCreate", read_only=False),
        _Volume("state", STATE_DIR, STATE_DIR, "DirectoryOrCreate", read_only=False),
    ]
    arguments = ["node", "--socket-dir", plugin_dir, "--state-dir", STATE_DIR]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{NAME}-node", "labels": {LABEL: NAME}},
        "spec": {
            **_pod(selinux=True),
            "containers": [_container(image, arguments, volumes)],
            "volumes": [volume.source for volume in volumes],
        },
    }


def _volumes(deployment: Deployment) -> list[_Volume]:
    plugin_dir = deployment.plugin_dir
    volumes = [_Volume("plugins", plugin_dir, plugin_dir, "Directory", read_only=False)]
    if deployment.plugin == "expose":
        for number, path in enumerate(deployment.dev_dirs):
            name = "dev" if path == DEV else f"dev-{number}"
            kind: Literal["Directory", "DirectoryOrCreate"]
            # A directory of a driver that is not loaded must not hold up the pod.
            kind = "Directory" if path == DEV else "DirectoryOrCreate"
            seen_at = HOST_DEV + path.removeprefix(DEV)
            volumes.append(_Volume(name, path, seen_at, kind, read_only=True))
    if deployment.plugin == "proxy":
        wanted = {"inside": deployment.inside_dir, "state": STATE_DIR}
        volumes += [
            _Volume(name, path, path, "DirectoryOrCreate", read_only=False)
            for name, path in wanted.items()
        ]
    volumes += [
        _Volume(f"host-{number}", path, path, "DirectoryOrCreate", read_only=True)
        for number, path in enumerate(deployment.host_dirs)
    ]
    volumes += [
        _Volume(f"mount-{number}", *mount[:2], "Directory", read_only=mount.read_only)
        for number, mount in enumerate(deployment.mounts)
    ]
    if deployment.cdi or deployment.writes_cdi:
        volumes.append(_Volume("cdi", CDI_DIR, CDI_DIR, "DirectoryOrCreate", read_only=False))
    if deployment.metrics:
        path = f"{deployment.kubelet_dir}/pod-resources"
        volumes.append(_Volume("pod-resources", path, path, "Directory", read_only=True))
    return volumes


def _arguments(deployment: Deployment) -> list[str]:
    arguments = [deployment.plugin, *deployment.arguments]
    if deployment.config_text is not None:
        arguments += ["--config", f"{CONFIG_DIR}/{CONFIG_FILE}"]
    if deployment.plugin == "expose":
        arguments += ["--dev-root", HOST_DEV]
    if deployment.plugin_dir != PLUGIN_DIR:
        arguments += ["--socket-dir", deployment.plugin_dir]
    if deployment.plugin == "proxy":
        arguments += ["--plugin-dir", deployment.inside_dir, "--state-dir", STATE_DIR]
    if deployment.cdi:
        arguments += ["--inject", "cdi"]
    # The probes come from the node, not from within the pod, and in some clusters by IPv6.
    arguments += ["--listen", f"*:{METRICS_PORT}"]
    if deployment.metrics:
        socket = f"{deployment.kubelet_dir}/pod-resources/kubelet.sock"
        arguments += ["--pod-resources", socket]
    return arguments


def _environment(env: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return variables; the node's name is the pod's to know."""
    node_name = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    given = [{"name": name, "value": value} for name, value in env.items() if name != "NODE_NAME"]
    return [{"name": "NODE_NAME", "valueFrom": node_name}, *given]


def _metadata(deployment: Deployment) -> dict[str, Any]:
    return {
        "name": deployment.name,
        "namespace": deployment.namespace,
        "labels": {**deployment.selector, MANAGED_BY: NAME},
    }


def _pod(*, selinux: bool) -> dict[str, Any]:
    security: dict[str, Any] = {
        "runAsUser": 0,
        "runAsGroup": 0,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if selinux:
        security["seLinuxOptions"] = {"type": "container_device_plugin_t"}
    return {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 5,
        "securityContext": security,
    }


def _container(image: str, arguments: Sequence[str], volumes: Sequence[_Volume]) -> dict[str, Any]:
    return {
        "name": NAME,
        "image": image,
        "args": list(arguments),
        "securityContext": {
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": memory.resources(0),
        # The last lines of the log are the reason in `kubectl describe pod`.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [volume.mount for volume in volumes],
    }
