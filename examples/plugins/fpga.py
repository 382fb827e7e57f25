"""FPGAs, a resource per programmed accelerator function: fpga.intel.com/af-<start of its ID>."""

from pathlib import Path

import kubedevices as kd
from kubedevices.host import sysfs
from kubedevices.plugin.scanners import periodic

ANNOTATION = "fpga.intel.com/region"


def find(sys: Path = Path("/sys")) -> kd.DeviceTree:
    """Find every port of every region; the ID of a port without a working function is all `f`."""
    tree = kd.DeviceTree()
    for region in sysfs.list_entries(sys / "class/fpga_region"):
        for port in region.glob("dfl-port.*"):
            afu = sysfs.read_attribute(port / "afu_id")
            if not afu:
                continue
            health = kd.Health.UNHEALTHY if set(afu) == {"f"} else kd.Health.HEALTHY
            tree.add(
                f"af-{afu[:12]}",
                kd.Device(
                    port.name,
                    health=health,
                    paths=[f"/dev/{port.name}"],
                    annotations={ANNOTATION: region.name},
                ),
            )
    return tree


if __name__ == "__main__":
    kd.run(periodic(5, find), domain="fpga.intel.com")
