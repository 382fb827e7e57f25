"""`kubedevices node`: runs a node, which accepts plugins; prints one line per event until stopped.

The keys of `-o json` are stable: each line is an object with `time`, `event` and, if the event has
them, `node` (with --count), `resource`, `pod` and the details of `kubedevices.node.events`.
"""

import argparse
import asyncio
import contextlib
import math
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kubedevices.cli.node.node_services import (
    add_service_arguments,
    check_directories,
    node_places,
    node_services,
    topology_settings,
)
from kubedevices.cli.shared.node_client import add_node_arguments, state_directory
from kubedevices.cli.shared.output import json_text
from kubedevices.cli.shared.serving import number_type
from kubedevices.errors.words import counted
from kubedevices.host import service_manager
from kubedevices.host.descriptors import allow_all_descriptors
from kubedevices.host.stopping import stop_signals
from kubedevices.host.terminal import print_line
from kubedevices.host.unblocked_output import describe_dropped
from kubedevices.pages.metrics import NO_METRICS, NODE_BEGINNINGS, Metrics
from kubedevices.pages.prometheus import PrometheusMetrics
from kubedevices.plugin.log_lines import timestamp
from kubedevices.values.socket_paths import default_state_dir

if TYPE_CHECKING:
    from kubedevices.node.device_manager import DeviceManager
    from kubedevices.node.events import NodeEvent
    from kubedevices.node.services.control import ControlService

NAME = "node"
HELP = """\
run a node without Kubernetes: accept plugins, allocate their devices

A device plugin with the same socket directory registers here as at a kubelet. Ctrl-C or SIGTERM
stops the node cleanly; a second signal stops it at once. A background job of a script ignores
Ctrl-C.
"""
EXAMPLES = """\
examples:
  kubedevices node --socket-dir ~/kd
  kubedevices node --socket-dir ~/kd -o json | jq .
  kubedevices node --socket-dir ~/kd --count 3             ~/kd/node-1/plugins …
  kubedevices devices --socket-dir ~/kd                    in another terminal
"""

