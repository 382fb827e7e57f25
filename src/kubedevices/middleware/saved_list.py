"""Saves the last list of a plugin on disk, so that `hold` can offer the list after a reboot.

One file per resource in `<state-dir>/lists`. A file has what a kubelet gets of each device, and the
options of the plugin: a kubelet asks for the options once, when the resource registers.
"""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kubedevices.allocation import PluginOptions
from kubedevices.device import Device, ForeignDevice
from kubedevices.errors import UsageError
from kubedevices.host import untrusted_files
from kubedevices.resource_name import ResourceName

SIZE_LIMIT = 64 * 2**20
"""Most bytes of a file; a kubelet accepts lists of 16 MiB."""

DIRECTORY = "lists"
_ENDING = ".json"


class SavedList(NamedTuple):
    """The devices of one resource in their order, and which calls the plugin offers."""

    devices: tuple[Device, ...]
    options: PluginOptions = PluginOptions()


def read_saved_lists(state_dir: Path, domain: str) -> tuple[dict[str, SavedList], list[str]]:
    """Return the lists of a domain by device type, and the problems of files. Never raises."""
    found: dict[str, SavedList] = {}
    problems = []
    for path in sorted((state_dir / DIRECTORY).glob(f"{domain}_*{_ENDING}")):
        try:
            data = untrusted_files.read_bytes(path, limit=SIZE_LIMIT)
            document = json.loads(data)
            resource = ResourceName.parse(document["resource"])
            if resource.domain == domain:
                found[resource.device_type] = _saved(document)
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
            UsageError,
        ) as error:
            problems.append(f"{path} cannot be used ({type(error).__name__}: {error})")
    return found, problems


def write_saved_lists(state_dir: Path, domain: str, saved: Mapping[str, SavedList]) -> None:
    """Save lists by device type; raises `OSError`. On return they survive a power cut.

    A list that is on disk already is not written again.
    """
    directory = state_dir / DIRECTORY
    for each in (state_dir, directory):
        each.mkdir(0o750, exist_ok=True)
    for device_type, known in saved.items():
        path = directory / f"{domain}_{device_type}{_ENDING}"
        devices = [*map(_row, known.devices)]
        document = {
            "resource": f"{domain}/{device_type}",
            "options": known.options._asdict() | {"unknown": known.options.unknown.hex()},
            "devices": devices,
        }
        data = json.dumps(document).encode()
        with contextlib.suppress(OSError):
            if untrusted_files.read_bytes(path, limit=SIZE_LIMIT) == data:
                continue
        untrusted_files.remove_leftovers(directory, path.name)
        untrusted_files.replace(path, data)


def _saved(document: Any) -> SavedList:
    devices = tuple(map(_device, document["devices"]))
    given = document["options"]
    options = PluginOptions(
        bool(given["pre_start_required"]),
        bool(given["get_preferred_allocation_available"]),
        bytes.fromhex(given["unknown"]),
    )
    return SavedList(devices, options)


def _row(device: Device) -> dict[str, Any]:
    return {
        "id": device.id,
        "health": str(device.health),
        "numa_nodes": device.numa_nodes and [*device.numa_nodes],
        "unknown": device.unknown.hex(),
        "topology": device.topology.hex(),
    }


def _device(row: Any) -> Device:
    unknown, topology = bytes.fromhex(row["unknown"]), bytes.fromhex(row.get("topology", ""))
    known = {"health": row["health"], "numa_nodes": row["numa_nodes"]}
    return (
        ForeignDevice(row["id"], **known, unknown=unknown, topology=topology)
        if unknown or topology
        else Device(row["id"], **known)
    )
