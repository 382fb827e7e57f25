"""What `kubedevices expose --dry-run` prints: what a container would get for some devices."""

import argparse
import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kubedevices.allocation import (
    AllocateRequest,
    ContainerAllocateRequest,
    ContainerAllocateResponse,
)
from kubedevices.builtin.expose import ExposeScanner
from kubedevices.cli.output import Column, Row, print_listing
from kubedevices.cli.scan import cdi_as_text, path_as_text
from kubedevices.device import Device
from kubedevices.device_tree import DeviceTree
from kubedevices.errors import UsageError
from kubedevices.plugin.allocate_response import default_response
from kubedevices.plugin.capabilities import UseDefault
from kubedevices.words import did_you_mean


def print_answer(scanner: ExposeScanner, args: argparse.Namespace) -> None:
    """Look once, allocate the devices that `args.dry_run` names, and print the answer."""
    tree = scanner.list_devices()
    device_type = _type_of(tree, args.dry_run)
    resource = f"{scanner.config.namespace}/{device_type}"
    devices = {device_id: tree.devices(device_type)[device_id] for device_id in args.dry_run}
    answer = asyncio.run(_answer(scanner, device_type, devices, args))
    document = {
        "resource": resource,
        "devices": [
            {
                "host_path": spec.host_path,
                "container_path": spec.container_path,
                "permissions": spec.permissions,
            }
            for spec in answer.devices
        ],
        "mounts": [
            {
                "host_path": mount.host_path,
                "container_path": mount.container_path,
                "read_only": mount.read_only,
            }
            for mount in answer.mounts
        ],
        "env": dict(answer.env),
        "cdi_devices": _cdi_devices(resource, devices.values()),
    }
    columns = (Column("option"), Column("value"))
    print_listing([*_rows(document)], columns, args.output, document=document)


async def _answer(
    scanner: ExposeScanner,
    device_type: str,
    devices: Mapping[str, Device],
    args: argparse.Namespace,
) -> ContainerAllocateResponse:
    request = AllocateRequest((ContainerAllocateRequest(tuple(args.dry_run)),))
    response = await scanner.abilities_of(device_type).allocate(request)
    if isinstance(response, UseDefault):
        response = default_response(request, devices, env_merge=args.env_merge)
    return response.containers[0]


def _cdi_devices(kind: str, devices: Iterable[Device]) -> dict[str, Any]:
    """Return the CDI devices among `devices` by name, each with its edits as in a CDI file."""
    by_cdi = [device for device in devices if device.cdi is not None]
    if not by_cdi:
        return {}
    from kubedevices.cdi import CdiName, device_name_of, to_dict

    return {str(CdiName.of(kind, device_name_of(each.id))): to_dict(each.cdi) for each in by_cdi}


def _type_of(tree: DeviceTree, ids: Sequence[str]) -> str:
    """Return the resource that has every device of `ids`."""
    known = [device_id for name in tree for device_id in tree.devices(name)]
    for device_id in ids:
        if device_id not in known:
            raise UsageError(f"there is no device {device_id!r}{did_you_mean(device_id, known)}")
    names = [name for name in tree if set(ids) <= tree.devices(name).keys()]
    if not names:
        raise UsageError(f"{' and '.join(ids)} are not of one resource")
    return names[0]


def _rows(document: dict[str, Any]) -> Iterator[Row]:
    yield {"option": "resource", "value": document["resource"]}
    for name, value in document["env"].items():
        yield {"option": "env", "value": f"{name}={value}"}
    for device in document["devices"]:
        path = path_as_text(device["host_path"], device["container_path"])
        yield {"option": "device", "value": f"{path} ({device['permissions']})"}
    for mount in document["mounts"]:
        path = path_as_text(mount["host_path"], mount["container_path"])
        yield {"option": "mount", "value": f"{path} ({'ro' if mount['read_only'] else 'rw'})"}
    for name, edits in document["cdi_devices"].items():
        yield {"option": "cdi", "value": f"{name}: {cdi_as_text(edits)}"}
