"""`kubedevices manifests`: prints the Kubernetes manifests of a plugin, or of a node."""

import argparse
import os
import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from kubedevices import __version__
from kubedevices.cli.cluster.manifest_arguments import (
    AUTHOR_OPTIONS,
    add_deployment_arguments,
    label,
    namespace,
    plugin_name,
    taint,
)
from kubedevices.cli.cluster.manifest_kwok import add_kwok_arguments, fake_nodes
from kubedevices.cli.cluster.manifest_modes import FOLLOWED_MODES, with_mode
from kubedevices.cli.cluster.manifest_plugins import (
    author_resources,
    with_author,
    with_expose,
    with_proxy,
    with_simulator,
)
from kubedevices.cli.cluster.manifest_units import add_unit_arguments, unit_of
from kubedevices.cli.cluster.manifest_values import (
    NAME_LIMIT,
    node_deployments,
    with_values,
)
from kubedevices.cli.shared.output import manifest_yaml, print_schema
from kubedevices.cli.shared.serving import some_path
from kubedevices.errors import UsageError
from kubedevices.host.terminal import print_line, print_text
from kubedevices.manifests.chart import chart_values
from kubedevices.manifests.deployment import INSIDE_DIR, Deployment, inside_registry
from kubedevices.manifests.deployment import NAME as USUAL_NAMESPACE
from kubedevices.manifests.image import pulled_as, registry, remark
from kubedevices.manifests.values import AdminValues
from kubedevices.manifests.workload import documents, node_pod, objects

