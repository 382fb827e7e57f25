"""Arguments of `kubedevices node` beyond where it is: topology, services beside kubelet.sock."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kubedevices.cli.asking import absolute_path
from kubedevices.socket_paths import DEVICE_PLUGIN_DIR

if TYPE_CHECKING:
    from kubedevices.node.topology.options import TopologySettings


_MOST_NODES = 100


def add_service_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them; `topology_settings` and `node_services` read them."""
    services = parser.add_argument_group("services")
    services.add_argument(
        "--plugin-registry",
        type=absolute_path,
        metavar="DIR",
        help="also register plugins whose sockets appear in DIR, like a kubelet's plugins_registry",
    )
    services.add_argument(
        "--pod-resources",
        type=absolute_path,
        metavar="SOCKET",
        help="serve the podresources API there: which pod holds which device",
    )
    services.add_argument(
        "--metrics",
        metavar="ADDRESS",
        help="serve /metrics at HOST:PORT, PORT (then of this machine only) or *:PORT",
    )
    topology = parser.add_argument_group("topology")
    topology.add_argument(
        "--topology-policy",
        default="none",
        metavar="POLICY",
        help="align devices by NUMA node: none (default), best-effort, restricted, "
        "single-numa-node",
    )
    topology.add_argument(
        "--topology-scope",
        default="container",
        metavar="SCOPE",
        help="decide per container (default), or once per pod",
    )
    topology.add_argument(
        "--topology-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="prefer-closest-numa-nodes=true, max-allowable-numa-nodes=N; may be repeated",
    )
    topology.add_argument(
        "--numa-nodes",
        metavar="NODES",
        help="NUMA nodes of this machine, for example 0-1 (default: from /sys)",
    )


def topology_settings(args: argparse.Namespace) -> "TopologySettings":
    """Return the checked settings; raises `UsageError`."""
    from kubedevices.errors import UsageError
    from kubedevices.node.topology import options as topology_options

    options: dict[str, str] = {}
    for option in args.topology_option:
        name, equals, value = option.partition("=")
        if not equals:
            raise UsageError(f"--topology-option {option!r}: write NAME=VALUE")
        options[name] = value
    if args.topology_policy == "none":
        for flag, is_given in (
            ("--topology-option", bool(options)),
            ("--topology-scope", args.topology_scope != "container"),
        ):
            if is_given:
                raise UsageError(f"{flag} needs a --topology-policy other than none")
        if args.numa_nodes is None:
            return topology_options.check_settings("none")
    from kubedevices.host.machine_numa import read_machine_numa
    from kubedevices.numa import parse_numa_nodes

    machine = read_machine_numa()
    nodes = machine.nodes if args.numa_nodes is None else parse_numa_nodes(args.numa_nodes)
    hints = {
        topology_options.UnknownTopologyPolicy: ", ".join(topology_options.POLICIES),
        topology_options.UnknownTopologyScope: ", ".join(topology_options.SCOPES),
        topology_options.UnknownTopologyOption: (
            f"{topology_options.PREFER_CLOSEST}, {topology_options.MAX_NODES}"
        ),
        topology_options.TooManyNumaNodes: (
            f"--topology-option {topology_options.MAX_NODES}={len(nodes)}"
        ),
    }
    try:
        return topology_options.check_settings(
            args.topology_policy,
            args.topology_scope,
            options,
            numa_nodes=nodes,
            distances=machine.distances,
        )
    except topology_options.TopologyError as error:
        hint = hints.get(type(error))
        raise UsageError(f"{error} ({hint})" if hint else str(error)) from error


def node_places(args: argparse.Namespace) -> dict[str, Path]:
    """Return the directory of each node by its name; a node without `--count` has none."""
    if args.count is None:
        return {"": args.socket_dir}
    return {f"node-{i}": args.socket_dir / f"node-{i}" for i in range(1, args.count + 1)}


def check_directories(args: argparse.Namespace) -> None:
    """Refuse one directory or service for two purposes; raises `UsageError`."""
    from kubedevices.errors import UsageError

    if args.count is not None:
        if not 1 <= args.count <= _MOST_NODES:
            raise UsageError(f"--count {args.count}: from 1 to {_MOST_NODES} nodes")
        for option in ("--state-dir", "--plugin-registry", "--pod-resources", "--metrics"):
            if getattr(args, option.removeprefix("--").replace("-", "_")) is not None:
                raise UsageError(f"{option} is of one node, leave it out with --count")
        if args.socket_dir == DEVICE_PLUGIN_DIR:
            raise UsageError("--count needs --socket-dir DIR")
        for directory in node_places(args).values():
            directory.mkdir(parents=True, exist_ok=True)
    for option, other in (
        ("--state-dir", args.state_dir),
        ("--plugin-registry", args.plugin_registry),
    ):
        if other is not None and other.resolve() == args.socket_dir.resolve():
            raise UsageError(f"{option} must not be the directory of --socket-dir: {other}")
