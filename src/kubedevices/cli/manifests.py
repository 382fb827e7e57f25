"""`kubedevices manifests`: print the Kubernetes manifests of a plugin, or of a node."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubedevices import __version__
from kubedevices.errors import CannotAsk, CannotRead, UsageError

if TYPE_CHECKING:
    from kubedevices.manifests.workload import Deployment

NAME = "manifests"
IMAGE = f"kubedevices:{__version__}"
HELP = """\
print the Kubernetes manifests that deploy a plugin

simulate and expose print a namespace and a DaemonSet, unprivileged and without access to the
Kubernetes API; node prints a Pod for `podman kube play`, for a host without Kubernetes. Settings of
the simulator are taken from its variables, such as RESOURCE_NAME and NUMBER_DEVICES.
"""
EXAMPLES = """\
examples:
  RESOURCE_NAME=example.com/gpu NUMBER_DEVICES=8 kubedevices manifests simulate | kubectl apply -f -
  kubedevices manifests expose --config host-devices.yaml --metrics | kubectl apply -f -
  kubedevices manifests node | podman kube play -
  kubedevices manifests kustomize --directory deploy/kustomize
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument("what", choices=("simulate", "expose", "node", "kustomize"))
    parser.add_argument("--namespace", metavar="NAME", help="default: $NAMESPACE, or kubedevices")
    parser.add_argument("--image", help="default: kubedevices with our version as tag")
    parser.add_argument(
        "--kubelet-dir", metavar="DIR", help="where the kubelet lives (default: /var/lib/kubelet)"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="expose: its configuration")
    parser.add_argument("--cdi", action="store_true", help="expose: give devices by CDI alone")
    parser.add_argument(
        "--metrics", action="store_true", help="add which pod holds which device to the metrics"
    )
    parser.add_argument(
        "--node-label",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="only on nodes with this label; may be given several times",
    )
    parser.add_argument(
        "--directory", type=Path, metavar="DIR", help="kustomize: where to write base and overlays"
    )


def run(args: argparse.Namespace) -> int:
    """Print the documents, or write the files of kustomize."""
    from kubedevices.manifests import kustomize
    from kubedevices.manifests.workload import KUBELET_DIR, documents, node_pod

    if (args.directory is not None) is not (args.what == "kustomize"):
        raise UsageError("--directory goes with kustomize, which needs it")
    if args.what != "expose" and (args.config is not None or args.cdi):
        raise UsageError("--config and --cdi go with expose only")
    if args.what == "kustomize":
        write_files(args.directory, kustomize.files(IMAGE))
    elif args.what == "node":
        sys.stdout.write(as_yaml([node_pod(args.image or IMAGE, args.kubelet_dir or KUBELET_DIR)]))
    else:
        sys.stdout.write(as_yaml(documents(_deployment(args))))
    return 0


def _deployment(args: argparse.Namespace) -> "Deployment":
    from kubedevices.manifests.workload import EXAMPLE_CONFIG, KUBELET_DIR, NAME, Deployment

    return Deployment(
        args.what,
        namespace=args.namespace or os.environ.get("NAMESPACE") or NAME,
        image=args.image or IMAGE,
        kubelet_dir=args.kubelet_dir or KUBELET_DIR,
        env=_simulator_settings() if args.what == "simulate" else {},
        config=EXAMPLE_CONFIG if args.config is None else _checked_config(args.config),
        cdi=args.cdi,
        metrics=args.metrics,
        node_labels=dict(_label(text) for text in args.node_label),
    )


def _simulator_settings() -> dict[str, str]:
    """Return the variables that are set, as the container shall see them."""
    from kubedevices.builtin.simulator_config import SETTINGS

    names = [setting.variable for setting in SETTINGS if setting.variable]
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def _checked_config(file: Path) -> str:
    """Return the text of a file that expose accepts; raises `CannotRead` and `ConfigError`."""
    from kubedevices.builtin.expose_config import load_expose_config

    load_expose_config(file)
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise CannotRead(str(file), error.strerror or str(error)) from error


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UsageError(f"--node-label {text!r} is not KEY=VALUE")
    return key, value


def as_yaml(documents: list[dict[str, Any]]) -> str:
    """Return documents as one YAML text; a text of several lines stays readable."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    dumped = [
        yaml.dump(each, Dumper=Dumper, sort_keys=False, default_flow_style=False)
        for each in documents
    ]
    return "---\n".join(dumped)


def write_files(directory: Path, files: dict[str, list[dict[str, Any]]]) -> None:
    """Write every file below `directory`; raises `CannotAsk`."""
    for name, documents in files.items():
        path = directory / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(as_yaml(documents), encoding="utf-8")
        except OSError as error:
            raise CannotAsk(f"cannot write {path}: {error.strerror}") from error
