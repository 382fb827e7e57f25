"""`--mode` of run, simulate, expose and replay: the DRA options, and serving as a DRA driver."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kubedevices.errors import UsageError

if TYPE_CHECKING:
    from kubedevices.dra.options import DraOptions
    from kubedevices.plugin.options import RunnerOptions
    from kubedevices.plugin.scanner import Scanner
    from kubedevices.serving.options import TwoApisOptions

_OF_PLUGINS = {
    "socket_dir": None,
    "registration": "register",
    "pod_resources": None,
    "preferred_timeout": None,
    "env_merge": "last",
    "cdi_errors": "fail",
    "cdi_annotations": False,
}
"""Options without a meaning for a DRA driver, and their values if they are not given."""

OF_DRIVERS = ("kubelet_dir", "kubeconfig", "kube_node", "unhealthy_effect", "dra_metadata")
"""Options of every driver, None if they are not given."""

_OF_DRA = (*OF_DRIVERS, "prepare_timeout")
_NAMES = {"kube_node": "node_name", "dra_metadata": "metadata"}
"""The names of options in `DraOptions` that differ from those on the command line."""

# Options of a device plugin that a DRA driver has as well.
_OF_BOTH = ("sysfs_root", "dev_root", "cdi_dir", "allocate_timeout", "pre_start_timeout", "timing")


def add_split_argument(parser: argparse._ActionsContainer) -> None:
    """Add `--dra-devices`: the devices that are in DRA in mode `split`."""
    parser.add_argument(
        "--dra-devices",
        action="append",
        default=[],
        metavar="TYPE/ID",
        help="device that is in DRA in mode split, as a glob such as 'gpu/GPU-1*', or a device "
        "type; may be repeated",
    )


def add_mode_arguments(parser: argparse.ArgumentParser, some_path: Callable[[str], Path]) -> None:
    """Add `--mode` and the options of the mode `dra`."""
    group = parser.add_argument_group("mode")
    group.add_argument(
        "--mode",
        choices=("device-plugin", "dra", "split"),
        default="device-plugin",
        help="be a device plugin (default), or a driver for Dynamic Resource Allocation, or both: "
        "each device is in one of the two APIs (--dra-devices)",
    )
    group.add_argument(
        "--mode-file",
        type=some_path,
        metavar="FILE",
        help="file with the mode of this node; a change takes effect without a restart; while the "
        "file does not exist, --mode counts",
    )
    group.add_argument(
        "--mode-label",
        metavar="LABEL",
        help="label of the node with the mode, instead of a file",
    )
    add_split_argument(group)
    add_driver_arguments(group, some_path, "with DRA")
    group.add_argument(
        "--prepare-timeout",
        type=float,
        metavar="SECONDS",
        help="with DRA: time limit for prepare_claim and unprepare_claim, at most 20 (default: 20)",
    )


def add_driver_arguments(
    group: "argparse._ArgumentGroup", some_path: Callable[[str], Path], when: str
) -> None:
    """Add the options of every DRA driver; `when` begins their help: the mode that they need."""
    group.add_argument(
        "--kubelet-dir",
        type=some_path,
        metavar="DIR",
        help=f"{when}: the kubelet's root directory (default: /var/lib/kubelet)",
    )
    group.add_argument(
        "--kubeconfig",
        type=some_path,
        metavar="FILE",
        help=f"{when}: how to reach the API server (default: the variable "
        "KUBECONFIG, then as a pod does)",
    )
    group.add_argument(
        "--kube-node",
        metavar="NAME",
        help=f"{when}: the name of this node in the API (default: the variable "
        "NODE_NAME, then the host's name)",
    )
    group.add_argument(
        "--unhealthy-effect",
        choices=("NoSchedule", "NoExecute", "None"),
        help=f"{when}: effect of the taint of an unhealthy device; NoExecute ends the pods that "
        "have it (default: NoSchedule)",
    )
    group.add_argument(
        "--dra-metadata",
        action="store_const",
        const=True,
        help=f"{when}: containers get files with the attributes of their devices (default: no)",
    )


def check_mode(args: argparse.Namespace) -> None:
    """Raise `UsageError` for an option that has no effect in this mode."""
    if has_both_apis(args):
        return
    if args.mode == "dra":
        wrong = [name for name, usual in _OF_PLUGINS.items() if getattr(args, name) != usual]
    else:
        wrong = [name for name in _OF_DRA if getattr(args, name)]
    if wrong:
        raise UsageError(f"--{wrong[0].replace('_', '-')} has no effect with --mode {args.mode}")


def has_both_apis(args: argparse.Namespace) -> bool:
    """Whether devices may be in either API while the process runs."""
    is_followed = args.mode_file is not None or args.mode_label is not None
    if args.dra_devices and args.mode != "split" and not is_followed:
        raise UsageError("--dra-devices needs --mode split, --mode-file or --mode-label")
    return args.mode == "split" or is_followed


def driver_options(args: argparse.Namespace) -> "DraOptions":
    """Return the options that only a DRA driver has."""
    given = {_NAMES.get(name, name): getattr(args, name, None) for name in _OF_DRA}
    return cast("DraOptions", {name: value for name, value in given.items() if value is not None})


def mode_options(args: argparse.Namespace) -> "TwoApisOptions":
    """Return the options that choose the mode of the node, and the options of a driver."""
    given: dict[str, Any] = {**driver_options(args)}
    for name in ("mode_file", "mode_label", "dra_devices"):
        given[name] = getattr(args, name)
    return cast("TwoApisOptions", given)


def serve_driver(
    args: argparse.Namespace,
    scanner: "Scanner",
    domain: str,
    plugin_options: "RunnerOptions",
    state_dir: Path,
) -> None:
    """Serve as a DRA driver until a signal comes."""
    from kubedevices.rules.cordon import FILE_NAME, Cordoned
    from kubedevices.serving.modes import run_until_signal

    given = {name: plugin_options[name] for name in _OF_BOTH if name in plugin_options}  # type: ignore[literal-required]
    options = cast("DraOptions", given | driver_options(args))
    cordons = Cordoned(scanner, domain, state_dir.absolute() / FILE_NAME)
    run_until_signal(cordons, domain=domain, mode="dra", listen=args.listen, **options)
