"""`kubedevices devices`: lists the devices of a node: health, NUMA nodes, holder.

The keys of `-o json` and `-o yaml` are stable: `resources`, each with `resource`, `capacity`,
`allocatable`, `held`, `plugin` (connected, starting, stopped, missing) and `devices`; each device
has `id`, `health`, `numa_nodes` and `held_by` (`namespace`, `pod`, `uid`, `container`). A
`kubedevices node` adds `left_behind`: pods whose devices no process uses any more
(`namespace`, `pod`, `uid`, `reason`). A `kubedevices proxy` adds `proxied`: the resources behind
the proxy, each with `resource` (the name that the plugin registers), `plugin` (connected, missing),
`socket`, `healthy`, `unhealthy`, `rules` in words, `outside` (`resource`, `healthy`, `unhealthy`)
and `cordoned` (`resource`, `id`, `reason`), and `reasons` with the same keys: at most 100 devices
that a rule made Unhealthy. DRA drivers add `drivers`, each with `driver`, `state` (running, not
running) and `devices` (the names in its ResourceSlices; null if they are not known, as for drivers
of other vendors), and `claims`, each with `driver`, `claim`
(NAMESPACE/NAME), `devices`, `held_by` and `state`. For drivers of kubedevices on this host, `state`
is prepared, begun, or why the claim was refused. The claims of other drivers are those that a
kubelet reports: prepared and in a container. `devices_cluster` has the keys with `--cluster`.
"""

import argparse
import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubedevices.cli.node import devices_cluster, dra_listing
from kubedevices.cli.shared.node_client import (
    add_host_root_argument,
    add_node_arguments,
    add_pod_resources_argument,
    add_proxy_argument,
    ask,
    ask_kubelet_of,
    ask_to_allocate,
    look_below_host_root,
    note,
    proxy_socket,
    unknown_resource,
)
from kubedevices.cli.shared.output import (
    Column,
    LiveListing,
    Row,
    joined,
    print_listing,
)
from kubedevices.errors import CannotAsk, NoNode, UsageError
from kubedevices.host.terminal import print_line, print_to_stderr
from kubedevices.values.resource_name import ResourceName
from kubedevices.values.socket_paths import DEVICE_PLUGIN_DIR

if TYPE_CHECKING:
    from kubedevices.node.services.control_client import ControlClient

NAME = "devices"
HELP = """\
list devices of a node or a cluster: health, NUMA node, holder

Asks the `kubedevices node` of the socket directory, or else the kubelet that serves the directory.
A kubelet lists only healthy and allocated devices. If a `kubedevices proxy` stands before the
kubelet, the verb also lists the plugins behind the proxy, and the devices that the kubelet gets.
Last come the DRA drivers on this host and their claims: the devices of each claim and the
containers that have them, or why a driver of kubedevices on this host refused the claim. A kubelet
names the claims of all drivers, a node of kubedevices none.

With --cluster it asks the API server instead, from anywhere, for the devices of all nodes, of
device plugins and DRA drivers: health, taints, and the pods that hold them. It needs the rights to
list nodes, pods, resourceslices and resourceclaims, and names each right that is missing.
"""
EXAMPLES = """\
examples:
  kubedevices devices --socket-dir ~/kd
  kubedevices devices example.com/widget --socket-dir ~/kd -o json
  kubedevices devices --watch --socket-dir ~/kd
  kubedevices devices --pod-resources /var/lib/kubelet/pod-resources/kubelet.sock
  kubedevices devices --cluster gpu.example.com
"""


def _holders_as_text(holders: Sequence[Mapping[str, str]]) -> str:
    return joined(
        (f"{each['namespace']}/{each['pod']}" if each["pod"] else each["uid"])
        + f" ({each['container']})"
        for each in holders
    )


def _outside_as_text(resources: Sequence[Mapping[str, Any]]) -> str:
    return joined(
        f"{each['resource']} ({each['healthy']} healthy, {each['unhealthy']} not)"
        for each in resources
    )


def _with_reasons(devices: Sequence[Mapping[str, str]]) -> str:
    return joined(f"{each['id']} ({each['reason']})" for each in devices)


