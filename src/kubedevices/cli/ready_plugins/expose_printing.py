"""What `kubedevices expose` prints instead of serving: the answer of `--dry-run`, and profiles."""

import argparse
import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kubedevices.cli.shared.output import (
    Column,
    Row,
    option_lines,
    print_listing,
)
from kubedevices.cli.write.scan import cdi_as_text
from kubedevices.errors import UsageError
from kubedevices.errors.words import did_you_mean
from kubedevices.expose.config import ExposeConfig
from kubedevices.expose.host import HostDevices
from kubedevices.expose.read_profiles import (
    DOMAIN,
    combined_text,
    profile_names,
    read_profile,
)
from kubedevices.expose.recognition import DeviceMemory
from kubedevices.expose.scanner import ExposeScanner, check_dev_root
from kubedevices.expose.tree import expand, survey
from kubedevices.host.terminal import print_text
from kubedevices.plugin.allocate_response import default_response
from kubedevices.plugin.capabilities import UseDefault
from kubedevices.values.allocation import (
    AllocateRequest,
    ContainerAllocateRequest,
    ContainerAllocateResponse,
)
from kubedevices.values.cdi import CdiName, device_name_of, to_dict
from kubedevices.values.device import Device
from kubedevices.values.device_tree import DeviceTree


def print_answer(scanner: ExposeScanner, args: argparse.Namespace) -> None:
    """Scan once, allocate the devices that `args.dry_run` names, and print the answer."""
    tree = scanner.list_devices()
    device_type = _type_of(scanner.served, tree, args.dry_run)
    resource = f"{scanner.config.namespace}/{device_type}"
    ids = [asked.rpartition("/")[2] for asked in args.dry_run]
    devices = {device_id: tree.devices(device_type)[device_id] for device_id in ids}
    answer = asyncio.run(_answer(scanner, device_type, devices, args))
    document = {
        "resource": resource,
        "devices": [spec._asdict() for spec in answer.devices],
        "mounts": [mount._asdict() for mount in answer.mounts],
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
    request = AllocateRequest((ContainerAllocateRequest(tuple(devices)),))
    response = await scanner.abilities_of(device_type).allocate(request)
    if isinstance(response, UseDefault):
        response = default_response(request, devices, env_merge=args.env_merge)
    return response.containers[0]


def _cdi_devices(kind: str, devices: Iterable[Device]) -> dict[str, Any]:
    """Return the CDI devices among `devices`: name to edits, as in a CDI file."""
    by_cdi = [device for device in devices if device.cdi is not None]
    if not by_cdi:
        return {}

    return {str(CdiName.of(kind, device_name_of(each.id))): to_dict(each.cdi) for each in by_cdi}


def _type_of(config: ExposeConfig, tree: DeviceTree, asked: Sequence[str]) -> str:
    """Return the device type that has every device of `asked`; each is an ID, or NAME/ID.

    Raises `UsageError` if no resource, or more than one, has all of them.
    """
    having: dict[str, set[str]] = {}
    for rule in config.resources:
        for device_id in tree.devices(rule.device_type):
            for name in (device_id, f"{rule.name}/{device_id}"):  # an ID contains no slash
                having.setdefault(name, set()).add(rule.name)
    for name in asked:
        if name not in having:
            raise UsageError(f"there is no device {name!r}{did_you_mean(name, having)}")
    fitting = set.intersection(*(having[name] for name in asked))
    rules = [rule for rule in config.resources if rule.name in fitting]
    text = " and ".join(asked)
    if not rules:
        raise UsageError(f"{text} belong to different resources")
    if len(rules) > 1:
        names = ", ".join(rule.name for rule in rules)
        choice = f"{rules[0].name}/{asked[0]}"
        raise UsageError(f"several resources have {text}: {names} (choose one: {choice})")
    return rules[0].device_type


def _rows(document: dict[str, Any]) -> Iterator[Row]:
    yield {"option": "resource", "value": document["resource"]}
    for option, value in option_lines(document):
        yield {"option": option, "value": value}
    for name, edits in document["cdi_devices"].items():
        yield {"option": "cdi", "value": f"{name}: {cdi_as_text(edits)}"}


# ---------------------------------------------------------------- profiles


def print_profile(args: argparse.Namespace) -> None:
    """Print the profiles of `args.profile` as one file, which the user can change."""
    print_text(combined_text(args.profile, args.domain or DOMAIN))


def print_profiles(args: argparse.Namespace) -> None:
    """Print every profile, with the number of its devices on this host."""
    check_dev_root(args.dev_root)
    host = HostDevices(args.dev_root)
    document: list[dict[str, Any]] = [
        {
            "profile": profile.name,
            "resources": [rule.device_type for rule in profile.config.resources],
            "here": len(survey(expand(profile.config, host, {}), host, DeviceMemory())),
            "title": profile.title,
        }
        for profile in map(read_profile, profile_names())
    ]
    rows = [{**each, "resources": ",".join(each["resources"])} for each in document]
    columns = [Column(name) for name in ("profile", "resources", "here", "title")]
    print_listing(rows, columns, args.output, document=document)
