"""`--mode dra` of run, simulate and expose: its options, and serving in this mode."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kubedevices.errors import UsageError
from kubedevices.socket_paths import STATE_DIR, default_state_dir

if TYPE_CHECKING:
    from kubedevices.dra.options import DraOptions
    from kubedevices.plugin.options import RunnerOptions
    from kubedevices.plugin.scanner import Scanner

_OF_PLUGINS = {
    "socket_dir": None,
    "registration": "register",
    "listen": None,
    "pod_resources": None,
    "preferred_timeout": None,
    "env_merge": "last",
    "cdi_errors": "fail",
    "cdi_annotations": False,
}
"""Options that mean nothing to a DRA driver, and their values if they are not given."""

_OF_DRA = ("kubelet_dir", "kubeconfig", "kube_node", "prepare_timeout")
_OF_BOTH = ("sysfs_root", "dev_root", "cdi_dir", "allocate_timeout", "pre_start_timeout", "timing")


def add_mode_arguments(parser: argparse.ArgumentParser, some_path: Callable[[str], Path]) -> None:
    """Add `--mode` and the options of the mode `dra`."""
    group = parser.add_argument_group("mode")
    group.add_argument(
        "--mode",
        choices=("device-plugin", "dra"),
        default="device-plugin",
        help="be a device plugin (default), or a driver for Dynamic Resource Allocation",
    )
    group.add_argument(
        "--kubelet-dir",
        type=some_path,
        metavar="DIR",
        help="with --mode dra: the kubelet's root directory (default: /var/lib/kubelet)",
    )
    group.add_argument(
        "--kubeconfig",
        type=some_path,
        metavar="FILE",
        help="with --mode dra: how to reach the API server (default: the variable KUBECONFIG, "
        "then as a pod does)",
    )
    group.add_argument(
        "--kube-node",
        metavar="NAME",
        help="with --mode dra: the name of this node in the API (default: the variable "
        "NODE_NAME, then the host's name)",
    )

    group.add_argument(
        "--prepare-timeout",
        type=float,
        metavar="SECONDS",
        help="with --mode dra: time limit for prepare_claim and unprepare_claim, at most 20 "
        "(default: 20)",
    )


def check_mode(args: argparse.Namespace) -> None:
    """Raise `UsageError` for options of the other mode."""
    if args.mode == "dra":
        wrong = [name for name, usual in _OF_PLUGINS.items() if getattr(args, name) != usual]
    else:
        wrong = [name for name in _OF_DRA if getattr(args, name)]
    if wrong:
        raise UsageError(f"--{wrong[0].replace('_', '-')} means nothing with --mode {args.mode}")


def serve_driver(
    args: argparse.Namespace, scanner: "Scanner", domain: str, plugin_options: "RunnerOptions"
) -> None:
    """Serve as a DRA driver until a signal comes."""
    from kubedevices.middleware.maintenance import FILE_NAME, Maintained
    from kubedevices.modes import run_until_signal

    given = {name: plugin_options[name] for name in _OF_BOTH if name in plugin_options}  # type: ignore[literal-required]
    options = cast("DraOptions", given)
    if args.kubelet_dir is not None:
        options["kubelet_dir"] = args.kubelet_dir
    if args.kubeconfig is not None:
        options["kubeconfig"] = args.kubeconfig
    if args.kube_node is not None:
        options["node_name"] = args.kube_node
    if args.prepare_timeout is not None:
        options["prepare_timeout"] = args.prepare_timeout
    state_dir = args.state_dir or (
        default_state_dir(args.kubelet_dir) if args.kubelet_dir is not None else STATE_DIR
    )
    maintained = Maintained(scanner, domain, state_dir.absolute() / FILE_NAME)
    run_until_signal(maintained, domain=domain, mode="dra", **options)