_DEVICE_COLUMNS = (
    Column("resource"),
    Column("id", "DEVICE"),
    Column("health"),
    Column("numa_nodes", "NUMA"),
    Column("held_by", text=_holders_as_text),
)
_SUMMARY = (
    Column("resource"),
    Column("capacity", right=True),
    Column("allocatable", right=True),
    Column("held", right=True),
    Column("plugin"),
)
_PROXIED = (
    Column("resource", "BEHIND THE PROXY"),
    Column("plugin"),
    Column("healthy", right=True),
    Column("unhealthy", right=True),
    Column("outside", "SERVED AS", text=_outside_as_text),
    Column("cordoned", text=_with_reasons),
    Column("reasons", text=_with_reasons),
    Column("rules", text=lambda rules: "; ".join(rules) or "-"),
)
_CLAIMS = (
    Column("driver"),
    Column("claim"),
    Column("devices", text=joined),
    Column("held_by", text=_holders_as_text),
    Column("state"),
)
_ASK_AGAIN = 2.0
"""Seconds between two questions to a proxy with `--watch`."""

_EMPTY = "no devices: no plugin has registered"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    devices_cluster.add_listing_arguments(
        parser, "RESOURCE", "list only this resource; with --cluster, also a DRIVER"
    )
    add_node_arguments(parser)
    add_pod_resources_argument(parser)
    add_proxy_argument(parser)
    add_host_root_argument(parser)
    cluster = parser.add_argument_group("all nodes of a cluster")
    cluster.add_argument(
        "--cluster", action="store_true", help="list the devices of all nodes, from the API server"
    )
    devices_cluster.add_arguments_of_cluster(cluster)


def run(args: argparse.Namespace) -> int:
    """Print the listing once or, with `--watch`, after every change."""
    if args.cluster or args.kubeconfig or args.namespace:
        return devices_cluster.run(args)
    if args.resource is not None:
        ResourceName.parse(args.resource)
    look_below_host_root(args)
    if args.watch and args.pod_resources:
        raise UsageError(
            "--watch cannot be used with --pod-resources: a kubelet reports no changes"
        )
    if args.watch:
        ask_to_allocate(args, lambda client: _watch(client, args))
        return 0

    document = _ask(args) | asyncio.run(_ask_proxy(args))
    domain = (args.resource or "").partition("/")[0]
    held = [each for each in document.pop("claims", ()) if domain in ("", each["driver"])]
    drivers, ours = dra_listing.look(args.socket_dir.parent, domain)
    claims = dra_listing.with_holders(ours, held)
    if (claims or drivers) and args.resource is not None and _lacks(document, args.resource):
        document |= {"resources": []}
    elif args.resource is not None:
        document = _only(document, args.resource)
    document |= {"drivers": drivers} if drivers else {}
    document |= {"claims": claims} if claims else {}
    rows = [*_rows(document)]
    resources = document["resources"]
    empty = _EMPTY if not resources else "no devices"
    if rows or resources or not drivers or args.output != "table":
        print_listing(rows, _DEVICE_COLUMNS, args.output, document=document, empty=empty)
    if args.output == "table":
        _print_other_tables(document, has_rows=bool(rows))
    return 0


def _print_other_tables(document: dict[str, Any], *, has_rows: bool) -> None:
    """Print what follows the table of devices: summary, pods left behind, proxy, claims."""
    if resources := document["resources"]:
        if has_rows:
            print_line()
        print_listing(resources, _SUMMARY, "table")
        for each in document.get("left_behind", ()):
            pod = f"{each['namespace']}/{each['pod']}" if each["pod"] else each["uid"]
            print_line()
            print_line(f"pod {pod} is left behind: {each['reason']}; kubedevices release {pod}")
    has_above = bool(resources)
    tables = {"proxied": _PROXIED, "drivers": dra_listing.DRIVER_COLUMNS, "claims": _CLAIMS}
    for key, columns in tables.items():
        if found := document.get(key):
            if has_above:
                print_line()
            print_listing(found, columns, "table")
            has_above = True