_SHOWN = 8
"""Device IDs in one line of text."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    from kubedevices.node.inventory.inventory import GRACE_PERIOD

    seconds = number_type("a number of seconds", lambda found: 0 <= found < math.inf)
    add_node_arguments(parser)
    parser.add_argument(
        "--count",
        type=int,
        metavar="N",
        help="run N nodes in this process, each in a directory of its own below --socket-dir: "
        "node-1/plugins is the plugin directory of the first node, and "
        "node-1/pod-resources/kubelet.sock its podresources socket",
    )
    parser.add_argument(
        "--grace-period",
        type=seconds,
        default=GRACE_PERIOD,
        metavar="SECONDS",
        help="how long the devices of a plugin that went away stay in the capacity (default: "
        f"{GRACE_PERIOD:g})",
    )
    parser.add_argument(
        "--admission-wait",
        type=seconds,
        default=0.0,
        metavar="SECONDS",
        help="how long a pod waits, after a restart of the node, for a plugin that is not back yet "
        "(default: 0: the pod is rejected at once)",
    )
    add_service_arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
        choices=("text", "json"),
        default="text",
        help="text (default), or json: one object per line",
    )


def keeps_running(_: argparse.Namespace) -> bool:
    """Return True: pods need the node, even if nobody reads its output."""
    return True


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    check_directories(args)
    if args.count is not None:
        allow_all_descriptors()
    asyncio.run(_serve(args))
    return 0


Show = Callable[[Mapping[str, Any], str], None]
"""Shows an event of the node with this name, which is empty if there is only one node."""


class _Node(NamedTuple):
    """A node of this process; `name` is empty if it is the only one."""

    name: str
    directory: Path
    manager: "DeviceManager"
    control: "ControlService"
    events: "AsyncIterator[NodeEvent]"


async def _serve(args: argparse.Namespace) -> None:
    metrics = PrometheusMetrics(NODE_BEGINNINGS) if args.listen else NO_METRICS
    nodes = _make_nodes(args, metrics)
    line_of = _json_line if args.output == "json" else _text_line

    def show(event: Mapping[str, Any], node: str) -> None:
        print_line(line_of({"node": node, **event} if node else event), flush=True)

    describe_dropped(sys.stdout, lambda lines: line_of({"event": "missed", "events": lines}))
    printing = asyncio.current_task()
    loop = asyncio.get_running_loop()
    heeded = stop_signals()
    stopping = False

    def stop() -> None:
        nonlocal stopping
        stopping = True
        for number in heeded:
            loop.remove_signal_handler(number)  # a second signal ends the process at once
        if printing is not None:
            printing.cancel()

    for number in heeded:
        loop.add_signal_handler(number, stop)  # before the start, which may take seconds
    try:
        async with _running(args, nodes, metrics) as places:
            for node, services in places:
                for service, place in services.items():
                    show({"event": "serving", "service": service, "at": place}, node.name)
                state_dir = node.manager.state_dir
                named = {"socket_dir": str(node.directory), "state_dir": str(state_dir)}
                show({"event": "ready", **named}, node.name)
            service_manager.notify(service_manager.READY)
            await _print_all(nodes, show)
    except asyncio.CancelledError:
        if not stopping:
            raise
    show({"event": "stopped"}, "")


def _make_nodes(args: argparse.Namespace, metrics: Metrics) -> list[_Node]:
    """Return the node of `--socket-dir`, or those of `--count`, each in a directory below it."""
    from kubedevices.node.device_manager import DeviceManager
    from kubedevices.node.services.control import ControlService
    from kubedevices.node.settings import NodeSettings

    settings = NodeSettings(
        grace_period=args.grace_period,
        admission_wait=args.admission_wait,
        topology=topology_settings(args),
    )
    nodes = []
    for name, directory in node_places(args).items():
        state_dir = default_state_dir(directory) if name else state_directory(args)
        manager = DeviceManager(directory, state_dir=state_dir, settings=settings, metrics=metrics)
        control = ControlService(manager, state_dir)
        nodes.append(_Node(name, directory, manager, control, manager.subscribe()))
    return nodes


@contextlib.asynccontextmanager
async def _running(
    args: argparse.Namespace, nodes: Sequence[_Node], metrics: Metrics
) -> "AsyncIterator[Sequence[tuple[_Node, dict[str, str]]]]":
    """Run the nodes and their services; yield each node with the addresses of its services."""
    async with contextlib.AsyncExitStack() as running:
        for node in nodes:
            await running.enter_async_context(node.manager)
        places = []
        for node in nodes:
            services = node_services(args, node.manager, node.directory, metrics)
            places.append((node, await running.enter_async_context(services)))
            await node.control.start()
            running.push_async_callback(node.control.stop)
        running.callback(service_manager.notify, service_manager.STOPPING)
        yield places


async def _print_all(
    nodes: Sequence[_Node], show: Callable[[Mapping[str, Any], str], None]
) -> None:
    if len(nodes) == 1:
        await _print(nodes[0], show)
        return
    async with asyncio.TaskGroup() as printers:
        for node in nodes:
            printers.create_task(_print(node, show), name=f"events of {node.name}")


async def _print(node: _Node, show: Show) -> None:
    """Show the pods that were left behind, then every event, until cancelled."""
    for pod in (await node.control.pods({}))["pods"]:
        if reason := pod["left_behind"]:
            name = f"{pod['namespace']}/{pod['name']}" if pod["name"] else pod["uid"]
            show({"event": "left behind", "pod": name, "reason": reason}, node.name)
    async for event in node.events:
        show(event.as_dict(), node.name)


def _json_line(event: Mapping[str, Any]) -> str:
    return json_text({"time": timestamp(time.time()), **event})


def _text_line(event: Mapping[str, Any]) -> str:
    node = f"{event['node']} " if "node" in event else ""
    return f"{time.strftime('%H:%M:%S')} {node}{describe(event)}"


def describe(event: Mapping[str, Any]) -> str:
    """Return an event as one line of text."""
    kind = str(event["event"])
    subject = event.get("resource") or event.get("pod") or ""
    return f"{kind:<14} {': '.join(filter(None, (subject, _details(kind, event))))}".rstrip(" ")


_DETAILS = {
    "serving": "{service} at {at}",
    "registered": "at {socket}",
    "refused": "at {socket}: {reason}",
    "left behind": "{reason} (kubedevices release {pod})",
    "removed": "its plugin did not come back within the grace period",
    "rejected": "{message}",
    "damaged": "{file}: {reason} (kept as {kept_as})",
}


def _details(kind: str, event: Mapping[str, Any]) -> str:
    match kind:
        case "ready":
            from kubedevices.node.services.control_client import node_options

            options = node_options(Path(event["socket_dir"]), Path(event["state_dir"]))
            return f"plugins register in {event['socket_dir']} (kubedevices devices {options})"
        case "list changed":
            return f"{_list_change(event)}{_totals(event)}"
        case "health changed":
            return f"{_health_change(event['devices'])}{_totals(event)}"
        case "allocated":
            return "; ".join(
                f"{container}: " + ", ".join(_devices(resources))
                for container, resources in event["containers"].items()
            )
        case "disconnected":
            return f"{counted(event['devices'], 'device')} Unknown: {event['reason']}"
        case "missed":
            return f"{counted(event['events'], 'event')}: this output was too slow"
        case "released":
            return ", ".join(_devices(event["devices"]))
    return _DETAILS.get(kind, "").format_map(event)


def _totals(event: Mapping[str, Any]) -> str:
    return f" (capacity {event['capacity']}, allocatable {event['allocatable']})"


def _list_change(event: Mapping[str, Any]) -> str:
    parts = [
        f"{sign}{_shorten(event[key])}"
        for key, sign in (("appeared", "+"), ("vanished", "-"), ("moved", "moved "))
        if event[key]
    ]
    return "; ".join(parts) or "no devices"


def _health_change(devices: Mapping[str, str]) -> str:
    by_health: dict[str, list[str]] = {}
    for device_id, health in devices.items():
        by_health.setdefault(health, []).append(device_id)
    return "; ".join(f"{_shorten(ids)} {health}" for health, ids in by_health.items())


def _devices(resources: Mapping[str, Sequence[str]]) -> list[str]:
    return [f"{resource} {_shorten(ids)}" for resource, ids in resources.items()]


def _shorten(device_ids: Sequence[str]) -> str:
    """Return the IDs, or the first of them and the number of the others."""
    shown = ",".join(device_id or '""' for device_id in device_ids[:_SHOWN])
    more = len(device_ids) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
