"""The files below deploy/kustomize: complete overlays, as bases for overlays of users.

`kubectl apply -k deploy/kustomize/overlays/simulator` deploys an overlay. Its objects are named
after the overlay, so that two overlays can be in the same namespace.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kubedevices.manifests.deployment import CONFIG_MAP, EXAMPLE_DOMAIN, NAME, Deployment
from kubedevices.manifests.openshift import security_context_constraints
from kubedevices.manifests.workload import documents

NODE_LABEL = "feature.node.kubernetes.io/kubedevices"
ACCELERATORS = """\
version: 1
namespace: devices.example.com
resources:
- name: accelerator
  match: [{pci: {class: "1200", driver: vfio-pci}}]
"""
"""The configuration of the overlay nfd: devices that its NodeFeatureRule looks for."""


def overlays(image: str) -> Mapping[str, Deployment]:
    """Return the deployment of each overlay, by its name."""
    settings = {"RESOURCE_NAME": "example.com/simple-device", "NUMBER_DEVICES": "2"}
    example: Any = {"domain": EXAMPLE_DOMAIN, "device_types": ("null",)}
    found = {
        "simulator": Deployment("simulate", image, env=settings, devices=2),
        "generic": Deployment("expose", image),
        "cdi": Deployment("expose", image, cdi=True),
        "metrics": Deployment("expose", image, metrics=True),
        "nfd": Deployment("expose", image, config=ACCELERATORS, node_labels={NODE_LABEL: "true"}),
        "openshift": Deployment("expose", image, selinux=True),
        "proxy": Deployment("proxy", image),
        "dra": Deployment("expose", image, mode="dra", **example),
        "two-modes": Deployment("expose", image, mode_file=CONFIG_MAP, **example),
    }
    return {name: replace(each, name=f"{NAME}-{name}") for name, each in found.items()}


def files(image: str) -> dict[str, list[dict[str, Any]]]:
    """Return every file as its documents, by path below deploy/kustomize."""
    return {
        f"overlays/{name}/{file}": [document]
        for name, deployment in overlays(image).items()
        for file, document in _overlay(name, deployment).items()
    }


def _overlay(name: str, deployment: Deployment) -> dict[str, dict[str, Any]]:
    wanted = documents(deployment)
    if name == "nfd":
        wanted.append(node_feature_rule(deployment))
    if name == "openshift":
        wanted.append(security_context_constraints(deployment))
    found = {f"{each['kind'].lower()}.yaml": each for each in wanted}
    assert len(found) == len(wanted), "one object of each kind"
    head = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(found),
    }
    return {"kustomization.yaml": head, **found}


def node_feature_rule(deployment: Deployment) -> dict[str, Any]:
    """Return a rule of node-feature-discovery that labels nodes with accelerators for vfio-pci."""
    accelerator = {
        "feature": "pci.device",
        "matchExpressions": {"class": {"op": "In", "value": ["1200"]}},
    }
    # A driver may be a module or built into the kernel; older releases of NFD know only modules.
    drivers = [
        {"feature": f"kernel.{modules}", "matchExpressions": {"vfio_pci": {"op": "Exists"}}}
        for modules in ("loadedmodule", "enabledmodule")
    ]
    rule = {
        "name": deployment.name,
        "labels": {NODE_LABEL: "true"},
        "matchAny": [{"matchFeatures": [accelerator, driver]} for driver in drivers],
    }
    return {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeatureRule",
        "metadata": {"name": deployment.name},
        "spec": {"rules": [rule]},
    }
