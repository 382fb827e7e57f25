"""PCI functions with the driver vfio-pci: devices.example.com/vfio-<vendor>-<device>."""

from pathlib import Path

import kubedevices as kd
from kubedevices.errors import NoVfioGroup
from kubedevices.host import pci, vfio
from kubedevices.plugin.scanners import periodic


def find(sys: Path = Path("/sys"), dev: Path = Path("/dev")) -> kd.DeviceTree:
    """Return one device per IOMMU group, because its file gives access to all its functions."""
    tree = kd.DeviceTree()
    groups: dict[str, list[pci.PciDevice]] = {}
    for function in pci.devices(driver="vfio-pci", sysfs_root=sys):
        groups.setdefault(function.iommu_group or function.address, []).append(function)
    for functions in groups.values():
        first = functions[0]
        try:
            specs = vfio.nodes(first.address, sysfs_root=sys, dev_root=dev)
        except NoVfioGroup:
            continue  # the driver vfio-pci does not have all functions of the group yet
        env = {"VFIO_ADDRESSES": ",".join(each.address for each in functions)}
        name = f"vfio-{first.vendor}-{first.device}"
        tree.add(name, kd.Device(first.address, specs=specs, env=env))
    return tree


if __name__ == "__main__":
    kd.run(periodic(15, find), domain="devices.example.com", env_merge="join")
