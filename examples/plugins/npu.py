"""Intel NPUs, four containers per NPU: npu.intel.com/accel."""

from pathlib import Path

import kubedevices as kd
from kubedevices.host import sysfs
from kubedevices.plugin.scanners import periodic
from kubedevices.rules.replicas import replicate

NPUS = {"0x7d1d", "0xad1d", "0x643e", "0xb03e"}  # Meteor, Arrow, Lunar and Panther Lake


def find(sys: Path = Path("/sys")) -> kd.DeviceTree:
    tree = kd.DeviceTree({"accel": []})
    for entry in sysfs.list_entries(sys / "class/accel"):
        vendor, device = (
            sysfs.read_attribute(entry / f"device/{each}") for each in ("vendor", "device")
        )
        if vendor == "0x8086" and device in NPUS:
            tree.add("accel", kd.Device(entry.name, paths=[f"/dev/accel/{entry.name}"]))
    return replicate(tree, 4)


if __name__ == "__main__":
    kd.run(periodic(5, find), domain="npu.intel.com")
