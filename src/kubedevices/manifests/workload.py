"""A plugin as a DaemonSet, a node as a Pod: documents ready to be written as YAML.

The container is not privileged: the plugin directory belongs to root, so user 0 can create a socket
there without any capability. A device plugin does not use the Kubernetes API, so it has no rights
and no token. The rights of a DRA driver are in `dra_access`.

The container sees directories, not single device files, so that devices that are plugged in later
appear. By default it sees all of /dev, read-only: a driver may delete its directory, such as
/dev/dri, and create it again, and a mount of the old directory would not show the new one. The
container cannot open the files: its cgroup permits only devices that it was given.
"""

import posixpath
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from kubedevices.config.keys import key_names
from kubedevices.manifests import memory
from kubedevices.manifests.deployment import (
    CONFIG_DIR,
    CONFIG_FILE,
    CONFIG_MAP,
    HOME_OF_PRIORITY,
    HOST_DEV,
    KUBELET_DIR,
    LABEL,
    METRICS_PORT,
    MODE_DIR,
    NAME,
    PLUGIN_DIR,
    POD_SECURITY,
    STATE_DIR,
    Deployment,
    kube_object,
    metadata,
)
from kubedevices.manifests.dra_access import cluster_metadata, cluster_objects
from kubedevices.manifests.monitoring import PAGES, monitoring
from kubedevices.manifests.openshift import security_context_constraints
from kubedevices.manifests.scheduling import scheduling
from kubedevices.manifests.values import CommonValues, ProbeTimes, plain
from kubedevices.manifests.volumes import Volume, volumes_of

CONTROL = "control.sock"


def documents(deployment: Deployment) -> list[dict[str, Any]]:
    """Return all objects, in the order to apply them."""
    admin = deployment.admin
    made = [namespace(deployment.namespace, is_labelled=admin.pod_security_labels)]
    return [*(made if admin.create_namespace else []), *objects(deployment)]


def objects(deployment: Deployment) -> list[dict[str, Any]]:
    """Return all objects except the namespace, in the order to apply them."""
    admin = deployment.admin
    wanted = [service_account(deployment)]
    needs_quota = admin.resource_quota and admin.priority_class_name
    if needs_quota and deployment.namespace != HOME_OF_PRIORITY:
        wanted.append(resource_quota(deployment))
    if deployment.map_data:
        wanted.append(config_map(deployment))
    if admin.openshift:
        about = cluster_metadata(deployment)
        wanted.append({**security_context_constraints(deployment), "metadata": about})
    wanted += cluster_objects(deployment)
    return [*wanted, *monitoring(deployment), daemon_set(deployment)]


def namespace(name: str, *, is_labelled: bool = True) -> dict[str, Any]:
    """Return the namespace; hostPath volumes need the privileged pod security level."""
    modes = ("enforce", "audit", "warn") if is_labelled else ()
    levels = {f"{POD_SECURITY}/{mode}": "privileged" for mode in modes}
    return kube_object("v1", "Namespace", {"name": name, "labels": {LABEL: NAME, **levels}})


def service_account(deployment: Deployment) -> dict[str, Any]:
    """Return an account of its own, so that no other pod gets the rights of the plugin."""
    about = metadata(deployment)
    return kube_object("v1", "ServiceAccount", about, automountServiceAccountToken=False)


def resource_quota(deployment: Deployment) -> dict[str, Any]:
    """Return a quota without a limit: GKE and others permit the priority class only with one."""
    name = deployment.admin.priority_class_name
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": [name]}
    spec = {"hard": {"pods": "1G"}, "scopeSelector": {"matchExpressions": [scope]}}
    return kube_object("v1", "ResourceQuota", metadata(deployment), spec=spec)


def config_map(deployment: Deployment) -> dict[str, Any]:
    """Return configuration and mode: expose follows both without a restart, all follow the mode."""
    about = metadata(deployment) | {"name": deployment.map_name}
    more = {"immutable": True} if deployment.admin.versioned_config else {}
    return kube_object("v1", "ConfigMap", about, data=deployment.map_data, **more)


