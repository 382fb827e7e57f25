"""`kubedevices manifests`: print the Kubernetes manifests of a plugin, or of a node."""

import argparse
import os
import re
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from kubedevices import __version__, socket_paths
from kubedevices.cli.manifest_author import OPTIONS, add_author_arguments, with_author
from kubedevices.cli.manifest_expose import text_of, with_expose
from kubedevices.cli.manifest_modes import OPTIONS as MODE_OPTIONS
from kubedevices.cli.manifest_modes import add_mode_arguments, author_resources, with_mode
from kubedevices.cli.manifest_names import NAME_LIMIT, label, namespace, plugin_name, taint
from kubedevices.cli.manifest_values import (
    add_values_argument,
    node_deployments,
    print_schema,
    with_values,
)
from kubedevices.cli.manifest_yaml import as_yaml
from kubedevices.cli.serving import some_path
from kubedevices.errors import CannotAsk, ConfigError, UsageError
from kubedevices.socket_paths import DEVICE_PLUGIN_DIR

if TYPE_CHECKING:
    from kubedevices.builtin.simulator_settings import FileSettings
    from kubedevices.manifests.deployment import Deployment

NAME = "manifests"
IMAGE = f"localhost/kubedevices:{__version__}"
"""What `make image` builds: a name by which no cluster pulls an image of somebody else."""
PROGRAM = "/usr/local/bin/kubedevices"
PLUGIN_DIR = str(DEVICE_PLUGIN_DIR)
INSIDE_DIR = str(socket_paths.INSIDE_DIR)
KUBELET_DIR = str(DEVICE_PLUGIN_DIR.parent)
_GO_WITH = {
    "config": ("simulate", "expose", "proxy"),
    "preset": ("simulate",),
    "profile": ("expose",),
    "cdi": ("expose",),
    "dev-dir": ("expose",),
    "metrics": ("simulate", "expose", "run"),
    "node-label": ("simulate", "expose", "proxy", "run"),
    "toleration": ("simulate", "expose", "proxy", "run"),
    "name": ("simulate", "expose", "proxy", "run"),
    "selinux": ("simulate", "expose", "proxy", "run"),
    "namespace": ("simulate", "expose", "proxy", "run"),
    "image": ("simulate", "expose", "proxy", "run", "node"),
    "systemd": ("simulate", "expose", "proxy", "node"),
    "patch": ("proxy",),
    "values": ("simulate", "expose", "proxy", "run"),
    "as-values": ("simulate", "expose", "proxy", "run"),
    "values-schema": ("simulate", "expose", "proxy", "run"),
    **dict.fromkeys(OPTIONS, ("run",)),
    "domain": ("expose", "run"),
    **dict.fromkeys(MODE_OPTIONS, ("simulate", "expose", "run")),
    "device-type": ("run",),
}
HELP = """\
print the Kubernetes manifests that deploy a plugin

simulate, expose, proxy and run print a namespace and a DaemonSet, unprivileged and without access
to the Kubernetes API. --mode dra adds the RBAC rules of a DRA driver, and DeviceClasses. run is for
a plugin of your own, in an image whose entry point is kubedevices. node prints a Pod for `podman
kube play`, for a host without Kubernetes. Settings of the simulator come from its variables, such
as RESOURCE_NAME and NUMBER_DEVICES. A configuration that would not start is refused. proxy --patch
FILE prints a patch for the DaemonSet of another plugin, so that the plugin registers with
the proxy.
"""
EXAMPLES = """\
examples:
  RESOURCE_NAME=example.com/gpu NUMBER_DEVICES=8 kubedevices manifests simulate | kubectl apply -f -
  kubedevices manifests simulate --preset eight-gpus | kubectl apply -f -
  kubedevices manifests expose --config host-devices.yaml --metrics | kubectl apply -f -
  kubedevices manifests expose --profile fuse --profile kvm | kubectl apply -f -
  kubedevices manifests simulate --mode dra | kubectl apply -f -
  kubedevices manifests expose --config host-devices.yaml --mode-file configmap
  kubedevices manifests node | podman kube play -
  kubedevices manifests expose --systemd --config /etc/kubedevices/devices.yaml
  kubedevices manifests proxy --config proxy.yaml | kubectl apply -f -
  kubedevices manifests run widgets:Widgets --domain example.com --image lab.example.com/widgets:1
  kubedevices manifests proxy --patch their-plugin.yaml > patch.yaml
  kubedevices manifests kustomize --directory deploy/kustomize
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument("what", choices=("simulate", "expose", "proxy", "run", "node", "kustomize"))
    parser.add_argument("--namespace", metavar="NAME", help="default: $NAMESPACE, or kubedevices")
    parser.add_argument(
        "--image",
        help=f"image name with its registry (default: {IMAGE}, which you have to import on every "
        "node)",
    )
    add_author_arguments(parser)
    add_deployment_arguments(parser)
    parser.add_argument(
        "--systemd",
        action="store_true",
        help="simulate, expose, proxy, node: print a systemd unit for the host instead",
    )
    parser.add_argument(
        "--program",
        metavar="PATH",
        default=PROGRAM,
        help="--systemd: where kubedevices is installed (default: %(default)s)",
    )
    parser.add_argument(
        "--directory",
        type=some_path,
        metavar="DIR",
        help="kustomize: where to write the overlays",
    )
    parser.add_argument(
        "--patch",
        type=some_path,
        metavar="DAEMONSET",
        help="proxy: print the patch for the DaemonSet of another plugin, read from this file",
    )
    parser.add_argument(
        "--as-values",
        action="store_true",
        help="simulate, expose, proxy, run: print the values for the Helm chart instead",
    )
    parser.add_argument(
        "--values-schema",
        action="store_true",
        help="simulate, expose, proxy, run: print the JSON schema of the file of --values, for "
        "editors",
    )
    parser.add_argument(
        "--inside-dir",
        metavar="DIR",
        default=INSIDE_DIR,
        help="proxy: where the other plugins register, on the host (default: %(default)s)",
    )


def add_deployment_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what can be said about a plugin in a cluster."""
    parser.add_argument(
        "--name",
        help="name of all objects (default: kubedevices-simulate-RESOURCE, "
        "kubedevices-expose-DOMAIN)",
    )
    parser.add_argument(
        "--config",
        type=some_path,
        metavar="FILE",
        help="simulate, expose, proxy: configuration file (expose without a file: an example)",
    )
    parser.add_argument("--preset", metavar="NAME", help="simulate: name of a ready configuration")
    parser.add_argument(
        "--profile",
        action="append",
        metavar="NAME",
        help="expose: name of a ready configuration; may be given several times",
    )
    parser.add_argument(
        "--cdi", action="store_true", help="expose: give containers devices only by CDI"
    )
    parser.add_argument(
        "--dev-dir",
        action="append",
        default=[],
        metavar="DIR",
        help="expose: mount this directory instead of all of /dev; may be given several times. If "
        "a driver deletes it, the pod must be restarted",
    )
    parser.add_argument(
        "--kubelet-dir",
        metavar="DIR",
        default=KUBELET_DIR,
        help="the kubelet's --root-dir, for --metrics and DRA (default: %(default)s)",
    )
    parser.add_argument(
        "--plugin-dir",
        metavar="DIR",
        default=PLUGIN_DIR,
        help="plugin directory of the kubelet (default: %(default)s for any --root-dir)",
    )
    parser.add_argument(
        "--metrics", action="store_true", help="the metrics also say which pod holds which device"
    )
    _add_node_arguments(parser)
    add_mode_arguments(parser)
    add_values_argument(parser)


