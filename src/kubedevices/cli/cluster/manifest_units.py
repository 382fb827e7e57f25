"""`manifests --systemd`: a plugin, a DRA driver or a node as a service of the host."""

import argparse
from collections.abc import Callable, Iterator

from kubedevices.errors import UsageError
from kubedevices.manifests.deployment import (
    KUBELET_DIR,
    METRICS_PORT,
    PLUGIN_DIR,
    Deployment,
    inside_registry,
)
from kubedevices.manifests.units import node_unit, plugin_unit

PROGRAM = "/usr/local/bin/kubedevices"
KUBELET_KUBECONFIG = "/etc/kubernetes/kubelet.conf"
"""The kubelet's own credentials where kubeadm made the node."""

_OF_A_POD = (
    "name",
    "namespace",
    "image",
    "node_label",
    "toleration",
    "dev_dir",
    "selinux",
    "preset",
    "profile",
    "patch",
    "values",
    "as_values",
    "extended_resource_name",
)
"""Options that do not exist for a service of the host."""


def add_unit_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `--systemd` and the options that only a unit has."""
    group = parser.add_argument_group("a service of the host")
    group.add_argument(
        "--systemd",
        action="store_true",
        help="simulate, expose, proxy, node: print a systemd unit for the host instead",
    )
    group.add_argument(
        "--program",
        metavar="PATH",
        default=PROGRAM,
        help="--systemd: where kubedevices is installed (default: %(default)s)",
    )
    group.add_argument(
        "--kubeconfig",
        metavar="PATH",
        help="--systemd with DRA: how the driver reaches the API server (default: "
        f"{KUBELET_KUBECONFIG}, the kubelet's own credentials)",
    )


def unit_of(
    args: argparse.Namespace, deployment_of: Callable[[argparse.Namespace], Deployment]
) -> str:
    """Return the systemd unit; raises `KubedevicesError` if the service would not start."""
    for name in _OF_A_POD:
        if getattr(args, name) is not None and getattr(args, name) not in (False, []):
            raise UsageError(f"--{name.replace('_', '-')} cannot be used with --systemd")
    for name in ("program", "kubeconfig"):
        if not (getattr(args, name) or "/").startswith("/"):
            raise UsageError(f"--{name} {getattr(args, name)!r} is not an absolute path")
    if args.what == "node":
        return node_unit(args.program)
    if args.config is None and args.what == "expose":
        raise UsageError("--systemd: which devices? Give --config FILE, with its absolute path")
    if args.config is not None and not args.config.is_absolute():
        raise UsageError(f"--config {args.config}: a service needs the absolute path")
    deployment = deployment_of(args)
    arguments = [*_arguments(args, deployment)]
    return plugin_unit(args.program, arguments, deployment.env, has_dra=deployment.has_dra)


def _arguments(args: argparse.Namespace, deployment: Deployment) -> Iterator[str]:
    yield args.what
    if args.config is not None:
        yield from ("--config", str(args.config))
    if args.plugin_dir != PLUGIN_DIR and deployment.has_plugin:
        yield from ("--socket-dir", args.plugin_dir)
    if args.what == "proxy":
        inside = args.inside_dir.rstrip("/")
        yield from ("--plugin-dir", inside, "--plugin-registry", inside_registry(inside))
    if deployment.has_dra:
        yield from _of_dra(args, deployment)
    elif args.kubeconfig is not None:
        raise UsageError("--kubeconfig needs --mode dra, --mode split, --mode-file or --mode-label")
    if args.cdi:
        yield from ("--inject", "cdi")
    if args.pod_resources and deployment.has_plugin:
        yield from ("--pod-resources", f"{args.kubelet_dir}/pod-resources/kubelet.sock")
    yield from ("--listen", f"127.0.0.1:{METRICS_PORT}", "--log-format", "json")


def _of_dra(args: argparse.Namespace, deployment: Deployment) -> Iterator[str]:
    """Yield the options of a driver.

    No service account belongs to a process of the host. The kubelet's own credentials permit what a
    driver does on its node, and the API server limits them to the objects of this node.
    """
    yield from ("--mode", deployment.mode)
    if deployment.mode_file is not None:
        yield from ("--mode-file", deployment.mode_file)
    if deployment.mode_label:
        yield from ("--mode-label", deployment.mode_label)
    for glob in deployment.dra_devices:
        yield from ("--dra-devices", glob)
    if args.kubelet_dir != KUBELET_DIR:
        yield from ("--kubelet-dir", args.kubelet_dir)
    yield from ("--kubeconfig", args.kubeconfig or KUBELET_KUBECONFIG)
