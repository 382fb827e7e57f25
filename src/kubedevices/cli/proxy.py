"""`kubedevices proxy`: stand between a device plugin that nobody may change and the kubelet."""

import argparse
from pathlib import Path

from kubedevices.cli.serving import positive_seconds, some_path
from kubedevices.socket_paths import DEVICE_PLUGIN_DIR

NAME = "proxy"
HELP = """\
stand between other device plugins and the kubelet

Plugins register in --plugin-dir instead of the kubelet's directory; the kubelet gets their devices
from the proxy. A resource without a rule passes through unchanged.
"""
EXAMPLES = """\
examples:
  kubedevices proxy
  kubedevices proxy --plugin-dir /tmp/inside --socket-dir /tmp/kd --state-dir /tmp/state
"""
LOG_LEVEL = "info"

_STATE_DIR = Path("/var/lib/kubedevices")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument(
        "--plugin-dir",
        type=some_path,
        default=_STATE_DIR / "plugins",
        metavar="DIR",
        help=f"directory in which plugins register (default: {_STATE_DIR / 'plugins'})",
    )
    parser.add_argument(
        "--plugin-registry",
        type=some_path,
        metavar="DIR",
        help="directory for plugins that come by the kubelet's plugin watcher (default: none)",
    )
    parser.add_argument(
        "--socket-dir",
        type=some_path,
        default=DEVICE_PLUGIN_DIR,
        metavar="DIR",
        help=f"directory of the kubelet's kubelet.sock (default: {DEVICE_PLUGIN_DIR})",
    )
    parser.add_argument(
        "--state-dir",
        type=some_path,
        default=_STATE_DIR,
        metavar="DIR",
        help=f"what the proxy keeps over a restart (default: {_STATE_DIR})",
    )
    for call, seconds, what in (
        ("allocate", 30, "Allocate; then the pod fails"),
        ("preferred", 5, "GetPreferredAllocation; then there is no preference"),
        ("pre-start", 25, "PreStartContainer; then the kubelet tries again"),
    ):
        parser.add_argument(
            f"--{call}-timeout",
            type=positive_seconds,
            default=float(seconds),
            metavar="SECONDS",
            help=f"time limit of a plugin for {what} (default: {seconds}; inf: no limit)",
        )


def keeps_running(args: argparse.Namespace) -> bool:
    """Until it is told to stop."""
    del args
    return True


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop."""
    from kubedevices.cli.serving import check_socket_dir
    from kubedevices.proxy.plugin_calls import CallLimits
    from kubedevices.proxy.proxy import Proxy, run_until_signal

    proxy = Proxy(
        socket_dir=args.socket_dir.absolute(),
        plugin_dir=args.plugin_dir.absolute(),
        state_dir=args.state_dir.absolute(),
        registry_dir=args.plugin_registry and args.plugin_registry.absolute(),
        limits=CallLimits(args.allocate_timeout, args.preferred_timeout, args.pre_start_timeout),
    )
    check_socket_dir(proxy.settings)
    run_until_signal(proxy)
    return 0