def _lacks(document: dict[str, Any], resource: str) -> bool:
    """Whether no device plugin has the resource; all of its devices may be in DRA."""
    return all(each["resource"] != resource for each in document["resources"])


async def _ask_proxy(args: argparse.Namespace) -> dict[str, Any]:
    """Return the resources of a proxy; empty if no proxy answers."""
    from kubedevices.kubelet_api.proxy_client import ask_proxy

    wanted = args.resource
    proxied = [
        each.as_dict()
        for each in await ask_proxy(proxy_socket(args))
        if wanted is None or each.serves(wanted)
    ]
    return {"proxied": proxied} if proxied else {}


def _ask(args: argparse.Namespace) -> dict[str, Any]:
    """Ask the kubelet of `--pod-resources`, else the node, else the kubelet of the directory."""
    if args.pod_resources is None:
        try:
            return ask(args, _ask_node)
        except NoNode as error:
            if args.socket_dir == DEVICE_PLUGIN_DIR and _is_missing(args.socket_dir):
                raise CannotAsk(f"{error}. For a cluster: kubedevices devices --cluster") from None
            socket, document = ask_kubelet_of(error)
    else:
        from kubedevices.kubelet_api.kubelet_devices import ask_kubelet

        socket, document = args.pod_resources, asyncio.run(ask_kubelet(args.pod_resources))
    print_to_stderr(note(socket))
    return document


def _is_missing(directory: Path) -> bool:
    try:
        directory.stat()
    except OSError as error:  # without permission nobody knows
        return isinstance(error, FileNotFoundError)
    return False


async def _ask_node(client: "ControlClient") -> dict[str, Any]:
    pods = (await client.pods())["pods"]
    return await client.devices() | {
        "left_behind": [
            {"namespace": pod["namespace"], "pod": pod["name"], "uid": pod["uid"]}
            | {"reason": pod["left_behind"]}
            for pod in pods
            if pod.get("left_behind")
        ]
    }


def _only(document: dict[str, Any], resource: str) -> dict[str, Any]:
    found = [each for each in document["resources"] if each["resource"] == resource]
    if not found:
        known = [each["resource"] for each in document["resources"]]
        raise unknown_resource(resource, known)
    return document | {"resources": found}


async def _watch(client: "ControlClient", args: argparse.Namespace) -> None:
    """Show the listing whenever the node reports a change, with the answer of the proxy.

    A proxy reports no changes, so this asks the proxy every `_ASK_AGAIN` seconds.
    """
    listing = LiveListing(_DEVICE_COLUMNS, args.output, empty=_EMPTY)
    last_listing: dict[str, Any] = {}
    proxied: dict[str, Any] = {}
    async with aclosing(client.watch_devices(args.resource or "")) as documents:
        news = asyncio.ensure_future(anext(documents, None))
        try:
            with listing:
                while True:
                    await asyncio.wait({news}, timeout=_ASK_AGAIN if last_listing else None)
                    if news.done():
                        if (document := news.result()) is None:
                            return
                        last_listing = document
                        _show(listing, last_listing | proxied)  # the proxy may answer late
                        news = asyncio.ensure_future(anext(documents, None))
                    proxied = await _ask_proxy(args)
                    _show(listing, last_listing | proxied)
        finally:
            news.cancel()
            await asyncio.wait({news})


def _show(listing: LiveListing, document: dict[str, Any]) -> None:
    listing.show(_rows(document), document=document, caption=_caption(document))


def _caption(document: dict[str, Any]) -> str:
    parts = [
        f"{each['resource']}: capacity {each['capacity']}, allocatable {each['allocatable']}, "
        f"held {each['held']}, plugin {each['plugin']}"
        for each in document["resources"]
    ]
    parts += [
        f"behind the proxy {each['resource']}: plugin {each['plugin']}, {each['healthy']} healthy, "
        f"{each['unhealthy']} not, served as {_outside_as_text(each['outside'])}"
        for each in document.get("proxied", ())
    ]
    return "; ".join(parts)


def _rows(document: dict[str, Any]) -> Iterator[Row]:
    for resource in document["resources"]:
        for device in resource["devices"]:
            yield {**device, "resource": resource["resource"]}