def daemon_set(deployment: Deployment) -> dict[str, Any]:
    """Return one pod per node. During an update a node has two, and the new pod takes over."""
    surge = {"maxSurge": 1, "maxUnavailable": 0}
    alone = {"maxSurge": 0, "maxUnavailable": 1}
    ours = {"type": "RollingUpdate", "rollingUpdate": alone if deployment.is_alone else surge}
    about: dict[str, Any] = {"labels": {**deployment.admin.pod_labels, **deployment.selector}}
    if annotations := _annotations(deployment):
        about["annotations"] = annotations
    spec = {
        "selector": {"matchLabels": deployment.selector},
        "updateStrategy": plain(deployment.admin.update_strategy) or ours,
        "template": {"metadata": about, "spec": pod_spec(deployment)},
    }
    return kube_object("apps/v1", "DaemonSet", metadata(deployment), spec=spec)


def _annotations(deployment: Deployment) -> dict[str, str]:
    found = {**deployment.admin.pod_annotations}
    if deployment.metrics and deployment.admin.metrics.annotations:
        found |= {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": str(METRICS_PORT),
            "prometheus.io/path": "/metrics",
        }
    has_version = deployment.admin.versioned_config
    if deployment.plugin == "simulate" and deployment.config_text is not None and not has_version:
        # The simulator reads its file once: a changed text must create new pods.
        found["checksum/config"] = sha256(deployment.config_text.encode()).hexdigest()[:16]
    return found


def pod_spec(deployment: Deployment) -> dict[str, Any]:
    """Return the spec of the pod on each node."""
    volumes = volumes_of(deployment)
    container = _container(deployment.image, _arguments(deployment), volumes)
    admin = deployment.admin
    container["securityContext"] |= _more_rights(admin)
    if admin.image_pull_policy:
        container["imagePullPolicy"] = admin.image_pull_policy
    container["resources"] = plain(admin.resources) or memory.resources(deployment.devices)
    container["env"] = _environment(deployment.env)
    container["ports"] = [{"name": PAGES, "containerPort": METRICS_PORT}]
    container["readinessProbe"] = {
        "httpGet": {"path": "/readyz", "port": PAGES},
        "periodSeconds": 1,  # an update waits for this probe on each node
        "timeoutSeconds": 3,
        **_times(admin.readiness_probe),
    }
    container["livenessProbe"] = {
        "httpGet": {"path": "/healthz", "port": PAGES},
        # A blocked event loop is noticed within 3 × 4 + 3 s; until then no pod is admitted.
        "periodSeconds": 4,
        "timeoutSeconds": 3,
        "failureThreshold": 3,
        **_times(admin.liveness_probe),
    }
    spec = {
        **_pod(selinux=deployment.selinux or admin.openshift, is_driver=deployment.has_dra),
        "serviceAccountName": deployment.name,
        **scheduling(deployment),
        "containers": [container],
        "volumes": [volume.source for volume in volumes],
    }
    if admin.termination_grace_period_seconds is not None:
        spec["terminationGracePeriodSeconds"] = admin.termination_grace_period_seconds
    if admin.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in admin.image_pull_secrets]
    if deployment.map_data:
        spec["volumes"].append({"name": "config", "configMap": {"name": deployment.map_name}})
        mount = {"name": "config", "mountPath": CONFIG_DIR, "readOnly": True}
        container["volumeMounts"].append(mount)
    return spec


def _more_rights(admin: CommonValues) -> dict[str, Any]:
    """Return what differs in the security context if a health check needs more rights."""
    found: dict[str, Any] = {}
    if admin.capabilities:
        found["capabilities"] = {"drop": ["ALL"], "add": [*admin.capabilities]}
    if admin.privileged or "SYS_ADMIN" in admin.capabilities:
        # Kubernetes refuses both without it.
        found |= {"privileged": admin.privileged, "allowPrivilegeEscalation": True}
    return found


def _times(probe: ProbeTimes) -> dict[str, int]:
    names = key_names(ProbeTimes)
    return {names[name]: value for name, value in vars(probe).items() if value is not None}


