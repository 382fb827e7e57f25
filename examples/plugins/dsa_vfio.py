"""Intel DSA devices with the driver vfio-pci, for user space drivers: dsa.intel.com/vfio."""

from pathlib import Path

import kubedevices as kd
from kubedevices.host import pci, vfio
from kubedevices.rules.inject_rule import renumber


class Vfio(kd.PolledScanner, kd.PostAllocator):
    interval = 15

    def __init__(self, sys: Path = Path("/sys"), dev: Path = Path("/dev")) -> None:
        self.sys, self.dev = sys, dev

    def list_devices(self) -> kd.DeviceTree:
        tree = kd.DeviceTree({"vfio": []})
        for function in pci.devices(
            vendor="8086", device=("0b25", "11fb", "1212"), driver="vfio-pci", sysfs_root=self.sys
        ):
            specs = vfio.nodes(function.address, sysfs_root=self.sys, dev_root=self.dev)
            env = {f"VFIO_BDF{function.address}": function.address}
            tree.add("vfio", kd.Device(function.address, specs=specs, env=env))
        return tree

    def post_allocate(self, response: kd.AllocateResponse, request: kd.AllocateRequest) -> None:
        renumber(response, "VFIO_BDF")


if __name__ == "__main__":
    kd.run(Vfio(), domain="dsa.intel.com")
