"""A scanner whose devices and their health are in a file, which a trigger changes."""

from pathlib import Path

import kubedevices as kd


class FromFile(kd.PolledScanner):
    """Each word in `file` is the name of a device; a name with a `!` is unhealthy."""

    interval = 0.1

    def __init__(self, file: str) -> None:
        self.file = Path(file)

    def list_devices(self) -> kd.DeviceTree:
        """Return the devices in the file."""
        return kd.DeviceTree({"widget": [*map(_device, self.file.read_text().split())]})


def _device(word: str) -> kd.Device:
    is_bad = word.endswith("!")
    health = kd.Health("Unhealthy" if is_bad else "Healthy")
    return kd.Device(word.rstrip("!"), health=health, reason="!" if is_bad else "")