def node_pod(image: str, plugin_dir: str = PLUGIN_DIR) -> dict[str, Any]:
    """Return the node for a host without Kubernetes, for `podman kube play`."""
    volumes = [
        Volume("plugins", plugin_dir, plugin_dir, "DirectoryOrCreate", read_only=False),
        Volume("state", STATE_DIR, STATE_DIR, "DirectoryOrCreate", read_only=False),
    ]
    arguments = ["node", "--socket-dir", plugin_dir, "--state-dir", STATE_DIR]
    spec = {
        **_pod(selinux=True),
        "containers": [_container(image, arguments, volumes)],
        "volumes": [volume.source for volume in volumes],
    }
    about = {"name": f"{NAME}-node", "labels": {LABEL: NAME}}
    return kube_object("v1", "Pod", about, spec=spec)


def _arguments(deployment: Deployment) -> list[str]:
    arguments = [deployment.plugin, *deployment.arguments]
    if deployment.config_text is not None:
        arguments += ["--config", f"{CONFIG_DIR}/{CONFIG_FILE}"]
    if deployment.plugin == "expose":
        arguments += ["--dev-root", HOST_DEV]
    if deployment.plugin_dir != PLUGIN_DIR and deployment.has_plugin:
        arguments += ["--socket-dir", deployment.plugin_dir]
    if deployment.has_dra:
        arguments += _dra_arguments(deployment)
    if deployment.plugin == "proxy":
        arguments += ["--plugin-dir", deployment.inside_dir]
        arguments += ["--plugin-registry", deployment.inside_registry]
    arguments += ["--state-dir", STATE_DIR]
    if deployment.cdi:
        arguments += ["--inject", "cdi"]
    # The kubelet's probes come from outside of the pod, in some clusters by IPv6.
    arguments += ["--listen", f"*:{METRICS_PORT}"]
    if deployment.asks_pod_resources and deployment.has_plugin:
        socket = f"{deployment.kubelet_dir}/pod-resources/kubelet.sock"
        arguments += ["--pod-resources", socket]
    if deployment.admin.control_socket_dir:
        arguments += ["--control-socket", f"{deployment.admin.control_socket_dir}/{CONTROL}"]
    if deployment.admin.log_format:
        arguments += ["--log-format", deployment.admin.log_format]
    return [*arguments, *deployment.admin.extra_arguments]


def _dra_arguments(deployment: Deployment) -> list[str]:
    arguments = ["--mode", deployment.mode]
    if deployment.mode_file is not None:
        directory, file = CONFIG_DIR, "mode"
        if deployment.mode_file != CONFIG_MAP:
            directory, file = MODE_DIR, posixpath.basename(deployment.mode_file)
        arguments += ["--mode-file", f"{directory}/{file}"]
    if deployment.mode_label:
        arguments += ["--mode-label", deployment.mode_label]
    for glob in deployment.dra_devices:
        arguments += ["--dra-devices", glob]
    if deployment.kubelet_dir != KUBELET_DIR:
        arguments += ["--kubelet-dir", deployment.kubelet_dir]
    return arguments


def _environment(env: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the variables of the container; NODE_NAME always comes from the pod's spec."""
    node_name = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    given = [{"name": name, "value": value} for name, value in env.items() if name != "NODE_NAME"]
    return [{"name": "NODE_NAME", "valueFrom": node_name}, *given]


def _pod(*, selinux: bool, is_driver: bool = False) -> dict[str, Any]:
    security: dict[str, Any] = {
        "runAsUser": 0,
        "runAsGroup": 0,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if selinux:
        security["seLinuxOptions"] = {"type": "container_device_plugin_t"}
    return {
        "automountServiceAccountToken": is_driver,
        # A driver first lets open calls of the kubelet end: an author's hooks have 20 s.
        "terminationGracePeriodSeconds": 30 if is_driver else 5,
        "securityContext": security,
    }


def _container(image: str, arguments: Sequence[str], volumes: Sequence[Volume]) -> dict[str, Any]:
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
        # So `kubectl describe pod` shows the last lines of the log.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [volume.mount for volume in volumes],
    }
