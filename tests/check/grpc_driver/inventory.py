"""The devices of this node: read from a file again and again, as others read /sys.

The file has the names of the devices. `!` behind a name means broken, `*` means that several claims
may share the device.
"""

import threading
import time
import zlib
from pathlib import Path
from typing import Any, NamedTuple

USUAL = "gpu-0 gpu-1 gpu-2 share-0*"
_PERIOD = 0.2


class Device(NamedTuple):
    """One device."""

    name: str
    is_broken: bool = False
    is_shared: bool = False

    def entry(self, driver: str) -> dict[str, Any]:
        """Return the device as in a ResourceSlice."""
        bus = zlib.crc32(self.name.encode()) % 256
        made: dict[str, Any] = {
            "name": self.name,
            "attributes": {
                "kind": {"string": "share" if self.is_shared else "whole"},
                "resource.kubernetes.io/numaNode": {"int": bus % 2},
                "resource.kubernetes.io/pciBusID": {"string": f"0000:{bus:02x}:00.0"},
                "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{bus:02x}"},
            },
            "capacity": {"memory": {"value": "8Gi"}},
        }
        if self.is_shared:
            made["allowMultipleAllocations"] = True
            made["capacity"] = {"slots": {"value": "64", "requestPolicy": {"default": "1"}}}
        if self.is_broken:
            made["taints"] = [{"key": f"{driver}/broken", "effect": "NoSchedule"}]
        return made


def parse(text: str) -> dict[str, Device]:
    """Return the devices by name, in the order of their names: that of the file means nothing."""
    found = {}
    for word in sorted(text.split()):
        name = word.rstrip("!*")
        found[name] = Device(name, "!" in word, "*" in word)
    return found


class Inventory:
    """Scans, and calls `on_change` functions in its own thread when something has changed."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self.on_change: list[Any] = []
        self.scanned_at = time.time()
        self.devices = self.scan()

    def scan(self) -> dict[str, Device]:
        """Return the devices of this moment, by name. A file that is away has the last devices."""
        try:
            text = self._file.read_text() if self._file else USUAL
        except FileNotFoundError:
            return getattr(self, "devices", {})
        self.scanned_at = time.time()
        return parse(text)

    def start(self) -> None:
        """Scan from now on."""
        threading.Thread(target=self._keep_scanning, name="scan", daemon=True).start()

    def _keep_scanning(self) -> None:
        while True:
            found = self.scan()
            if found != self.devices:
                self.devices = found
                for each in self.on_change:
                    each()
            time.sleep(_PERIOD)
