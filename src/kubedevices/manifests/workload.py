"""A plugin as a DaemonSet, a node as a Pod: documents ready to be written as YAML.

Unprivileged: the plugin directory belongs to root, so user 0 without any capability can create its
socket there. Nothing reads the Kubernetes API, so there is no RBAC and no token. Directories are
mounted and not single device files, so that what is plugged in later appears.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Document: TypeAlias = dict[str, Any]
Plugin: TypeAlias = Literal["simulate", "expose"]

NAME = "kubedevices"
KUBELET_DIR = "/var/lib/kubelet"
STATE_DIR = "/var/lib/kubedevices"
CDI_DIR = "/var/run/cdi"
CONFIG_DIR = "/etc/kubedevices"
CONFIG_FILE = "config.yaml"
HOST_DEV = "/host/dev"
METRICS_PORT = 9400
_LABEL = "app.kubernetes.io/name"
_POD_SECURITY = ("enforce", "audit", "warn")

EXAMPLE_CONFIG = """\
version: 1
namespace: devices.example.com
resources:
- name: "null"
  match: [{path: /dev/null}]
"""


@dataclass(frozen=True)
class Deployment:
    """What to deploy and where.

    `env` are a simulator's settings, `config` is the text of expose's file. `metrics` adds
    which pod holds which device; the other pages are there for the kubelet's probes in any case.
    `node_labels` select the nodes.
    """

    plugin: Plugin
    image: str
    namespace: str = NAME
    kubelet_dir: str = KUBELET_DIR
    env: Mapping[str, str] = field(default_factory=dict)
    config: str = EXAMPLE_CONFIG
    cdi: bool = False
    metrics: bool = False
    node_labels: Mapping[str, str] = field(default_factory=dict)


def documents(deployment: Deployment) -> list[Document]:
    """Return everything to apply, in order."""
    wanted = [namespace(deployment.namespace)]
    if deployment.plugin == "expose":
        wanted.append(config_map(deployment))
    return [*wanted, daemon_set(deployment)]


def namespace(name: str) -> Document:
    """Return the namespace; hostPath volumes need the privileged pod security level."""
    levels = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in _POD_SECURITY}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {_LABEL: NAME, **levels}},
    }


def config_map(deployment: Deployment) -> Document:
    """Return expose's configuration; a change of it is followed without a restart."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(deployment.namespace),
        "data": {CONFIG_FILE: deployment.config},
    }


def daemon_set(deployment: Deployment) -> Document:
    """Return one pod per node. Never two at once: they would fight for one socket name."""
    spec = pod_spec(deployment)
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": _metadata(deployment.namespace),
        "spec": {
            "selector": {"matchLabels": {_LABEL: NAME}},
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
            },
            "template": {"metadata": {"labels": {_LABEL: NAME}}, "spec": spec},
        },
    }


def pod_spec(deployment: Deployment) -> Document:
    """Return what runs on each node."""
    plugin_dir = f"{deployment.kubelet_dir}/device-plugins"
    container = _container(deployment.image, _arguments(deployment))
    container["env"] = _environment(deployment.env)
    container["ports"] = [{"name": "pages", "containerPort": METRICS_PORT}]
    container["readinessProbe"] = {
        "httpGet": {"path": "/readyz", "port": "pages"},
        "periodSeconds": 10,
    }
    container["livenessProbe"] = {
        "httpGet": {"path": "/healthz", "port": "pages"},
        "periodSeconds": 30,
        "timeoutSeconds": 5,
    }
    volumes = [("plugins", plugin_dir, plugin_dir, "Directory", False)]
    if deployment.plugin == "expose":
        volumes.append(("dev", "/dev", HOST_DEV, "Directory", True))
    if deployment.cdi:
        volumes.append(("cdi", CDI_DIR, CDI_DIR, "DirectoryOrCreate", False))
    if deployment.metrics:
        pod_resources = f"{deployment.kubelet_dir}/pod-resources"
        volumes.append(("pod-resources", pod_resources, pod_resources, "Directory", True))
    spec = {
        **_pod(),
        "priorityClassName": "system-node-critical",
        "tolerations": [
            {"operator": "Exists", "effect": effect} for effect in ("NoSchedule", "NoExecute")
        ],
        "containers": [_with_volumes(container, volumes)],
        "volumes": [_volume(*volume[:2], volume[3]) for volume in volumes],
    }
    if deployment.plugin == "expose":
        spec["volumes"].append({"name": "config", "configMap": {"name": NAME}})
        mount = {"name": "config", "mountPath": CONFIG_DIR, "readOnly": True}
        spec["containers"][0]["volumeMounts"].append(mount)
    if deployment.node_labels:
        spec["nodeSelector"] = dict(deployment.node_labels)
    return spec


