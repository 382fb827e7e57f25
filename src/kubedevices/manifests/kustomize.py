"""The files below deploy/kustomize: a base, and overlays that say what they add to it.

`kubectl apply -k deploy/kustomize/overlays/simulator` deploys one of them.
"""

from collections.abc import Mapping
from typing import Any

from kubedevices.manifests.workload import (
    NAME,
    Deployment,
    Document,
    config_map,
    daemon_set,
    namespace,
    service_account,
)

NODE_LABEL = "feature.node.kubernetes.io/kubedevices"
ACCELERATORS = """\
version: 1
namespace: devices.example.com
resources:
- name: accelerator
  match: [{pci: {class: "1200", driver: vfio-pci}}]
"""
"""What the rule of the overlay nfd finds."""

_BASE = ("namespace.yaml", "serviceaccount.yaml", "daemonset.yaml")


def overlays(image: str) -> Mapping[str, Deployment]:
    """Return what each overlay deploys, by its name."""
    settings = {"RESOURCE_NAME": "example.com/simple-device", "NUMBER_DEVICES": "2"}
    return {
        "simulator": Deployment("simulate", image, env=settings),
        "generic": Deployment("expose", image),
        "cdi": Deployment("expose", image, cdi=True),
        "metrics": Deployment("expose", image, metrics=True),
        "nfd": Deployment("expose", image, config=ACCELERATORS, node_labels={NODE_LABEL: "true"}),
        "openshift": Deployment("expose", image),
    }


def files(image: str) -> dict[str, list[Document]]:
    """Return every file as its documents, by path below deploy/kustomize."""
    base = Deployment("simulate", image)
    found = {
        "base/kustomization.yaml": [_kustomization(resources=list(_BASE))],
        "base/namespace.yaml": [namespace(base.namespace)],
        "base/serviceaccount.yaml": [service_account(base.namespace)],
        "base/daemonset.yaml": [daemon_set(base)],
    }
    for name, deployment in overlays(image).items():
        found |= {f"overlays/{name}/{file}": each for file, each in _overlay(name, deployment)}
    return found


def _overlay(name: str, deployment: Deployment) -> list[tuple[str, list[Document]]]:
    resources = ["../../base"]
    parts: list[tuple[str, list[Document]]] = []
    if deployment.plugin == "expose":
        parts.append(("config.yaml", [config_map(deployment)]))
    if name == "nfd":
        parts.append(("rule.yaml", [node_feature_rule()]))
    if name == "openshift":
        parts.append(("scc.yaml", security_context_constraints(deployment.namespace)))
    resources += [file for file, _ in parts]
    head = _kustomization(resources=resources, patches=[{"path": "daemonset.yaml"}])
    return [
        ("kustomization.yaml", [head]),
        ("daemonset.yaml", [_patch(daemon_set(deployment))]),
        *parts,
    ]


def _patch(wanted: Document) -> Document:
    """Return what differs from the base: lists with names are merged by name, others replaced."""
    spec = wanted["spec"]["template"]["spec"]
    container = spec["containers"][0]
    changed = {"name": NAME, **{key: container[key] for key in ("args", "env", "volumeMounts")}}
    pod: Document = {"containers": [changed], "volumes": spec["volumes"]}
    if len(spec["nodeSelector"]) > 1:
        pod["nodeSelector"] = spec["nodeSelector"]
    template: Document = {"spec": pod}
    annotations = wanted["spec"]["template"]["metadata"].get("annotations")
    if annotations:
        template = {"metadata": {"annotations": annotations}, **template}
    return {
        "apiVersion": wanted["apiVersion"],
        "kind": wanted["kind"],
        "metadata": {key: wanted["metadata"][key] for key in ("name", "namespace")},
        "spec": {"template": template},
    }


def node_feature_rule() -> Document:
    """Return a rule of node-feature-discovery that labels nodes with accelerators for vfio-pci."""
    accelerator = {
        "feature": "pci.device",
        "matchExpressions": {"class": {"op": "In", "value": ["1200"]}},
    }
    # A driver may be a module or built into the kernel; older releases know only of modules.
    drivers = [
        {"feature": f"kernel.{modules}", "matchExpressions": {"vfio_pci": {"op": "Exists"}}}
        for modules in ("loadedmodule", "enabledmodule")
    ]
    rule = {
        "name": NAME,
        "labels": {NODE_LABEL: "true"},
        "matchAny": [{"matchFeatures": [accelerator, driver]} for driver in drivers],
    }
    return {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeatureRule",
        "metadata": {"name": NAME},
        "spec": {"rules": [rule]},
    }


def security_context_constraints(in_namespace: str) -> list[Document]:
    """Return what OpenShift asks for: hostPath volumes and user 0, nothing else of `privileged`."""
    constraints: dict[str, Any] = {
        "apiVersion": "security.openshift.io/v1",
        "kind": "SecurityContextConstraints",
        "metadata": {"name": NAME},
        "allowHostDirVolumePlugin": True,
        "allowHostIPC": False,
        "allowHostNetwork": False,
        "allowHostPID": False,
        "allowHostPorts": False,
        "allowPrivilegedContainer": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "priority": None,
        "allowedCapabilities": None,
        "defaultAddCapabilities": None,
        "requiredDropCapabilities": ["ALL"],
        "runAsUser": {"type": "RunAsAny"},
        "seLinuxContext": {"type": "RunAsAny"},
        "seccompProfiles": ["runtime/default"],
        "fsGroup": {"type": "RunAsAny"},
        "supplementalGroups": {"type": "RunAsAny"},
        "users": [f"system:serviceaccount:{in_namespace}:{NAME}"],
        "volumes": ["configMap", "hostPath"],
    }
    return [constraints]


def _kustomization(**parts: Any) -> Document:
    return {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", **parts}