def _add_node_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--node-label",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="run only on nodes with this label; may be given several times",
    )
    parser.add_argument(
        "--toleration",
        action="append",
        default=[],
        metavar="KEY[=VALUE][:EFFECT]",
        help="run also on nodes with this taint; may be given several times (the taint of the "
        "control plane is always tolerated)",
    )
    parser.add_argument(
        "--selinux",
        action="store_true",
        help="run as container_device_plugin_t, for nodes on which SELinux is enforced",
    )


def run(args: argparse.Namespace) -> int:
    """Print the documents, or write the files of kustomize."""
    from kubedevices.manifests import kustomize
    from kubedevices.manifests.chart import chart_values
    from kubedevices.manifests.image import remark
    from kubedevices.manifests.workload import documents, node_pod, objects

    check_arguments(args)
    if args.values_schema:
        print_schema()
    elif args.systemd:
        from kubedevices.cli.host_units import unit_of

        sys.stdout.write(unit_of(args, lambda args: deployment_of(args).env))
    elif args.patch is not None:
        from kubedevices.cli.proxy_patch import patches

        sys.stdout.write(as_yaml(patches(args.patch, args.plugin_dir, args.inside_dir)))
    elif args.what == "kustomize":
        write_files(args.directory, kustomize.files(IMAGE))
    elif args.what == "node":
        sys.stdout.write(as_yaml([node_pod(args.image or IMAGE, args.plugin_dir)]))
    else:
        deployment, *others = deployments_of(args)
        if note := remark(deployment.image):
            print(f"# Image: {note}.")
        if args.as_values:
            sys.stdout.write(as_yaml([chart_values(deployment, others)]))
        else:
            more = [document for other in others for document in objects(other)]
            sys.stdout.write(as_yaml([*documents(deployment), *more]))
    return 0


def check_arguments(args: argparse.Namespace) -> None:
    """Refuse what does not go together and what Kubernetes would refuse; raises `UsageError`."""
    if (getattr(args, "directory", None) is not None) is not (args.what == "kustomize"):
        raise UsageError("kustomize needs --directory, and only kustomize")
    for name, goes_with in _GO_WITH.items():
        if args.what not in goes_with and getattr(args, name.replace("-", "_"), None):
            option = "MODULE:CLASS" if name == "scanner" else f"--{name}"
            raise UsageError(f"{option} goes with {', '.join(goes_with)} only")
    for name in ("kubelet-dir", "plugin-dir", "inside-dir"):
        if not (given := getattr(args, name.replace("-", "_"), "/")).startswith("/"):
            raise UsageError(f"--{name} {given!r} is not an absolute path")
    if args.image is not None and not re.fullmatch(r"[^\s]+", args.image):
        raise UsageError(f"--image {args.image!r} is not a name of an image")


