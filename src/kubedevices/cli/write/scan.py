"""`kubedevices scan`: runs a scanner once and prints its devices; needs no root and no kubelet.

The keys of `-o json` and `-o yaml` are stable: a list of resources, each with `device_type`,
`resource` (null without a domain) and `devices`, each device with `id`, `health`, `numa_nodes`,
`devices` (`host_path`, `container_path`, `permissions`), `mounts` (`host_path`, `container_path`,
`read_only`), `env`, `annotations`, `cdi`, `attributes` and `capacity`. With `--mode dra` the
output is a Kubernetes List of ResourceSlices.
"""

import argparse
import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kubedevices.cli.shared.output import (
    Column,
    Row,
    add_output_argument,
    joined,
    path_as_text,
    print_listing,
)
from kubedevices.cli.shared.serving import add_host_arguments
from kubedevices.cli.write.scanner_loader import add_scanner_argument, load_scanner
from kubedevices.errors import (
    InvalidDevice,
    InvalidResourceName,
    KubedevicesError,
    ScanFailed,
    UsageError,
)
from kubedevices.host.sysfs import NumaReader
from kubedevices.host.terminal import print_to_stderr
from kubedevices.plugin import hook_threads
from kubedevices.plugin.author_errors import describe
from kubedevices.plugin.numa_lookup import NumaLookup
from kubedevices.plugin.scan_task import TreeUpdates
from kubedevices.plugin.scanner import Scanner
from kubedevices.values.device import Device, natural_key
from kubedevices.values.device_tree import DeviceTree
from kubedevices.values.resource_name import ResourceName, explain_resource_name

NAME = "scan"
HELP = """\
run a scanner once and print its devices; needs no root and no kubelet

The scanner is a class of yours, or a configuration of `kubedevices expose`.
"""
EXAMPLES = """\
examples:
  kubedevices scan widgets.py:Widgets
  kubedevices scan widgets.py:Widgets --arg dev=test-devices -o json
  kubedevices scan --config host-devices.yaml
  kubedevices scan --profile serial --profile kvm
  kubedevices scan --config host-devices.yaml --mode dra -o yaml
"""

