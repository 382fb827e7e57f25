"""One deployment for each way to deploy a plugin: every rule of manifests holds for each."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kubedevices.cli.cluster.manifests import IMAGE
from kubedevices.manifests.deployment import CONFIG_MAP, EXAMPLE_DOMAIN, Deployment
from kubedevices.manifests.values import AdminValues

_SERVED: Any = {"domain": EXAMPLE_DOMAIN, "device_types": ("null",)}
_FOUND = {
    "simulator": Deployment("simulate", IMAGE, env={"NUMBER_DEVICES": "2"}, devices=2),
    "generic": Deployment("expose", IMAGE),
    "cdi": Deployment("expose", IMAGE, cdi=True),
    "metrics": Deployment("expose", IMAGE, metrics=True),
    "openshift": Deployment("expose", IMAGE, admin=AdminValues(openshift=True)),
    "proxy": Deployment("proxy", IMAGE),
    "dra": Deployment("expose", IMAGE, mode="dra", **_SERVED),
    "two-modes": Deployment("expose", IMAGE, mode_file=CONFIG_MAP, **_SERVED),
}
DEPLOYMENTS: Mapping[str, Deployment] = {
    name: replace(each, name=f"kubedevices-{name}") for name, each in _FOUND.items()
}
