"""`kubedevices devices --cluster`, also as `kubectl devices`: the devices of a cluster.

The keys of `-o json` and `-o yaml` are stable: `devices`, each with `node` (`*` for all nodes,
`several` for those of a selector, empty if unknown), `resource` (of DRA the driver), `api`
(dra, device-plugin), `pool`, `device`, `published` (false: no ResourceSlice has it; null: not known
or not DRA), `health` (Healthy, Unhealthy, Unknown; empty if nobody says), `taints` (`key`, `value`,
`effect`), `held_by` (`namespace`, `pod`, `claim`) and `is_conflict` (true: two have what one may
have). `resources` are the extended resources of each node: `node`, `resource`, `capacity`,
`allocatable`, `held`, and `held_by` (`namespace`, `pod`, `number`). `problems`, `notes` and
`unread` are lists of texts.
"""

import argparse
import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kubedevices.cli.shared.cluster_client import add_cluster_arguments, connect
from kubedevices.cli.shared.output import (
    Column,
    LiveListing,
    Row,
    add_output_argument,
    joined,
    print_listing,
)
from kubedevices.errors import ApiUnreachable, NodeError
from kubedevices.errors.words import counted, did_you_mean, some_of
from kubedevices.host import terminal
from kubedevices.host.terminal import print_line, print_to_stderr

if TYPE_CHECKING:
    from kubedevices.dra.api_client import ApiClient

NAME = "devices"
HELP = """\
list the devices of a cluster: health, taints, holder

Asks the API server, from anywhere. Devices of DRA drivers are those of the ResourceSlices. Of
device plugins the API server has the numbers of each node, and the names of devices that pods have,
if the kubelets write them into the status of pods (Kubernetes 1.36). Needs the rights to list
nodes, pods, resourceslices and resourceclaims, and names each right that is missing. Exit code 3:
neither nodes nor resourceslices may be read. `kubectl devices explain` says what is wrong with a
pod, a claim, a node or the cluster.
"""
EXAMPLES = """\
examples:
  kubedevices devices
  kubedevices devices gpu.example.com -o json
  kubedevices devices --watch
  kubedevices devices explain pod train-0
  kubedevices devices explain --help
"""

_PAUSE = 5.0
"""Seconds between two looks with `--watch`; five times as long as a look if that takes longer."""