NAME = "manifests"
IMAGE = f"localhost/kubedevices:{__version__}"
"""The image of `make image`: a cluster cannot pull it from the registry of somebody else."""
_GO_WITH = {
    "config": ("simulate", "expose", "proxy", "kwok"),
    "preset": ("simulate", "kwok"),
    "nodes": ("kwok",),
    "profile": ("expose",),
    "cdi": ("expose",),
    "dev-dir": ("expose",),
    "pod-resources": ("simulate", "expose", "proxy", "run"),
    "node-label": ("simulate", "expose", "proxy", "run"),
    "toleration": ("simulate", "expose", "proxy", "run"),
    "name": ("simulate", "expose", "proxy", "run", "kwok"),
    "selinux": ("simulate", "expose", "proxy", "run"),
    "namespace": ("simulate", "expose", "proxy", "run"),
    "image": ("simulate", "expose", "proxy", "run", "node"),
    "systemd": ("simulate", "expose", "proxy", "node"),
    "patch": ("proxy",),
    "values": ("simulate", "expose", "proxy", "run"),
    "as-values": ("simulate", "expose", "proxy", "run"),
    "values-schema": ("simulate", "expose", "proxy", "run"),
    **dict.fromkeys(AUTHOR_OPTIONS, ("run",)),
    "mount": ("expose", "proxy", "run"),
    "domain": ("expose", "run", "proxy"),
    "mode": ("simulate", "expose", "run", "proxy", "kwok"),
    **dict.fromkeys(FOLLOWED_MODES, ("simulate", "expose", "run")),
    "extended-resource-name": ("simulate", "expose", "run", "proxy", "kwok"),
    "device-type": ("run", "proxy"),
}
HELP = """\
print the Kubernetes manifests that deploy a plugin

simulate, expose, proxy and run print a namespace and a DaemonSet, unprivileged and without access
to the Kubernetes API. --mode dra adds the RBAC rules of a DRA driver, and DeviceClasses. run is for
a plugin of your own, in an image whose entry point is kubedevices. node prints a Pod for `podman
kube play`, for a host without Kubernetes. kwok prints fake nodes for KWOK with the devices and the
timeline of a simulator, to test schedulers and dashboards. Settings of the simulator come from its
variables, such as RESOURCE_NAME and NUMBER_DEVICES. A configuration with which the plugin would not
start is refused. proxy --patch FILE prints a patch for the DaemonSet of another plugin, so that the
plugin registers with the proxy.
"""
EXAMPLES = """\
examples:
  RESOURCE_NAME=example.com/gpu NUMBER_DEVICES=8 kubedevices manifests simulate | kubectl apply -f -
  kubedevices manifests simulate --preset eight-gpus | kubectl apply -f -
  kubedevices manifests expose --config host-devices.yaml --pod-resources | kubectl apply -f -
  kubedevices manifests expose --profile fuse --profile kvm | kubectl apply -f -
  kubedevices manifests simulate --mode dra | kubectl apply -f -
  kubedevices manifests expose --config host-devices.yaml --mode-file configmap
  kubedevices manifests node | podman kube play -
  NUMBER_DEVICES=8 kubedevices manifests kwok --nodes 125 | kubectl apply -f -
  kubedevices manifests kwok --preset flapping-gpu --nodes 3 | kubectl apply -f -
  kubedevices manifests expose --systemd --config /etc/kubedevices/devices.yaml
  kubedevices manifests expose --systemd --config /etc/kubedevices/devices.yaml --mode dra
  kubedevices manifests proxy --config proxy.yaml | kubectl apply -f -
  kubedevices manifests run widgets:Widgets --domain example.com --image lab.example.com/widgets:1
  kubectl -n NAMESPACE get daemonset NAME -o yaml | kubedevices manifests proxy --patch -
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    plugins = ("simulate", "expose", "proxy", "run", "node", "kwok")
    parser.add_argument("what", metavar="PLUGIN", choices=plugins, help=" | ".join(plugins))
    parser.add_argument(
        "--image",
        help=f"image name with its registry (default: {IMAGE}, which you have to import on every "
        "node)",
    )
    add_deployment_arguments(parser, plugins)
    add_unit_arguments(parser)
    add_kwok_arguments(parser)
    group = parser.add_argument_group("proxy")
    group.add_argument(
        "--patch",
        type=some_path,
        metavar="DAEMONSET",
        help="proxy: print the patch for the DaemonSet of another plugin, read from this file, or "
        "from stdin for -: its volumes of the plugin directory and of the kubelet's "
        "plugins_registry",
    )
    group.add_argument(
        "--inside-dir",
        metavar="DIR",
        default=INSIDE_DIR,
        help="proxy: where the other plugins register, on the host (default: %(default)s)",
    )
    group = parser.add_argument_group("for Helm and editors")
    group.add_argument(
        "--as-values",
        action="store_true",
        help="simulate, expose, proxy, run: print the values for the Helm chart instead",
    )
    group.add_argument(
        "--values-schema",
        action="store_true",
        help="simulate, expose, proxy, run: print the JSON schema of the file of --values, for "
        "editors",
    )


def run(args: argparse.Namespace) -> int:
    """Print the manifests or what an option asks for."""
    check_arguments(args)
    if args.values_schema:
        print_schema(AdminValues, "kubedevices manifests --values")
    elif args.systemd:
        print_text(unit_of(args, deployment_of))
    elif args.patch is not None:
        from kubedevices.cli.cluster.proxy_patch import patches

        image = args.image or IMAGE
        inside = args.inside_dir.rstrip("/")
        moved = {
            args.plugin_dir: inside,
            f"{args.kubelet_dir.rstrip('/')}/plugins_registry": inside_registry(inside),
        }
        file = Path("/dev/stdin") if str(args.patch) == "-" else args.patch
        found = patches(file, moved, image)
        if note := remark(image):
            print_line(f"# Image: {note}.")
        print_text(manifest_yaml(found))
    elif args.what == "node":
        print_text(manifest_yaml([node_pod(args.image or IMAGE, args.plugin_dir)]))
    elif args.what == "kwok":
        print_text(manifest_yaml(fake_nodes(args, deployment_of)))
    else:
        deployment, *others = deployments_of(args)
        if note := remark(deployment.image):
            print_line(f"# Image: {note}.")
        if args.as_values:
            print_text(manifest_yaml([chart_values(deployment, others)]))
        else:
            more = [document for other in others for document in objects(other)]
            print_text(manifest_yaml([*documents(deployment), *more]))
    return 0


def check_arguments(args: argparse.Namespace) -> None:
    """Raise `UsageError` for options that exclude each other, and for invalid values."""
    for name, goes_with in _GO_WITH.items():
        if args.what not in goes_with and getattr(args, name.replace("-", "_"), None):
            option = "MODULE:CLASS" if name == "scanner" else f"--{name}"
            raise UsageError(f"{option} works with {', '.join(goes_with)} only")
    for name in ("kubelet-dir", "plugin-dir", "inside-dir"):
        if not (given := getattr(args, name.replace("-", "_"), "/")).startswith("/"):
            raise UsageError(f"--{name} {given!r} is not an absolute path")
    if getattr(args, "kubeconfig", None) is not None and not args.systemd:
        raise UsageError("--kubeconfig works with --systemd only: a pod has a service account")
    if args.image is not None and not re.fullmatch(r"[^\s]+", args.image):
        raise UsageError(f"--image {args.image!r} is not an image name")
    if args.image is not None and args.what != "node" and not getattr(args, "systemd", False):
        check_image(args.image)


def check_image(image: str | None) -> None:
    """Raise `UsageError` for an image without a registry: Kubernetes would pull another image."""
    advice = (
        f"Build it (`make image`), push it to a registry of yours and say "
        f"--image REGISTRY/kubedevices:TAG, or import it on every node and say --image {IMAGE}; "
        f"docs/deploy.md has the commands. Of `make deploy`, IMAGE=… is the same"
    )
    if image is None:
        raise UsageError(f"which image? {advice}")
    if registry(image) is None:
        raise UsageError(
            f"image {image!r} names no registry, so Kubernetes would pull {pulled_as(image)}. "
            f"{advice}"
        )


def deployment_of(args: argparse.Namespace) -> Deployment:
    """Return the Deployment for the arguments, variables and files; raises `KubedevicesError`."""
    deployment = Deployment(
        "simulate" if args.what == "kwok" else args.what,
        namespace=namespace(args.namespace or os.environ.get("NAMESPACE") or USUAL_NAMESPACE),
        image=args.image or IMAGE,
        kubelet_dir=args.kubelet_dir.rstrip("/"),
        plugin_dir=args.plugin_dir.rstrip("/"),
        inside_dir=getattr(args, "inside_dir", INSIDE_DIR).rstrip("/"),
        metrics=args.pod_resources,
        node_labels=dict(label(text) for text in args.node_label),
        tolerations=tuple(taint(text) for text in args.toleration),
        selinux=args.selinux,
    )
    if args.what == "proxy":
        found, serves = with_proxy(deployment, args), ""
    elif args.what == "run":
        found, serves = with_author(deployment, args)
        found = with_mode(found, args, author_resources(args))
    elif args.what in ("simulate", "kwok"):
        found, serves = with_simulator(deployment, args)
    else:
        found, serves = with_expose(deployment, args)
    name = plugin_name(args.name) if args.name else default_name(args.what, serves)
    return with_values(replace(found, name=name), args.values)


def deployments_of(args: argparse.Namespace) -> list[Deployment]:
    """Return the Deployment, then one for each entry of `nodeConfigs` in `--values`."""
    deployment = deployment_of(args)
    return [deployment, *node_deployments(deployment, args, deployment_of)]


def target_of(args: argparse.Namespace) -> Deployment:
    """Return a Deployment with name and namespace; with --name, no file is read."""
    if not args.name:
        return deployment_of(args)
    wanted = namespace(args.namespace or os.environ.get("NAMESPACE") or USUAL_NAMESPACE)
    return Deployment(args.what, IMAGE, namespace=wanted, name=plugin_name(args.name))


def default_name(plugin: str, serves: str) -> str:
    """Return a name with `serves` in it, so that two plugins do not replace each other.

    Kubernetes allows dots in it, but the name becomes part of the host name of a pod.
    """
    name = re.sub("[^a-z0-9]+", "-", f"kubedevices-{plugin}-{serves}".lower()).strip("-")
    if len(name) <= NAME_LIMIT:
        return name
    return f"{name[: NAME_LIMIT - 9].rstrip('-')}-{sha256(name.encode()).hexdigest()[:8]}"
