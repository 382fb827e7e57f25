"""`--values` of `manifests`, `deploy` and `undeploy`: settings of an administrator."""

import argparse
import posixpath
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kubedevices.cli.shared.serving import some_path
from kubedevices.errors import UsageError
from kubedevices.manifests.deployment import Deployment
from kubedevices.manifests.values import AdminValues

NAME_LIMIT = 57
"""Characters. For a pod, Kubernetes adds a dash and five characters, up to 63; it cuts the rest."""
_WITH_CONFIG = ("simulate", "expose", "proxy")


def add_values_argument(parser: argparse.ArgumentParser) -> None:
    """Declare `--values`."""
    parser.add_argument(
        "--values",
        type=some_path,
        metavar="FILE",
        help="YAML file with settings of an administrator for the objects, such as affinity, "
        "resources or a PodMonitor: docs/deploy.md has the keys",
    )


def with_values(deployment: Deployment, file: Path | None) -> Deployment:
    """Add the settings in `file`; raises `CannotRead`, `ConfigError` and `UsageError`."""
    if file is None:
        return deployment
    from kubedevices.config.yaml_config import load_config

    admin, _ = load_config(file, AdminValues)
    found = replace(
        deployment,
        admin=admin,
        metrics=deployment.metrics or admin.metrics.enabled,
        other_configs=tuple(each.name for each in admin.node_configs),
    )
    for problem in _problems(found):
        raise UsageError(f"{file}: {problem}")
    return found


def _problems(deployment: Deployment) -> list[str]:
    admin, plugin = deployment.admin, deployment.plugin
    found = []
    if admin.control_socket_dir and plugin != "simulate":
        found.append("controlSocketDir works with simulate only")
    if admin.node_configs and plugin not in _WITH_CONFIG:
        found.append(f"nodeConfigs work with {', '.join(_WITH_CONFIG)} only")
    if admin.node_configs and deployment.has_dra:
        found.append("nodeConfigs do not work with DRA: a driver has one domain")
    if admin.metrics.dashboard and "dashboard" in deployment.other_configs:
        found.append("nodeConfigs: `dashboard` is the name of the dashboard of metrics.dashboard")
    if (admin.liveness_probe.success_threshold or 1) != 1:
        found.append("livenessProbe: successThreshold must be 1")
    rolling = admin.update_strategy.get("rollingUpdate")
    surge = rolling.get("maxSurge") if isinstance(rolling, dict) else None
    if deployment.is_alone and surge not in (None, 0, "0", "0%"):
        found.append("updateStrategy: maxSurge must be 0, as two such pods disturb each other")
    return found


def node_deployments(
    deployment: Deployment, args: argparse.Namespace, make: Callable[..., Deployment]
) -> list[Deployment]:
    """Return a Deployment for each entry of `nodeConfigs`.

    `make` returns the Deployment for arguments. Only the first Deployment of all has the objects
    that exist once: quota, Prometheus rule and dashboard.
    """
    admin = deployment.admin
    once = replace(
        admin,
        resource_quota=False,
        node_configs=(),
        metrics=replace(admin.metrics, prometheus_rule=False, dashboard=False),
    )
    found = []
    for each in admin.node_configs:
        file = Path(posixpath.join(args.values.parent, each.config_file))
        more = {"config": file, "preset": None, "profile": None, "domain": None, "values": None}
        name = f"{deployment.name}-{each.name}"
        if len(name) > NAME_LIMIT:
            raise UsageError(
                f"{args.values}: nodeConfigs: {name} is longer than {NAME_LIMIT} characters: use a "
                "shorter --name"
            )
        own = make(argparse.Namespace(**{**vars(args), **more}))
        found.append(
            replace(
                own,
                admin=once,
                metrics=deployment.metrics,
                name=name,
                part_of=deployment.name,
                node_config=each.name,
            )
        )
    return found
