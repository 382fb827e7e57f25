"""`--mode` of `manifests` and `deploy`: device plugin, DRA driver, or both."""

import argparse
import posixpath
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from kubedevices.cli.dra_serving import add_split_argument
from kubedevices.errors import UsageError

if TYPE_CHECKING:
    from kubedevices.manifests.deployment import Deployment

MODE_OPTIONS = ("mode", "mode-file", "dra-devices")
CONFIG_MAP = "configmap"
# Directories with more than the mode of the node: the pod must not see them.
_TOO_MUCH = ("/", "/dev", "/etc", "/proc", "/run", "/sys", "/usr", "/var", "/var/lib", "/var/run")


def add_mode_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that choose the API of the devices."""
    parser.add_argument(
        "--mode",
        choices=("device-plugin", "dra", "split"),
        help="simulate, expose, run: be a device plugin (default), a driver for Dynamic Resource "
        "Allocation, or both (--dra-devices); for dra and split, also the rights of the driver "
        "and a DeviceClass for each device type",
    )
    parser.add_argument(
        "--mode-file",
        metavar="PATH|configmap",
        help="let the mode change without a restart: a file on each node, for example "
        "/etc/kubedevices/mode, or the key `mode` of our ConfigMap, for all nodes; --mode is the "
        "first mode",
    )
    add_split_argument(parser)
    parser.add_argument(
        "--device-type",
        action="append",
        default=[],
        metavar="TYPE",
        help="run with DRA: a device type of the scanner; it gets a DeviceClass; may be repeated",
    )


def with_mode(
    deployment: "Deployment", args: argparse.Namespace, resources: Iterable[str]
) -> "Deployment":
    """Add the mode, and a DeviceClass for each of `resources`, such as example.com/gpu.

    Raises `UsageError`, for example for resources of several domains: a driver has one domain.
    """
    from kubedevices.dra.names import check_driver_name
    from kubedevices.two_apis.modes_of_devices import DraSelector, parse_mode

    mode = parse_mode(args.mode or "device-plugin", "--mode")
    if mode == "device-plugin" and not args.mode_file:
        if args.dra_devices:
            raise UsageError("--dra-devices needs --mode split or --mode-file")
        if args.device_type:
            raise UsageError("--device-type needs --mode dra, --mode split or --mode-file")
        return deployment
    if mode == "split" and not args.dra_devices:
        raise UsageError("--mode split needs --dra-devices: which devices are in DRA")
    if args.dra_devices and mode != "split" and not args.mode_file:
        raise UsageError("--dra-devices needs --mode split or --mode-file")
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
    return replace(
        deployment,
        mode=mode,
        mode_file=_mode_file(args.mode_file),
        dra_devices=tuple(args.dra_devices),
        domain=check_driver_name(domain),
        device_types=tuple(dict.fromkeys(name.partition("/")[2] for name in resources)),
    )


def _mode_file(given: str | None) -> str | None:
    from kubedevices.manifests.secret_directories import ADVICE, is_secret

    if given is None or given == CONFIG_MAP:
        return given
    directory = posixpath.dirname(given)
    if not given.startswith("/") or posixpath.normpath(given) != given:
        raise UsageError(f"--mode-file {given!r} is neither an absolute path nor {CONFIG_MAP!r}")
    if directory in _TOO_MUCH:
        raise UsageError(
            f"--mode-file {given!r}: its directory {directory} is mounted into the pod: use a "
            "directory of its own, for example /etc/kubedevices/mode"
        )
    if is_secret(directory):
        raise UsageError(f"--mode-file {given!r}: its directory {directory} {ADVICE}")
    return given
