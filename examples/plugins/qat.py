"""Virtual functions of Intel QuickAssist, a resource per service: qat.intel.com/cy, dc, generic."""

from pathlib import Path

import kubedevices as kd
from kubedevices.host import pci, sysfs, vfio
from kubedevices.rules.health_gate import HealthGate
from kubedevices.rules.inject_rule import renumber

DRIVERS = ("4xxx", "420xx", "c6xx")
TYPES = {"sym;asym": "cy", "asym;sym": "cy", "dc": "dc"}


class Qat(kd.PolledScanner, kd.PostAllocator):
    def __init__(self, sys: Path = Path("/sys"), dev: Path = Path("/dev")) -> None:
        self.sys, self.dev, self.gate = sys, dev, HealthGate(fail_after=2)

    def list_devices(self) -> kd.DeviceTree:
        tree = kd.DeviceTree()
        for pf in pci.devices(vendor="8086", driver=DRIVERS, sysfs_root=self.sys):
            services = sysfs.read_attribute(pf.directory / "qat/cfg_services") or ""
            beats = self.sys / f"kernel/debug/qat_{pf.driver}_{pf.address}/heartbeat/status"
            health = self.gate.observe(pf.address, sysfs.read_attribute(beats) in (None, "0"))
            for address in pf.virtual_functions:
                vf = pci.find(address, sysfs_root=self.sys)
                if vf and vf.driver == "vfio-pci":
                    specs = vfio.nodes(address, sysfs_root=self.sys, dev_root=self.dev)
                    env = {f"QAT{address}": address}
                    device = kd.Device(address, health=health, specs=specs, env=env)
                    tree.add(TYPES.get(services, "generic"), device)
        return tree

    def post_allocate(self, response: kd.AllocateResponse, request: kd.AllocateRequest) -> None:
        renumber(response, "QAT")


if __name__ == "__main__":
    kd.run(Qat(), domain="qat.intel.com")
