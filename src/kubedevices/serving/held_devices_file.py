"""Remembers which devices pods of the device plugin API hold while DRA waits. Blocking file access.

After a reboot the kubelet admits such a pod again only if a device plugin lists the pod's devices.
But the kubelet reports these devices only after it has admitted the pod. So this file has the
devices, and the ID of the boot in which it was written.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from kubedevices.dra.names import DeviceKey
from kubedevices.host.state_file import StateFile

FILE_NAME = "held-by-plugin.json"
_SIZE_LIMIT = 2**24
_VERSION = 1


class HeldDevicesFile:
    """The file in a driver's data directory; `boot_id` is the ID of the current boot."""

    def __init__(self, directory: Path, boot_id: str) -> None:
        self._file = StateFile.at(directory / FILE_NAME, limit=_SIZE_LIMIT, version=_VERSION)
        self._boot_id = boot_id

    def read(self) -> tuple[frozenset[DeviceKey], bool]:
        """Return the devices, and whether they are of an earlier boot. No devices if unreadable."""
        nothing = (frozenset[DeviceKey](), False)
        return self._file.read_or(self._parse, nothing)

    def _parse(self, found: Mapping[str, Any]) -> tuple[frozenset[DeviceKey], bool]:
        keys = frozenset((str(kind), str(name)) for kind, name in found["devices"])
        return keys, found["boot_id"] != self._boot_id

    def write(self, keys: Collection[DeviceKey]) -> None:
        """Replace the devices in the file. Raises `OSError`."""
        if not keys:
            self._file.remove()
            return
        # The file is on disk when `write` returns: it must survive a crash of the host.
        self._file.write({"boot_id": self._boot_id, "devices": sorted(keys)})