_EMPTY = "no devices: no driver has published any, and no device plugin has registered"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `kubectl devices`."""
    add_listing_arguments(parser, "RESOURCE|DRIVER", "list only this resource or this driver")
    add_arguments_of_cluster(parser)


def add_listing_arguments(parser: argparse.ArgumentParser, metavar: str, text: str) -> None:
    """Declare what is listed, and how; `text` says what a word chooses."""
    parser.add_argument("resource", nargs="?", metavar=metavar, help=text)
    parser.add_argument(
        "-w", "--watch", action="store_true", help="follow changes until Ctrl-C is pressed"
    )
    add_output_argument(parser)


def add_arguments_of_cluster(parser: argparse._ActionsContainer) -> None:
    """Declare the arguments about the API server."""
    add_cluster_arguments(parser, "where to read pods and claims if you may not read all")


def run(args: argparse.Namespace) -> int:
    """Print the devices once or, with `--watch`, after every change."""
    api, namespace = connect(args)
    if args.watch:
        asyncio.run(_watch(api, namespace, args))
        return 0
    document, can_answer = asyncio.run(_look(api, namespace, args.resource or ""))
    rows, empty = _rows(document), "no devices may be read" if document["unread"] else _EMPTY
    print_listing(rows, _COLUMNS, args.output, document=document, empty=empty, headings=2)
    if args.output == "table" and (remarks := [*_remarks(document)]):
        if rows:
            print_line()
        for each in remarks:
            print_line(each)
    return 0 if can_answer else 3


async def _look(
    api: "ApiClient", namespace: str, only: str, *, may_lack: bool = False
) -> tuple[dict[str, Any], bool]:
    """Return the document, and whether any device could be read.

    Raises `NodeError` if no node has the resource or driver `only`, unless `may_lack`.
    """
    from kubedevices.explain.in_cluster.device_table import DeviceTable
    from kubedevices.explain.in_cluster.read_objects import look_at_devices

    cluster = await look_at_devices(api, namespace)
    table = DeviceTable(cluster, only)
    if only and not may_lack and not cluster.unread and only not in (names := table.names()):
        has = some_of(sorted(names)) or "nothing"
        raise NodeError(
            f"no node has the resource or driver {only}; this cluster has {has}"
            f"{did_you_mean(only, names)}"
        )
    return table.as_dict(), not {"nodes", "resourceslices"} <= cluster.unread.keys()


async def _watch(api: "ApiClient", namespace: str, args: argparse.Namespace) -> None:
    """Look again every few seconds. An API server that is away later is asked again."""
    only, problem = args.resource or "", ""
    shown: dict[str, Any] | None = None
    loop = asyncio.get_running_loop()
    is_live = args.output == "table" and terminal.is_terminal()  # has a caption for what is wrong
    with LiveListing(_COLUMNS, args.output, empty=_EMPTY, headings=2) as listing:
        while True:
            began = loop.time()
            try:
                shown, _ = await _look(api, namespace, only, may_lack=shown is not None)
                problem = ""
            except ApiUnreachable as error:
                if shown is None:
                    raise
                if not problem and not is_live:
                    print_to_stderr(f"{error}; asking again")
                problem = f"{error}; asking again"
            caption = "; ".join([problem] * bool(problem) + [*_remarks(shown)])
            listing.show(_rows(shown), document=shown, caption=caption)
            await asyncio.sleep(max(_PAUSE, 5 * (loop.time() - began)))


# ---------------------------------------------------------------- the table


def _rows(document: Mapping[str, Any]) -> list[Row]:
    """Return a row per device and per extended resource of a node, by node and resource."""
    rows: list[Row] = [*_number_rows(document["resources"], document["devices"])]
    rows += [
        {
            "node": each["node"],
            "resource": each["resource"],
            "device": each["device"],
            "health": "gone" if each["published"] is False else each["health"],
            "taints": each["taints"],
            "held_by": _holders(each),
        }
        for each in document["devices"]
    ]
    return sorted(rows, key=lambda row: (row["node"], row["resource"]))


def _number_rows(
    resources: Iterable[Mapping[str, Any]], devices: Iterable[Mapping[str, Any]]
) -> Iterator[Row]:
    """Yield a row of numbers per node and resource; pods whose devices have a row are left out."""
    shown = {
        (each["node"], each["resource"], user["namespace"], user["pod"])
        for each in devices
        for user in each["held_by"]
    }
    for each in resources:
        bad = each["capacity"] - each["allocatable"]
        users = [
            f"{user['namespace']}/{user['pod']} ({user['number']})"
            for user in each["held_by"]
            if (each["node"], each["resource"], user["namespace"], user["pod"]) not in shown
        ]
        yield {
            "node": each["node"],
            "resource": each["resource"],
            "device": f"{counted(each['capacity'], 'device')}, {each['allocatable']} allocatable",
            "health": f"{bad} unhealthy" if bad > 0 else "Healthy" if each["capacity"] else "",
            "held_by": ", ".join(users),
        }


def _holders(device: Mapping[str, Any]) -> str:
    users = ", ".join(map(_holder, device["held_by"]))
    return f"{len(device['held_by'])} HOLDERS: {users}" if device["is_conflict"] else users


def _holder(user: Mapping[str, str]) -> str:
    if not user["pod"]:
        return f"no pod (claim {user['namespace']}/{user['claim']})"
    claim = f" (claim {user['claim']})" if user["claim"] else ""
    return f"{user['namespace']}/{user['pod']}{claim}"


def _taints(taints: Sequence[Mapping[str, str]]) -> str:
    return joined(
        f"{each['key']}{'=' * bool(each['value'])}{each['value']}:{each['effect']}"
        for each in taints or ()
    )


def _remarks(document: Mapping[str, Any]) -> Iterator[str]:
    yield from document["problems"]
    yield from document["notes"]
    yield from (f"not read: {each}" for each in document["unread"])


_COLUMNS = (
    Column("node"),
    Column("resource", "RESOURCE OR DRIVER"),
    Column("device"),
    Column("health"),
    Column("taints", text=_taints, below=True),
    Column("held_by", below=True),
)