_TIMEOUT = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    add_scanner_argument(parser, nargs="?")
    add_host_arguments(parser)
    parser.add_argument(
        "--domain",
        help="print full resource names, DOMAIN/TYPE; with --mode dra the name of the driver",
    )
    parser.add_argument(
        "--mode",
        choices=("device-plugin", "dra"),
        default="device-plugin",
        help="dra: print the ResourceSlices that a driver would publish",
    )
    parser.add_argument(
        "--kube-node",
        metavar="NAME",
        help="with --mode dra: the name of the node (default: the variable NODE_NAME, then the "
        "host's name)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=_TIMEOUT,
        metavar="SECONDS",
        help=f"how long to wait for the scanner (default: {_TIMEOUT:g})",
    )
    add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print one device tree."""
    if not args.timeout > 0:
        raise UsageError(f"--timeout {args.timeout:g} must be a number of seconds above 0")
    if args.kube_node is not None and args.mode != "dra":
        raise UsageError("--kube-node has no effect without --mode dra")
    scanner, domain = _choose_scanner(args)
    tree = asyncio.run(scan_once(scanner, args.timeout, dev_root=args.dev_root))
    check_tree(tree, domain)
    if args.mode == "dra":
        return print_slices(tree, domain, args)
    resources = [_describe_type(tree, device_type, domain) for device_type in tree]
    rows = list(_rows(resources))
    empty = ", ".join(
        entry["resource"] or entry["device_type"] for entry in resources if not entry["devices"]
    )
    print_listing(
        rows,
        _columns(rows, domain),
        args.output,
        document=resources,
        empty=f"no devices: {empty}" if empty else "the scanner reports no devices",
    )
    if rows and empty and args.output == "table":
        print_to_stderr(f"no devices: {empty}")
    return 0


async def scan_once(
    scanner: Scanner, timeout: float, *, dev_root: Path = Path("/dev")
) -> DeviceTree:
    """Return the first tree that `scanner` reports, with NUMA nodes; raises `ScanFailed`."""
    name = scanner.scanner_name
    updates = TreeUpdates()
    scan: asyncio.Task[None] = asyncio.create_task(
        hook_threads.call(scanner.scan, updates.notifier), name=f"scan {name}"
    )
    first = asyncio.create_task(updates.first_tree(), name="first tree")
    try:
        await asyncio.wait({scan, first}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if scan.done():
            _raise_failure(scan, name)
            if not updates.notifier.has_tree:
                raise ScanFailed(name, "scan() returned without reporting any devices")
        elif not first.done():
            raise ScanFailed(name, f"it reported nothing within {timeout:g} s")
        numa_lookup = NumaLookup(NumaReader(dev_root=dev_root))
        return await hook_threads.call(numa_lookup.complete, await first)
    finally:
        updates.stop()
        for task in (scan, first):
            task.cancel()
        await asyncio.gather(scan, first, return_exceptions=True)


def check_tree(tree: DeviceTree, domain: str | None) -> None:
    """Raise the errors that `run` would raise: for invalid device types and invalid CDI devices.

    Without a domain, raise only errors that any domain would cause.
    """
    for device_type in tree:
        kind = f"{domain or 'example.com'}/{device_type}"
        if problem := explain_resource_name(kind):
            raise InvalidResourceName(f"{domain or '…'}/{device_type}", problem)
        by_cdi = [each for each in tree.devices(device_type).values() if each.cdi is not None]
        if by_cdi:
            from kubedevices.host.cdi_specs import text_of
            from kubedevices.plugin.cdi_form import cdi_device
            from kubedevices.values.cdi import CdiSpec

            if defined := tuple(filter(None, map(cdi_device, by_cdi))):
                text_of(CdiSpec(kind=kind, devices=defined), kind)


def _raise_failure(scan: "asyncio.Task[None]", name: str) -> None:
    error = scan.exception()
    if isinstance(error, KubedevicesError) and not isinstance(error, InvalidDevice):
        raise error
    if error is not None:
        raise ScanFailed(name, describe(error)) from error


def _choose_scanner(args: argparse.Namespace) -> tuple[Scanner, str | None]:
    option = "--config" if args.config is not None else "--profile" if args.profile else None
    if (args.scanner is None) is (option is None):
        raise UsageError("scan needs either MODULE:CLASS or --config FILE")
    if option is not None and args.constructor_arguments:
        raise UsageError(f"--arg is for MODULE:CLASS and cannot be used with {option}")
    if args.scanner is not None:
        return load_scanner(args.scanner, args.constructor_arguments), args.domain
    from kubedevices.cli.ready_plugins.expose import scanner_of

    scanner = scanner_of(args)
    return scanner, args.domain or scanner.config.namespace


def _describe_type(tree: DeviceTree, device_type: str, domain: str | None) -> dict[str, Any]:
    devices = tree.devices(device_type)
    return {
        "device_type": device_type,
        "resource": str(ResourceName(domain, device_type)) if domain else None,
        "devices": [
            describe_device(devices[device_id]) for device_id in sorted(devices, key=natural_key)
        ],
    }


def describe_device(device: Device) -> dict[str, Any]:
    """Return a device for JSON and YAML."""
    return {
        "id": device.id,
        "health": str(device.health),
        "numa_nodes": list(device.numa_nodes or ()),
        "devices": [spec._asdict() for spec in device.all_specs],
        "mounts": [mount._asdict() for mount in device.mounts],
        "env": dict(device.env),
        "annotations": dict(device.annotations),
        "cdi": _cdi(device.cdi),
        "attributes": dict(device.attributes),
        "capacity": dict(device.capacity),
    }


def _rows(resources: Sequence[dict[str, Any]]) -> Iterator[Row]:
    for entry in resources:
        for device in entry["devices"]:
            yield {**entry, **device}


def _columns(rows: Sequence[Row], domain: str | None) -> list[Column]:
    """Return the columns; those that are not always shown are left out if no row has a value."""
    columns = [
        Column("resource") if domain else Column("device_type", "TYPE"),
        Column("id"),
        Column("health"),
        Column("numa_nodes", "NUMA"),
        Column("devices", "DEVICE FILES", _paths_as_text),
        Column("mounts", text=_mounts_as_text),
        Column("env"),
        Column("annotations"),
        Column("cdi", "CDI", cdi_as_text),
        Column("attributes"),
        Column("capacity"),
    ]
    always = {"resource", "device_type", "id", "health", "numa_nodes", "devices"}
    return [
        column for column in columns if column.key in always or any(row[column.key] for row in rows)
    ]


def _paths_as_text(specs: Sequence[dict[str, str]]) -> str:
    texts = []
    for spec in specs:
        text = path_as_text(spec["host_path"], spec["container_path"])
        if spec["permissions"] != "rw":
            text += f" ({spec['permissions']})"
        texts.append(text)
    return joined(texts)


def _mounts_as_text(mounts: Sequence[dict[str, Any]]) -> str:
    return joined(
        path_as_text(each["host_path"], each["container_path"]) + " (ro)" * each["read_only"]
        for each in mounts
    )


def _cdi(given: Any) -> Any:
    """Return a CDI name unchanged, edits as they are in a CDI file."""
    if given is None or isinstance(given, str):
        return given
    from kubedevices.values.cdi import to_dict

    return to_dict(given)


def cdi_as_text(given: Any) -> str:
    """Return a CDI name, or edits as in a CDI file, as short text."""
    if given is None or isinstance(given, str):
        return given or "-"
    edits = dict(given.get("containerEdits", given))
    texts = list(edits.pop("env", ()))
    for node in edits.pop("deviceNodes", ()):
        text = path_as_text(node.get("hostPath", node["path"]), node["path"])
        texts.append(f"{text} ({node.get('permissions', 'rwm')})")
    for mount in edits.pop("mounts", ()):
        text = path_as_text(mount["hostPath"], mount["containerPath"])
        texts.append(text + (" (ro)" if "ro" in mount.get("options", ()) else ""))
    return ", ".join(texts + [f"{key}: {json.dumps(value)}" for key, value in edits.items()])


# ---------------------------------------------------------------- --mode dra


_SLICE_COLUMNS = (
    Column("slice"),
    Column("name", "DEVICE"),
    Column("attributes"),
    Column("capacity"),
    Column("taints"),
)


def print_slices(tree: DeviceTree, domain: str | None, args: argparse.Namespace) -> int:
    """Print the ResourceSlices of `tree`; return 1 if a device is in none of them.

    Such a device is reported on stderr: the API server would refuse it. So is an attribute that is
    left out. Needs no cluster.
    """
    from kubedevices.dra.names import check_driver_name
    from kubedevices.dra.options import DraSettings
    from kubedevices.dra.slice_writes import Pool, plan_writes
    from kubedevices.dra.slices import describe_left_out, describe_refused, offer_of
    from kubedevices.dra.tree_lookup import TreeLookup

    if domain is None:
        raise UsageError("--mode dra needs --domain, which is the name of the driver")
    driver = check_driver_name(domain)
    node = DraSettings(node_name=args.kube_node or "").node_name
    offer = offer_of(TreeLookup(dev_root=args.dev_root).complete(tree), driver)
    slices = plan_writes((), offer.slices, Pool(driver, node)).create
    print_listing(
        list(_slice_rows(slices)),
        list(_SLICE_COLUMNS),
        args.output,
        document={"apiVersion": "v1", "kind": "List", "items": list(slices)},
        empty="one empty slice: the driver has no devices",
    )
    for line in (*describe_left_out(offer.left_out), *describe_refused(offer.refused)):
        print_to_stderr(f"kubedevices: {line}")
    return 1 if offer.refused else 0


def _slice_rows(slices: tuple[dict[str, Any], ...]) -> Iterator[Row]:
    for index, each in enumerate(slices):
        for device in each["spec"]["devices"]:
            yield {
                "slice": index,
                "name": device["name"],
                "attributes": _values(device["attributes"]),
                "capacity": _values(device.get("capacity", {})),
                "taints": [
                    f"{taint['key']}:{taint['effect']}" for taint in device.get("taints", ())
                ],
            }


def _values(named: dict[str, Any]) -> dict[str, Any]:
    """Return names with plain values: in a slice, each value is a mapping with its type as key."""
    return {name: next(iter(value.values())) for name, value in named.items()}
