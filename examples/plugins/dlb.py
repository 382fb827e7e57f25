"""Intel Dynamic Load Balancers: dlb.intel.com/pf (undivided devices), vf (virtual functions)."""

from pathlib import Path

import kubedevices as kd
from kubedevices.host import sysfs
from kubedevices.plugin.scanners import periodic

TYPES = {"0": "pf", None: "vf"}  # by sriov_numvfs; a virtual function has no such file


def find(sys: Path = Path("/sys"), dev: Path = Path("/dev")) -> kd.DeviceTree:
    tree = kd.DeviceTree({"pf": [], "vf": []})
    for file in dev.glob("dlb[0-9]*"):
        vfs = sysfs.read_attribute(sys / "class/dlb2" / file.name / "device/sriov_numvfs")
        if vfs in TYPES:  # a divided physical function is not a device: its virtual functions are
            tree.add(TYPES[vfs], kd.Device(file.name, paths=[f"/dev/{file.name}"]))
    return tree


if __name__ == "__main__":
    kd.run(periodic(5, find), domain="dlb.intel.com")
