"""What `kubedevices node` runs beside kubelet.sock: options of its services and of its topology.

The code of a service is loaded only if its option is given.
"""

import argparse
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kubedevices.cli.shared.node_client import absolute_path
from kubedevices.errors import UsageError
from kubedevices.pages.metrics import (
    POD_RESOURCES_BY_METHOD,
    POD_RESOURCES_ERRORS,
    POD_RESOURCES_REQUESTS,
    TEXT_FORMAT,
    WATCHED_PLUGINS,
    Metrics,
    Sample,
)
from kubedevices.pages.prometheus import PrometheusMetrics
from kubedevices.values.socket_paths import DEVICE_PLUGIN_DIR, POD_RESOURCES

if TYPE_CHECKING:
    from kubedevices.node.arrival.plugin_watcher import PluginWatcher
    from kubedevices.node.device_manager import DeviceManager
    from kubedevices.node.topology.options import TopologySettings
    from kubedevices.pages.page_server import PageServer


_MOST_NODES = 100


def add_service_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of services and topology."""
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
        help="serve the podresources API at this socket: which pod holds which device",
    )
    services.add_argument(
        "--listen",
        metavar="ADDRESS",
        help="serve /metrics at this address: 127.0.0.1:9464, or only 9464 for the same, or *:9464 "
        "for all addresses (default: off)",
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
    from kubedevices.values.numa import parse_numa_nodes

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
    """Return the plugin directory of each node by its name; without `--count` the name is empty."""
    if args.count is None:
        return {"": args.socket_dir}
    names = [f"node-{i}" for i in range(1, args.count + 1)]
    return {name: args.socket_dir / name / "plugins" for name in names}


def check_directories(args: argparse.Namespace) -> None:
    """Raise `UsageError` if two nodes would share a service, or a directory has two purposes."""
    if args.count is not None:
        if not 1 <= args.count <= _MOST_NODES:
            raise UsageError(f"--count {args.count}: from 1 to {_MOST_NODES} nodes")
        for option in ("--state-dir", "--plugin-registry", "--pod-resources", "--listen"):
            if getattr(args, option.removeprefix("--").replace("-", "_")) is not None:
                raise UsageError(f"{option} cannot be used with --count: it belongs to one node")
        if args.socket_dir == DEVICE_PLUGIN_DIR:
            raise UsageError("--count needs --socket-dir DIR")
        for directory in node_places(args).values():
            directory.parent.mkdir(parents=True, exist_ok=True)
    for option, other in (
        ("--state-dir", args.state_dir),
        ("--plugin-registry", args.plugin_registry),
    ):
        if other is not None and other.resolve() == args.socket_dir.resolve():
            raise UsageError(f"{option} must not be the directory of --socket-dir: {other}")


# ---------------------------------------------------------------- running them


@contextlib.asynccontextmanager
async def node_services(
    args: argparse.Namespace, manager: "DeviceManager", directory: Path, metrics: Metrics
) -> AsyncIterator[dict[str, str]]:
    """Run the services of the node in `directory`; when all are ready, yield address by name.

    With `--count`, each node has a podresources socket beside its plugin directory, as a kubelet.
    Raises `CannotAsk`.
    """
    pod_resources = args.pod_resources if args.count is None else directory.parent / POD_RESOURCES
    ready: dict[str, str] = {}
    async with contextlib.AsyncExitStack() as running:
        if pod_resources:
            from kubedevices.node.services.pod_resources import PodResourcesServer

            server = PodResourcesServer(manager, pod_resources, count=_counter(metrics))
            await server.start()
            running.push_async_callback(server.stop)
            ready["podresources"] = str(server.socket)
        if args.plugin_registry:
            watcher = _watcher(manager, args.plugin_registry)
            metrics.collect_from(lambda: _watched(watcher))
            await watcher.start()
            running.push_async_callback(watcher.stop)
            ready["plugin registry"] = str(watcher.directory)
        if isinstance(metrics, PrometheusMetrics):
            from kubedevices.pages.process_samples import process_samples

            metrics.collect_from(process_samples)
            pages = _metrics_pages(args.listen, metrics)
            await pages.start()
            running.push_async_callback(pages.stop)
            ready["metrics"] = f"{pages.url}/metrics"
        yield ready


def _watcher(manager: "DeviceManager", directory: Path) -> "PluginWatcher":
    from kubedevices.node.arrival.plugin_watcher import PluginWatcher, device_plugins

    handler = manager.get_watcher_handler()
    return PluginWatcher(directory, device_plugins(handler.connect, handler.disconnect))


def _watched(watcher: "PluginWatcher") -> list[Sample]:
    states = ("desired_state_of_world", "actual_state_of_world")
    return [
        Sample(WATCHED_PLUGINS, (str(path), state), number)
        for path, numbers in watcher.counts().items()
        for state, number in zip(states, numbers, strict=True)
    ]


def _counter(metrics: Metrics) -> Callable[[str, str, bool], None]:
    """Return the function that counts calls of the podresources service like a kubelet."""

    def count(method: str, version: str, failed: bool) -> None:
        if failed:
            metrics.count(POD_RESOURCES_ERRORS[method], version)
            return
        metrics.count(POD_RESOURCES_REQUESTS, version)
        if version == "v1":
            metrics.count(POD_RESOURCES_BY_METHOD[method], version)

    return count


def _metrics_pages(address: str, metrics: PrometheusMetrics) -> "PageServer":
    from kubedevices.pages.page_server import Page, PageServer, names_in, parse_address

    async def page() -> Page:
        return Page(await metrics.page(), TEXT_FORMAT)

    return PageServer(parse_address(address), {"/metrics": page}, names_in(address))