def node_pod(image: str, kubelet_dir: str = KUBELET_DIR) -> Document:
    """Return the node for a host without Kubernetes, as `podman kube play` takes it."""
    volumes = [
        ("kubelet", kubelet_dir, kubelet_dir, "DirectoryOrCreate", False),
        ("state", STATE_DIR, STATE_DIR, "DirectoryOrCreate", False),
    ]
    arguments = ["node", "--socket-dir", f"{kubelet_dir}/device-plugins", "--state-dir", STATE_DIR]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{NAME}-node", "labels": {_LABEL: NAME}},
        "spec": {
            **_pod(),
            "containers": [_with_volumes(_container(image, arguments), volumes)],
            "volumes": [_volume(*volume[:2], volume[3]) for volume in volumes],
        },
    }


def _arguments(deployment: Deployment) -> list[str]:
    arguments: list[str] = [deployment.plugin]
    if deployment.plugin == "expose":
        arguments += ["--config", f"{CONFIG_DIR}/{CONFIG_FILE}", "--dev-root", HOST_DEV]
    if deployment.kubelet_dir != KUBELET_DIR:
        arguments += ["--socket-dir", f"{deployment.kubelet_dir}/device-plugins"]
    if deployment.cdi:
        arguments += ["--inject", "cdi"]
    # The probes come from the node, not from within the pod.
    arguments += ["--listen", f"0.0.0.0:{METRICS_PORT}"]
    if deployment.metrics:
        socket = f"{deployment.kubelet_dir}/pod-resources/kubelet.sock"
        arguments += ["--pod-resources", socket]
    return arguments


def _environment(env: Mapping[str, str]) -> list[Document]:
    """Return variables; the node's name is the pod's to know."""
    node_name = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    given = [{"name": name, "value": value} for name, value in env.items() if name != "NODE_NAME"]
    return [{"name": "NODE_NAME", "valueFrom": node_name}, *given]


def _metadata(in_namespace: str) -> Document:
    return {"name": NAME, "namespace": in_namespace, "labels": {_LABEL: NAME}}


def _pod() -> Document:
    return {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 5,
        "securityContext": {
            "runAsUser": 0,
            "runAsGroup": 0,
            "seccompProfile": {"type": "RuntimeDefault"},
            "seLinuxOptions": {"type": "container_device_plugin_t"},
        },
    }


def _container(image: str, arguments: Sequence[str]) -> Document:
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
        "resources": {
            "requests": {"cpu": "10m", "memory": "48Mi"},
            "limits": {"memory": "128Mi"},
        },
    }


def _with_volumes(
    container: Document, volumes: Sequence[tuple[str, str, str, str, bool]]
) -> Document:
    container["volumeMounts"] = [
        {"name": name, "mountPath": target} | ({"readOnly": True} if read_only else {})
        for name, _, target, _, read_only in volumes
    ]
    return container


def _volume(name: str, path: str, kind: str) -> Document:
    return {"name": name, "hostPath": {"path": path, "type": kind}}
