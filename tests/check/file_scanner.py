"""A scanner whose devices and their health are in a file, which a trigger changes."""

from pathlib import Path

import kubedevices as kd


class FromFile(kd.PolledScanner):
    """Each line of `file` is the name of a device; a name with a `!` is unhealthy.

    With `is_sticky` a device that was bad once stays bad.
    """

    interval = 0.1

    def __init__(self, file: str, is_sticky: str = "") -> None:
        self.file, self.is_sticky = Path(file), bool(is_sticky)
        self.bad: set[str] = set()

    def list_devices(self) -> kd.DeviceTree:
        """Return the devices in the file."""
        lines = self.file.read_text().split()
        bad = {line.rstrip("!") for line in lines if line.endswith("!")}
        self.bad = bad | (self.bad if self.is_sticky else set())
        names = [line.rstrip("!") for line in lines]
        health = {name: "Unhealthy" if name in self.bad else "Healthy" for name in names}
        devices = [
            kd.Device(name, health=kd.Health(health[name]), reason="!" if name in self.bad else "")
            for name in names
        ]
        return kd.DeviceTree({"widget": devices})
