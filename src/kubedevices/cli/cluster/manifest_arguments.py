"""The options that `manifests`, `deploy` and `undeploy` share, and the checks of their values."""

import argparse
import re
import shlex
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from kubedevices.cli.cluster.manifest_modes import add_mode_arguments
from kubedevices.cli.cluster.manifest_values import NAME_LIMIT, add_values_argument
from kubedevices.cli.shared.serving import some_path
from kubedevices.errors import UsageError
from kubedevices.manifests.deployment import KUBELET_DIR, PLUGIN_DIR
from kubedevices.simulate.settings import SETTINGS
from kubedevices.values.resource_name import DOMAIN, LABEL_LIMIT, LABEL_VALUE

AUTHOR_OPTIONS = ("scanner", "domain", "arg", "mount")

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_DNS_LABEL = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def add_deployment_arguments(parser: argparse.ArgumentParser, plugins: Sequence[str]) -> None:
    """Declare the options for any of `plugins` in a cluster."""
    parser.add_argument(
        "scanner", metavar="MODULE:CLASS", nargs="?", help="run: the scanner in the image"
    )
    parser.add_argument(
        "--name",
        help="name of all objects (default: kubedevices-simulate-RESOURCE, "
        "kubedevices-expose-DOMAIN)",
    )
    parser.add_argument("--namespace", metavar="NAME", help="default: $NAMESPACE, or kubedevices")
    add_values_argument(parser)
    _add_plugin_arguments(parser, plugins)
    _add_host_arguments(parser, plugins)
    _add_node_arguments(parser)
    add_mode_arguments(parser, those(plugins, "run", "proxy"))
    for setting in SETTINGS:  # options of `kubedevices simulate`; those of any plugin stay
        if setting.yaml_key and not setting.is_switch:
            wrong = partial(_write_as, setting.variable)
            parser.add_argument(setting.flag, type=wrong, help=argparse.SUPPRESS)


def _write_as(variable: str, value: str) -> NoReturn:
    setting = shlex.quote(f"{variable}={value}")
    raise UsageError(
        f"settings of the simulator are variables here: write {setting} before kubedevices"
    )


def those(plugins: Sequence[str], *given: str) -> str:
    """Return the texts of `given` whose first word is one of `plugins`, for a help."""
    return ", ".join(text for text in given if text.partition(" ")[0] in plugins)


def _add_plugin_arguments(parser: argparse.ArgumentParser, plugins: Sequence[str]) -> None:
    """Declare which devices are served; `run` is for a plugin of the user, in the user's image."""
    group = parser.add_argument_group("which devices")
    group.add_argument(
        "--config",
        type=some_path,
        metavar="FILE",
        help=f"{those(plugins, 'simulate', 'expose', 'proxy')}: configuration file (expose without "
        "a file: an example)",
    )
    group.add_argument("--preset", metavar="NAME", help="simulate: name of a ready configuration")
    group.add_argument(
        "--profile",
        action="append",
        metavar="NAME",
        help="expose: name of a ready configuration; may be given several times",
    )
    group.add_argument(
        "--domain",
        help=f"{those(plugins, 'run', 'expose --profile', 'proxy --mode dra')}: the part of the "
        "resource names before the slash",
    )
    group.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="run: an argument of the scanner's constructor; may be given several times",
    )
    group.add_argument(
        "--cdi", action="store_true", help="expose: give containers devices only by CDI"
    )


def _add_host_arguments(parser: argparse.ArgumentParser, plugins: Sequence[str]) -> None:
    group = parser.add_argument_group("what the pod sees of the host")
    group.add_argument(
        "--mount",
        action="append",
        default=[],
        metavar="HOST[:INSIDE][:rw]",
        help=f"{those(plugins, 'run', 'expose', 'proxy')}: a directory of the host, where the "
        "container sees it (default: at the same path) and whether it may write there; may be "
        "given several times. A health check may need it. /sys needs no mount, every container "
        "has it",
    )
    group.add_argument(
        "--dev-dir",
        action="append",
        default=[],
        metavar="DIR",
        help="expose: mount this directory instead of all of /dev; may be given several times. If "
        "a driver deletes the directory, the pod must be restarted",
    )
    group.add_argument(
        "--kubelet-dir",
        metavar="DIR",
        default=KUBELET_DIR,
        help="the kubelet's --root-dir, for --pod-resources and DRA (default: %(default)s)",
    )
    group.add_argument(
        "--plugin-dir",
        metavar="DIR",
        default=PLUGIN_DIR,
        help="plugin directory of the kubelet (default: %(default)s for any --root-dir)",
    )
    always = " (a proxy always has it)" if "proxy" in plugins else ""
    group.add_argument(
        "--pod-resources",
        action="store_true",
        help=f"mount the kubelet's podresources socket{always}: the metrics also say which pod "
        "holds which device, and Prometheus finds the pods by annotations",
    )


def _add_node_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("which nodes")
    group.add_argument(
        "--node-label",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="run only on nodes with this label; may be given several times",
    )
    group.add_argument(
        "--toleration",
        action="append",
        default=[],
        metavar="KEY[=VALUE][:EFFECT]",
        help="run also on nodes with this taint; may be given several times (the taint of the "
        "control plane is always tolerated)",
    )
    group.add_argument(
        "--selinux",
        action="store_true",
        help="run as container_device_plugin_t, for nodes on which SELinux is enforced",
    )


# ---------------------------------------------------------------- names that Kubernetes takes


def plugin_name(name: str) -> str:
    """Return `name` if it is valid for all objects of a plugin; raises `UsageError`."""
    if len(name) > NAME_LIMIT or not _DNS_LABEL.fullmatch(name):
        raise UsageError(f"--name {name!r}: use a-z, 0-9 and '-', at most {NAME_LIMIT} of them")
    return name


def namespace(name: str) -> str:
    """Return `name` if it is valid for a namespace; raises `UsageError`."""
    if not _DNS_LABEL.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a namespace name: use a-z, 0-9 and '-', at most 63 of them"
        )
    return name


def label(text: str) -> tuple[str, str]:
    """Return key and value of `KEY=VALUE`; raises `UsageError`."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--node-label {text!r} is not KEY=VALUE")
    longest = max(len(key.rpartition("/")[2]), len(value))
    if not _is_pair(key, value) or longest > LABEL_LIMIT:
        raise UsageError(
            f"--node-label {text!r}: a node cannot have this label (see `kubectl get nodes "
            "--show-labels`)"
        )
    return key, value


def taint(text: str) -> str:
    """Return `text` if it is KEY or KEY=VALUE, with or without :EFFECT; raises `UsageError`."""
    rest, colon, effect = text.partition(":")
    key, _, value = rest.partition("=")
    if not _is_pair(key, value) or (colon and effect not in _EFFECTS):
        raise UsageError(
            f"--toleration {text!r} is not a taint of a node: KEY, KEY=VALUE, or either with one "
            f"of {', '.join(f':{each}' for each in _EFFECTS)}"
        )
    return text


def _is_pair(key: str, value: str) -> bool:
    """Whether a label or taint can have this key and value."""
    prefix, slash, name = key.rpartition("/")
    return bool(
        LABEL_VALUE.fullmatch(name)
        and (not slash or DOMAIN.fullmatch(prefix))
        and (not value or LABEL_VALUE.fullmatch(value))
    )
