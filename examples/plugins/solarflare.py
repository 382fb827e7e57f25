"""Solarflare NICs for OpenOnload: solarflare.com/sfc; a NIC is healthy while its link is up."""

from pathlib import Path

import kubedevices as kd
from kubedevices.host import pci, sysfs
from kubedevices.plugin.scanners import periodic
from kubedevices.rules.health_gate import HealthGate

FILES = ("onload", "onload_epoll", "sfc_char", "sfc_affinity")

gate = HealthGate(fail_after=2, ok_after=3)


def find(sys: Path = Path("/sys"), dev: Path = Path("/dev")) -> kd.DeviceTree:
    """Find the ports; all ports use the same device files of the driver."""
    tree = kd.DeviceTree({"sfc": []})
    files = [f"/dev/{name}" for name in FILES if (dev / name).exists()]
    for port in pci.devices(vendor="1924", device_class="0200", driver="sfc", sysfs_root=sys):
        for interface in sysfs.list_entries(port.directory / "net"):
            is_up = sysfs.read_attribute(interface / "operstate") == "up"
            device = kd.Device(
                port.address,
                health=gate.observe(port.address, is_up),
                paths=files,
                env={"SFC_INTERFACES": interface.name},
                numa_nodes=() if port.numa_node is None else (port.numa_node,),
            )
            tree.add("sfc", device)
    return tree


if __name__ == "__main__":
    kd.run(periodic(5, find), domain="solarflare.com", env_merge="join")
