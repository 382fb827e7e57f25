"""Saves the last list of a plugin on disk, so that `hold` can offer the list after a reboot.

One file per resource in `<state-dir>/lists`. A file has what a kubelet gets of each device, and the
options of the plugin: a kubelet asks for the options once, when the resource registers.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kubedevices.allocation import PluginOptions
from kubedevices.device import Device, ForeignDevice
from kubedevices.errors import CannotRead
from kubedevices.host.shared_directory import SharedDirectory
from kubedevices.host.state_file import StateFile
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
    directory = SharedDirectory(state_dir, DIRECTORY)
    try:
        names = directory.names(re.compile(rf"{re.escape(domain)}_.*{_ENDING}"))
    except OSError as error:
        return {}, [f"cannot read {directory.path}: {error.strerror}"]
    for name in names:
        try:
            resource, saved = StateFile(directory, name, limit=SIZE_LIMIT).read(_parse)
            if resource.domain == domain:
                found[resource.device_type] = saved
        except FileNotFoundError:
            continue
        except CannotRead as error:
            problems.append(str(error))
    return found, problems


def write_saved_lists(state_dir: Path, domain: str, saved: Mapping[str, SavedList]) -> None:
    """Save lists by device type; raises `OSError`. On return they survive a power cut.

    A list that is on disk already is not written again.
    """
    directory = SharedDirectory(state_dir, DIRECTORY)
    for device_type, known in saved.items():
        devices = [*map(_row, known.devices)]
        document = {
            "resource": f"{domain}/{device_type}",
            "options": known.options._asdict() | {"unknown": known.options.unknown.hex()},
            "devices": devices,
        }
        name = f"{domain}_{device_type}{_ENDING}"
        StateFile(directory, name, limit=SIZE_LIMIT).write(document)


def _parse(document: Any) -> tuple[ResourceName, SavedList]:
    resource = ResourceName.parse(document["resource"])
    devices = tuple(map(_device, document["devices"]))
    given = document["options"]
    options = PluginOptions(
        bool(given["pre_start_required"]),
        bool(given["get_preferred_allocation_available"]),
        bytes.fromhex(given["unknown"]),
    )
    return resource, SavedList(devices, options)


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
