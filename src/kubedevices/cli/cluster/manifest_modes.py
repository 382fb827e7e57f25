"""`--mode` of `manifests` and `deploy`: device plugin, DRA driver, or both."""

import argparse
import posixpath
from collections.abc import Iterable
from dataclasses import replace

from kubedevices.cli.shared.dra_serving import add_split_argument
from kubedevices.errors import UsageError
from kubedevices.manifests.deployment import CONFIG_MAP, EXTENDED_RESOURCE_NAME, Deployment
from kubedevices.manifests.dra_access import extended_resource_name
from kubedevices.manifests.secret_directories import ADVICE, is_secret
from kubedevices.manifests.values import label_key
from kubedevices.values.resource_name import explain_resource_name

FOLLOWED_MODES = ("mode-file", "mode-label", "dra-devices")
"""The options of a mode that may change. A proxy has none of them: its mode is fixed."""

NO_NAME = "none"
"""The value of `--extended-resource-name` for DeviceClasses without such a name."""

# Directories with more than the mode of the node: the pod must not see them.
_TOO_MUCH = ("/", "/dev", "/etc", "/proc", "/run", "/sys", "/usr", "/var", "/var/lib", "/var/run")


def add_mode_arguments(parser: argparse.ArgumentParser, with_types: str) -> None:
    """Declare the options that choose the API; `with_types` are plugins with `--device-type`."""
    group = parser.add_argument_group("Dynamic Resource Allocation (DRA)")
    group.add_argument(
        "--mode",
        choices=("device-plugin", "dra", "split"),
        help="be a device plugin (default), a driver for Dynamic Resource Allocation, or both "
        "(--dra-devices, not for a proxy); for dra and split, also the rights of the driver and a "
        "DeviceClass for each device type",
    )
    group.add_argument(
        "--mode-file",
        metavar="PATH|configmap",
        help="let the mode change without a restart: a file on each node, for example "
        "/etc/kubedevices/mode, or the key `mode` of our ConfigMap, for all nodes; --mode is the "
        "first mode",
    )
    group.add_argument(
        "--mode-label",
        metavar="LABEL",
        help="label of the node with the mode, instead of a file: the mode changes without a "
        "restart; --mode is the first mode",
    )
    add_split_argument(group)
    group.add_argument(
        "--extended-resource-name",
        metavar="PATTERN",
        help="name of a device type under `limits:` of pods, in its DeviceClass, with {domain} and "
        f"{{type}}; {NO_NAME}: pods can only use claims (default: {{domain}}/{{type}})",
    )
    group.add_argument(
        "--device-type",
        action="append",
        default=[],
        metavar="TYPE",
        help=f"{with_types} with DRA: a device type; it gets a DeviceClass; may be repeated",
    )


def with_mode(
    deployment: Deployment, args: argparse.Namespace, resources: Iterable[str]
) -> Deployment:
    """Add the mode, and a DeviceClass for each of `resources`, such as example.com/gpu.

    Raises `UsageError`, for example for resources of several domains: a driver has one domain.
    """
    from kubedevices.dra.names import check_driver_name
    from kubedevices.serving.modes_of_devices import DraSelector, parse_mode

    mode = parse_mode(args.mode or "device-plugin", "--mode")
    if mode == "device-plugin" and not is_followed(args):
        _refuse_options_of_dra(args)
        return deployment
    if mode == "split" and not args.dra_devices:
        raise UsageError("--mode split needs --dra-devices: which devices are in DRA")
    if args.dra_devices and mode != "split" and not is_followed(args):
        raise UsageError("--dra-devices needs --mode split, --mode-file or --mode-label")
    if args.mode_file and args.mode_label:
        raise UsageError("--mode-file and --mode-label exclude each other: use one of them")
    DraSelector.of(args.dra_devices)
    resources = [*resources]
    if template := next((name for name in resources if "{" in name), None):
        raise UsageError(f"{template}: a DeviceClass needs a name without placeholders")
    domains = {name.partition("/")[0] for name in resources}
    if len(domains) != 1:
        raise UsageError(
            f"a DRA driver has one domain, and these resources have several: "
            f"{', '.join(sorted(domains)) or 'none'}"
        )
    (domain,) = domains
    device_types = tuple(dict.fromkeys(name.partition("/")[2] for name in resources))
    return replace(
        deployment,
        mode=mode,
        mode_file=_mode_file(args.mode_file, is_of_host=getattr(args, "systemd", False)),
        mode_label=_mode_label(args.mode_label),
        dra_devices=tuple(args.dra_devices),
        domain=check_driver_name(domain),
        device_types=device_types,
        extended_resource_name=_pattern(args.extended_resource_name, domain, device_types),
    )


def is_followed(args: argparse.Namespace) -> bool:
    """Whether the mode may change while the plugin runs."""
    return bool(args.mode_file or args.mode_label)


def _refuse_options_of_dra(args: argparse.Namespace) -> None:
    followed = "--mode split, --mode-file or --mode-label"
    if args.dra_devices:
        raise UsageError(f"--dra-devices needs {followed}")
    for option, given in (
        ("--device-type", args.device_type),
        ("--extended-resource-name", args.extended_resource_name is not None),
    ):
        if given:
            raise UsageError(f"{option} needs --mode dra, {followed}")


def _pattern(given: str | None, domain: str, device_types: Iterable[str]) -> str:
    """Return the pattern of the names under `limits:`; raises `UsageError`."""
    if given is None:
        return EXTENDED_RESOURCE_NAME
    if given == NO_NAME:
        return ""
    names = [extended_resource_name(given, domain, each) for each in device_types]
    for name in names:
        if problem := explain_resource_name(name):
            raise UsageError(f"--extended-resource-name {given!r} gives {name!r}: {problem}")
    if len({*names}) < len(names):
        raise UsageError(f"--extended-resource-name {given!r}: two types would get one name")
    return given


def _mode_label(given: str | None) -> str:
    if given is not None and (problem := label_key(given)):
        raise UsageError(f"--mode-label: {problem}")
    return given or ""


def _mode_file(given: str | None, *, is_of_host: bool) -> str | None:
    if given is None or (given == CONFIG_MAP and not is_of_host):
        return given
    directory = posixpath.dirname(given)
    if not given.startswith("/") or posixpath.normpath(given) != given:
        other = "" if is_of_host else f", nor {CONFIG_MAP!r}"
        raise UsageError(f"--mode-file {given!r} is not an absolute path{other}")
    if is_of_host:
        return given
    if directory in _TOO_MUCH:
        raise UsageError(
            f"--mode-file {given!r}: its directory {directory} is mounted into the pod: use a "
            "directory of its own, for example /etc/kubedevices/mode"
        )
    if is_secret(directory):
        raise UsageError(f"--mode-file {given!r}: its directory {directory} {ADVICE}")
    return given
