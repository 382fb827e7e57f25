"""The last list of a plugin on disk, offered after a reboot before the plugin is back: `hold`.

One file per resource in `<state-dir>/lists`. What a kubelet is told of a device is all that is
kept, with the options of the plugin: a kubelet asks for these once, when the resource registers.
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
"""Bytes of a file; a kubelet takes lists of 16 MiB."""

DIRECTORY = "lists"
_ENDING = ".json"


class KeptList(NamedTuple):
    """The devices of one resource in their order, and which calls the plugin offers."""

    devices: tuple[Device, ...]
    options: PluginOptions = PluginOptions()


def read_kept_lists(state_dir: Path, domain: str) -> tuple[dict[str, KeptList], list[str]]:
    """Return the lists of a domain by device type, and what is wrong with files. Never raises."""
    found: dict[str, KeptList] = {}
    problems = []
    for path in sorted((state_dir / DIRECTORY).glob(f"{domain}_*{_ENDING}")):
        try:
            data = untrusted_files.read_bytes(path, limit=SIZE_LIMIT)
            document = json.loads(data)
            resource = ResourceName.parse(document["resource"])
            if resource.domain == domain:
                found[resource.device_type] = _kept(document)
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


def write_kept_lists(state_dir: Path, domain: str, kept: Mapping[str, KeptList]) -> None:
    """Keep lists by device type; raises `OSError`. Returns when they would survive a power cut.

    A list that is on disk already is not written again.
    """
    directory = state_dir / DIRECTORY
    for each in (state_dir, directory):
        each.mkdir(0o750, exist_ok=True)
    for device_type, known in kept.items():
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


def _kept(document: Any) -> KeptList:
    devices = tuple(map(_device, document["devices"]))
    said = document["options"]
    options = PluginOptions(
        bool(said["pre_start_required"]),
        bool(said["get_preferred_allocation_available"]),
        bytes.fromhex(said["unknown"]),
    )
    return KeptList(devices, options)


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
