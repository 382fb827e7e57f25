"""`kubedevices scan --mode dra`: the ResourceSlices that a driver would publish. No cluster."""

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from kubedevices.cli.output import Column, Row, print_listing
from kubedevices.device_tree import DeviceTree
from kubedevices.dra.names import check_driver_name
from kubedevices.dra.options import DraSettings
from kubedevices.dra.reconcile import Pool, decide
from kubedevices.dra.slices import describe_refused, offer_of
from kubedevices.dra.tree_lookup import TreeLookup
from kubedevices.errors import UsageError

_COLUMNS = (
    Column("slice"),
    Column("name", "DEVICE"),
    Column("attributes"),
    Column("capacity"),
    Column("taints"),
)


def print_slices(tree: DeviceTree, domain: str | None, args: argparse.Namespace) -> int:
    """Print what is offered of `tree`; return 1 if a device is not, because no server takes it."""
    if domain is None:
        raise UsageError("--mode dra needs --domain, which is the name of the driver")
    driver = check_driver_name(domain)
    node = DraSettings(node_name=args.kube_node or "").node_name
    offer = offer_of(TreeLookup(dev_root=args.dev_root).complete(tree), driver)
    slices = decide((), offer.slices, Pool(driver, node)).create
    print_listing(
        list(_rows(slices)),
        list(_COLUMNS),
        args.output,
        document={"apiVersion": "v1", "kind": "List", "items": list(slices)},
        empty="one empty slice: the driver has no devices",
    )
    for line in describe_refused(offer.refused):
        print(f"kubedevices: {line}", file=sys.stderr)
    return 1 if offer.refused else 0


def _rows(slices: tuple[dict[str, Any], ...]) -> Iterator[Row]:
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
    """Return names with their values, which have their types around them in a slice."""
    return {name: next(iter(value.values())) for name, value in named.items()}