def deployment_of(args: argparse.Namespace) -> "Deployment":
    """Return what the arguments, the variables and the files say; raises `KubedevicesError`."""
    from kubedevices.manifests.deployment import NAME, Deployment

    deployment = Deployment(
        args.what,
        namespace=namespace(args.namespace or os.environ.get("NAMESPACE") or NAME),
        image=args.image or IMAGE,
        kubelet_dir=args.kubelet_dir.rstrip("/"),
        plugin_dir=args.plugin_dir.rstrip("/"),
        inside_dir=getattr(args, "inside_dir", INSIDE_DIR).rstrip("/"),
        metrics=args.metrics,
        node_labels=dict(label(text) for text in args.node_label),
        tolerations=tuple(taint(text) for text in args.toleration),
        selinux=args.selinux,
    )
    if args.what == "proxy":
        found, serves = _with_proxy(deployment, args), ""
    elif args.what == "run":
        found, serves = with_author(deployment, args)
        found = with_mode(found, args, author_resources(args))
    elif args.what == "simulate":
        found, serves = _with_simulator(deployment, args)
    else:
        found, serves = with_expose(deployment, args)
    name = plugin_name(args.name) if args.name else default_name(args.what, serves)
    return with_values(replace(found, name=name), args.values)


def deployments_of(args: argparse.Namespace) -> "list[Deployment]":
    """Return the same, and one for each configuration of some nodes that `--values` names."""
    deployment = deployment_of(args)
    return [deployment, *node_deployments(deployment, args, deployment_of)]


def target_of(args: argparse.Namespace) -> "Deployment":
    """Return what names and namespace say; with --name without a look into any file."""
    from kubedevices.manifests.deployment import NAME, Deployment

    if not args.name:
        return deployment_of(args)
    wanted = namespace(args.namespace or os.environ.get("NAMESPACE") or NAME)
    return Deployment(args.what, IMAGE, namespace=wanted, name=plugin_name(args.name))


def default_name(plugin: str, serves: str) -> str:
    """Return a name that says what is served: two plugins must not replace each other.

    A dot would be allowed in it, but is not good in the host name of a pod.
    """
    name = re.sub("[^a-z0-9]+", "-", f"kubedevices-{plugin}-{serves}".lower()).strip("-")
    if len(name) <= NAME_LIMIT:
        return name
    return f"{name[: NAME_LIMIT - 9].rstrip('-')}-{sha256(name.encode()).hexdigest()[:8]}"


def _with_simulator(deployment: "Deployment", args: argparse.Namespace) -> "tuple[Deployment, str]":
    """Add the variables that are set, and a file that the simulator accepts; say what it serves."""
    from kubedevices.builtin.simulator_file import read_simulator_file
    from kubedevices.builtin.simulator_settings import SETTINGS, check_timeline, merge_resources
    from kubedevices.cli.simulate import find_preset

    if args.config is not None and args.preset is not None:
        raise UsageError("--config and --preset exclude each other: use one of them")
    names = [setting.variable for setting in SETTINGS if setting.variable]
    env = {name: os.environ[name] for name in names if os.environ.get(name)}
    file = args.config if args.preset is None else find_preset(args.preset)
    settings = None if file is None else read_simulator_file(file)
    configs = merge_resources(settings, env, {})
    devices = sum(config.number_devices for config in configs)
    if settings is not None:
        check_timeline(settings.timeline, configs)
        if any(config.create_device_files and config.device_file_prefix for config in configs):
            _refuse_device_files(settings)
        devices += len(configs) * max(
            (step.count or 0 for step in settings.timeline.steps), default=0
        )
    found = replace(
        deployment,
        env=env,
        config=None if file is None else text_of(file),
        writes_cdi=any(config.cdi for config in configs),
        devices=devices,
    )
    found = with_mode(found, args, [config.resource_name for config in configs])
    return found, configs[0].resource_name if len(configs) == 1 else configs[0].domain


def _with_proxy(deployment: "Deployment", args: argparse.Namespace) -> "Deployment":
    """Add a file that the proxy accepts."""
    from kubedevices.proxy.proxy_config import load_proxy_config

    if args.config is None:
        return deployment
    for warning in load_proxy_config(args.config)[1].warnings:
        print(f"kubedevices: {warning}", file=sys.stderr)
    return replace(deployment, config=text_of(args.config))


def _refuse_device_files(settings: "FileSettings") -> NoReturn:
    problem = "the pod could not make these files: it has no capabilities, and no such mount"
    places = [said.places.get("create_device_files") for said in (settings, *settings.resources)]
    raise ConfigError([place._replace(problem=problem) for place in places if place is not None])


def write_files(directory: Path, files: dict[str, list[dict[str, Any]]]) -> None:
    """Write every file below `directory`; raises `CannotAsk`."""
    for name, documents in files.items():
        path = directory / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(as_yaml(documents), encoding="utf-8")
        except OSError as error:
            raise CannotAsk(f"cannot write {path}: {error.strerror}") from error
