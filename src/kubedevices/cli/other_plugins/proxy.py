"""`kubedevices proxy`: stands between the kubelet and device plugins that you cannot change."""

import argparse
import signal
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING

from kubedevices.cli.shared.dra_serving import OF_DRIVERS, add_driver_arguments, driver_options
from kubedevices.cli.shared.node_client import absolute_path, state_directory
from kubedevices.cli.shared.output import add_output_argument, print_schema
from kubedevices.cli.shared.serving import check_socket_dir, positive_seconds, some_path
from kubedevices.errors import UsageError
from kubedevices.errors.words import counted
from kubedevices.host.terminal import print_line
from kubedevices.values.socket_paths import (
    DEVICE_PLUGIN_DIR,
    INSIDE_DIR,
    POD_RESOURCES,
    STATE_DIR,
)

if TYPE_CHECKING:
    from kubedevices.proxy.live_rules import LiveRules
    from kubedevices.proxy.proxy import Proxy
    from kubedevices.serving.plugin_pages import PluginPages

NAME = "proxy"
HELP = """\
share, hold, check or repair another plugin's devices, or offer them by DRA

Plugins register in --plugin-dir instead of the kubelet's directory; the kubelet gets their devices
from the proxy. In a cluster a patch of their DaemonSet does that: `kubedevices manifests proxy
--patch FILE`. A resource without a rule passes through unchanged. Rules also check health by a
command, filter, cordon, inject and record: docs/proxy-rules.md has every key.
"""
EXAMPLES = """\
example of a file:
  resources:
    nvidia.com/gpu:
      share: {replicas: 4, distinct: true}
      hold: 5m

examples:
  kubedevices proxy
  kubedevices proxy --config proxy.yaml
  kubedevices proxy --config proxy.yaml --check
  kubedevices proxy --config proxy.yaml --check --mode dra
  kubedevices proxy --config proxy.yaml --dry-run --record gpu.jsonl
  kubedevices proxy --plugin-dir ~/inside --socket-dir ~/kd
"""
LOG_LEVEL = "info"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument(
        "--config",
        type=some_path,
        metavar="FILE",
        help="YAML file with rules per resource; without a file everything passes unchanged",
    )
    add_place_arguments(
        parser,
        "the kubelet's podresources socket, for `hold`, which asks which devices pods hold "
        f"(default: {POD_RESOURCES} in the parent directory of --socket-dir); if given with "
        "--listen, /metrics also says which container holds which device",
    )
    _add_mode(parser)
    group = parser.add_argument_group("instead of serving")
    only = group.add_mutually_exclusive_group()
    only.add_argument(
        "--check", action="store_true", help="read the file, print every mistake, and exit"
    )
    only.add_argument(
        "--dry-run",
        action="store_true",
        help="ask the plugins that are known from --state-dir for their lists, and print what "
        "would be served",
    )
    group.add_argument(
        "--record",
        nargs="+",
        type=some_path,
        metavar="FILE",
        help="with --dry-run: take the last lists of this record, and ask no plugin",
    )
    only.add_argument(
        "--schema", action="store_true", help="print the file's JSON schema, for editors"
    )
    add_output_argument(group)


def add_place_arguments(parser: argparse.ArgumentParser, pod_resources: str) -> None:
    """Declare the directories of plugins, kubelet and state, time limits and pages.

    `pod_resources` says what the podresources socket is for.
    """
    group = parser.add_argument_group("directories and sockets")
    group.add_argument(
        "--plugin-dir",
        type=some_path,
        default=INSIDE_DIR,
        metavar="DIR",
        help=f"directory in which plugins register (default: {INSIDE_DIR})",
    )
    group.add_argument(
        "--plugin-registry",
        type=some_path,
        metavar="DIR",
        help="directory for plugins that use the kubelet's plugin watcher (default: none)",
    )
    group.add_argument(
        "--socket-dir",
        type=absolute_path,
        default=DEVICE_PLUGIN_DIR,
        metavar="DIR",
        help=f"directory of the kubelet's kubelet.sock (default: {DEVICE_PLUGIN_DIR})",
    )
    group.add_argument(
        "--state-dir",
        type=absolute_path,
        metavar="DIR",
        help="directory of the proxy's state and of the list that `kubedevices cordon` writes "
        f"(default: DIR.state for --socket-dir DIR; {STATE_DIR} for the kubelet's directory)",
    )
    group.add_argument(
        "--pod-resources",
        type=some_path,
        metavar="SOCKET",
        help=pod_resources,
    )
    group.add_argument(
        "--listen",
        metavar="ADDRESS",
        help="serve /healthz, /readyz, /metrics and /state at this address: 127.0.0.1:9400, or "
        "only 9400 for the same, or *:9400 for all addresses (default: off)",
    )
    _add_limits(parser)


