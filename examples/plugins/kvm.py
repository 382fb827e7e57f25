"""Files for virtual machines in containers: devices.example.com/kvm, tun and vhost-net."""

from pathlib import Path

import kubedevices as kd
from kubedevices.plugin.scanners import periodic
from kubedevices.rules.replicas import replicate

FILES = {"kvm": "kvm", "tun": "net/tun", "vhost-net": "vhost-net"}


def find(dev: Path = Path("/dev")) -> kd.DeviceTree:
    """Find the files that exist; a kernel module creates its file when it is loaded."""
    tree = kd.DeviceTree(dict.fromkeys(FILES, ()))
    for name, file in FILES.items():
        if (dev / file).exists():
            tree.add(name, kd.Device(name, paths=[f"/dev/{file}"], numa_nodes=()))
    return replicate(tree, 100)


if __name__ == "__main__":
    kd.run(periodic(5, find), domain="devices.example.com")
