"""`kubedevices cordon`: takes a device out of service.

The keys of `-o json` and `-o yaml` are stable: `cordoned`, each with `resource`, `id`, `reason`
and `since` (UTC), and `until` if the device comes back by itself.
"""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubedevices.cli.node_client import (
    add_host_root_argument,
    add_node_arguments,
    ask,
    ask_kubelet_of,
    look_below_host_root,
    state_directory,
)
from kubedevices.cli.output import Column, add_output_argument, print_listing
from kubedevices.errors import CannotAsk, NoNode, UsageError
from kubedevices.resource_name import ResourceName
from kubedevices.terminal import print_line, print_to_stderr
from kubedevices.words import did_you_mean

if TYPE_CHECKING:
    from kubedevices.middleware.maintenance_file import Cordoned

NAME = "cordon"
HELP = """\
take a device out of service: it is Unhealthy, and Allocate refuses it with the reason

A device stays cordoned, also after restarts, until `kubedevices uncordon`. Pods that hold the
device continue. The plugins that follow the list are `kubedevices expose`, `simulate` and `proxy`
with the same directories.
"""
EXAMPLES = """\
examples:
  kubedevices cordon example.com/gpu/GPU-1 --reason "fan is noisy, ticket 4711"
  kubedevices cordon example.com/gpu/GPU-1 example.com/gpu/GPU-2 --reason "new firmware"
  kubedevices cordon --list
  kubedevices uncordon example.com/gpu/GPU-1
"""

_COLUMNS = (Column("resource"), Column("id", "DEVICE"), Column("since"), Column("reason"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    add_devices_argument(parser)
    parser.add_argument("--reason", metavar="TEXT", help="why; a pod that is refused shows it")
    parser.add_argument(
        "-l", "--list", action="store_true", help="list the cordoned devices, and change nothing"
    )
    parser.add_argument(
        "--anyway", action="store_true", help="cordon also a device that the node does not know"
    )
    add_output_argument(parser)
    add_node_arguments(parser)
    add_host_root_argument(parser)


def add_devices_argument(parser: argparse.ArgumentParser) -> None:
    """Add the devices, RESOURCE/ID."""
    parser.add_argument(
        "devices",
        nargs="*",
        metavar="RESOURCE/ID",
        help="a device: example.com/gpu/GPU-1; for a shared device, the part of the ID before ::",
    )


def run(args: argparse.Namespace) -> int:
    """Cordon devices, or list the cordoned devices."""
    from kubedevices.middleware.maintenance_file import add_cordoned, read_cordoned

    look_below_host_root(args)
    file = maintenance_file(args)
    if args.list:
        if args.devices or args.reason is not None:
            raise UsageError("--list changes nothing: leave out RESOURCE/ID and --reason")
        print_cordoned(read_cordoned(file), args.output, empty="no device is cordoned")
        return 0
    wanted = parse_devices(args.devices)
    if not (args.reason or "").strip():
        raise UsageError('cordon needs --reason TEXT, for example --reason "new firmware"')
    if not args.anyway:
        check_known(args, wanted)
    cordoned = add_cordoned(file, wanted, args.reason)
    if args.output == "table":
        for each in cordoned:
            print_line(f"{each.resource}/{each.id} is cordoned: {each.reason}")
    else:
        print_cordoned(cordoned, args.output)
    return 0


def maintenance_file(args: argparse.Namespace) -> Path:
    """Return the file with the cordoned devices, which the plugins of these directories read."""
    from kubedevices.middleware.maintenance import FILE_NAME

    return state_directory(args) / FILE_NAME


def parse_devices(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return resource and ID of each device; raises `UsageError`. An ID may have slashes."""
    if not texts:
        raise UsageError("which device? Write RESOURCE/ID, for example example.com/gpu/GPU-1")
    return tuple(dict.fromkeys(map(_parse_device, texts)))


def _parse_device(text: str) -> tuple[str, str]:
    domain, _, rest = text.partition("/")
    device_type, _, device_id = rest.partition("/")
    if not device_id or not device_id.isprintable():
        raise UsageError(f"{text!r} is not a device: write RESOURCE/ID, like example.com/gpu/GPU-1")
    return str(ResourceName.parse(f"{domain}/{device_type}")), device_id


def print_cordoned(cordoned: Iterable["Cordoned"], output: str, *, empty: str = "") -> None:
    """Print a list of cordoned devices."""
    from kubedevices.middleware.maintenance_file import as_dict

    found = [*cordoned]
    rows = [
        as_dict(
            each._replace(reason=f"{each.reason} until {each.until}" if each.until else each.reason)
        )
        for each in found
    ]
    print_listing(
        rows, _COLUMNS, output, document={"cordoned": [*map(as_dict, found)]}, empty=empty
    )


# ---------------------------------------------------------------- does the device exist?


def check_known(args: argparse.Namespace, wanted: Sequence[tuple[str, str]]) -> None:
    """Raise `UsageError` for a device that the node does not list.

    If a kubelet answers instead of a node, this is only a note on stderr: a kubelet does not list
    unhealthy devices. If neither answers, every device is accepted.
    """
    try:
        listed, is_kubelet = _listed(args)
    except CannotAsk:
        return
    for resource, device_id in wanted:
        ids = listed.get(resource)
        if ids is None:
            missing = f"{resource} is not a resource here{did_you_mean(resource, listed)}"
        elif {device_id, device_id.partition("::")[0]} & ids:
            continue
        else:
            missing = f"{resource} has no device {device_id!r}{did_you_mean(device_id, ids)}"
        if not is_kubelet:
            raise UsageError(f"{missing} (--anyway cordons it nevertheless)")
        print_to_stderr(f"note: the kubelet lists healthy devices only: {missing}")


def _listed(args: argparse.Namespace) -> tuple[dict[str, set[str]], bool]:
    """Return the IDs of each resource, and whether a kubelet listed them.

    For a shared device ID `GPU-1::0`, the part before `::` is in the result too.
    """
    try:
        document, is_kubelet = ask(args, lambda client: client.devices()), False
    except NoNode as error:
        (_, document), is_kubelet = ask_kubelet_of(error), True
    listed: dict[str, set[str]] = {}
    each: dict[str, Any]
    for each in document["resources"]:
        ids = {device["id"] for device in each["devices"]}
        listed[each["resource"]] = ids | {device_id.partition("::")[0] for device_id in ids}
    return listed, is_kubelet