def _add_mode(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Dynamic Resource Allocation")
    group.add_argument(
        "--mode",
        choices=("device-plugin", "dra"),
        default="device-plugin",
        help="how a node gets the devices of the plugins (default: device-plugin)",
    )
    add_driver_arguments(group, some_path, "with --mode dra")


def _add_limits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("time limits of the plugins")
    for call, seconds, what in (
        ("allocate", 30, "Allocate, after which the pod fails"),
        ("preferred", 5, "GetPreferredAllocation, after which no device is preferred"),
        ("pre-start", 25, "PreStartContainer, after which the kubelet tries again"),
    ):
        group.add_argument(
            f"--{call}-timeout",
            type=positive_seconds,
            default=float(seconds),
            metavar="SECONDS",
            help=f"time limit of a plugin for {what} (default: {seconds}; inf: no limit)",
        )


def keeps_running(args: argparse.Namespace) -> bool:
    """Return False for options that print something instead of serving."""
    return not (args.check or args.schema or args.dry_run)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C, or print what an option asks for."""
    if args.record and not args.dry_run:
        raise UsageError("--record needs --dry-run; `kubedevices replay` serves a record")
    if args.schema:
        from kubedevices.proxy.proxy_config import ProxyConfig

        print_schema(ProxyConfig, "kubedevices proxy")
    elif args.dry_run:
        from kubedevices.cli.other_plugins.proxy_dry_run import print_dry_run
        from kubedevices.proxy.live_rules import LiveRules

        rules = LiveRules() if args.config is None else LiveRules.from_file(args.config)
        if args.mode == "dra":
            rules.use_in_dra()
        print_dry_run(args, rules)
    elif args.check:
        check(args)
    else:
        serve(args)
    return 0


def check(args: argparse.Namespace) -> None:
    """Read the file; raises `ConfigError` with every mistake, and what the mode cannot do."""
    from kubedevices.proxy.not_in_dra import refuse_in_dra
    from kubedevices.proxy.proxy_config import load_proxy_config

    if args.config is None:
        raise UsageError("--check needs --config FILE")
    config, report = load_proxy_config(args.config)
    if args.mode == "dra":
        refuse_in_dra(config, report)
    print_line(f"{args.config}: {counted(len(config.resources), 'rule')}, no mistakes")


def serve(args: argparse.Namespace) -> None:
    """Serve until SIGTERM or Ctrl-C; SIGHUP reads the file again."""
    from kubedevices.proxy.live_rules import LiveRules

    # Ignore SIGHUP until the file was read for the first time: by default it ends the process.
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    rules = LiveRules() if args.config is None else LiveRules.from_file(args.config)
    signal.signal(signal.SIGHUP, lambda *_: rules.reload())
    try:
        serve_rules(args, rules)
    finally:
        signal.signal(signal.SIGHUP, before)


def serve_rules(args: argparse.Namespace, rules: "LiveRules") -> None:
    """Serve with `rules` and the options of a proxy, until SIGTERM or Ctrl-C."""
    from kubedevices.plugin.stop_signals import run_until_signal
    from kubedevices.proxy.plugin_calls import CallLimits
    from kubedevices.proxy.proxy import Proxy

    pages = None
    dra = None
    if args.mode == "dra":
        if args.pod_resources is not None:
            raise UsageError("--pod-resources has no effect with --mode dra: drivers know claims")
        dra = driver_options(args)
    elif wrong := [each for each in OF_DRIVERS if getattr(args, each) is not None]:
        raise UsageError(f"--{wrong[0].replace('_', '-')} has no effect with --mode device-plugin")
    if args.listen is not None:
        from kubedevices.serving.plugin_pages import PluginPages

        pages = PluginPages(args.listen, None, pod_resources=args.pod_resources)
    proxy = Proxy(
        on_allocated=None if pages is None else pages.count_allocation,
        rules=rules,
        socket_dir=args.socket_dir.absolute(),
        plugin_dir=args.plugin_dir.absolute(),
        state_dir=state_directory(args),
        registry_dir=args.plugin_registry and args.plugin_registry.absolute(),
        limits=CallLimits(args.allocate_timeout, args.preferred_timeout, args.pre_start_timeout),
        dra=dra,
        pod_resources=args.pod_resources,
    )
    if dra is None:
        check_socket_dir(proxy.settings)
    run_until_signal(proxy, None if pages is None else partial(_beside, pages))


def _beside(pages: "PluginPages", proxy: "Proxy") -> AbstractAsyncContextManager[object]:
    """Return the context in which the pages of `proxy` and of its drivers are served."""
    if proxy.bridge is None:
        return pages.beside(proxy)
    from kubedevices.serving.driver_pages import DriversView

    return pages.beside(proxy, DriversView(proxy.bridge))
