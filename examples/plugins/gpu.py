"""Intel GPUs: gpu.intel.com/i915 and xe, two containers per GPU; monitoring has all GPUs."""

from pathlib import Path

import kubedevices as kd
from kubedevices.host import device_files, pci
from kubedevices.plugin.allocation_policy import PolicyAllocator
from kubedevices.rules.replicas import device_of, replicate


class Gpus(kd.PolledScanner, PolicyAllocator):
    allocation_policy = "balanced"

    def __init__(self, sys: Path = Path("/sys"), dev: Path = Path("/dev")) -> None:
        self.sys, self.dev = sys, dev

    def physical_device(self, device_id: str) -> str:
        return device_of(device_id)

    def list_devices(self) -> kd.DeviceTree:
        tree, every = kd.DeviceTree(), list[str]()
        for gpu in pci.devices(vendor="8086", driver=("i915", "xe"), sysfs_root=self.sys):
            files = device_files.device_files_below(gpu.directory, dev_root=self.dev)
            cards = [Path(file).name for file in files if "/dri/card" in file]
            if gpu.num_vfs or not cards or not gpu.driver:
                continue  # a divided GPU is not a device: its virtual functions are
            links = sorted(self.dev.glob(f"dri/by-path/pci-{gpu.address}-*"))
            places = [f"/dev/dri/by-path/{link.name}" for link in links]
            mounts = [kd.Mount(place, place, True) for place in places]
            tree.add(gpu.driver, kd.Device(cards[0], paths=files, mounts=mounts))
            every += files
        shared = replicate(tree, 2)
        if every:
            shared.add("monitoring", kd.Device("all", paths=every, numa_nodes=()))
        return shared


if __name__ == "__main__":
    kd.run(Gpus(), domain="gpu.intel.com")
