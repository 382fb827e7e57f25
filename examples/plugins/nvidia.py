"""NVIDIA GPUs by device files and procfs, without NVIDIA's libraries: nvidia.com/gpu."""

import re
from pathlib import Path

import kubedevices as kd
from kubedevices.host import pci, sysfs
from kubedevices.plugin.scanners import periodic

COMMON = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")


def find(
    proc: Path = Path("/proc"), sys: Path = Path("/sys"), dev: Path = Path("/dev")
) -> kd.DeviceTree:
    """Find every GPU that the driver lists and that has a device file."""
    tree = kd.DeviceTree({"gpu": []})
    common = [f"/dev/{name}" for name in COMMON if (dev / name).exists()]
    for entry in sysfs.list_entries(proc / "driver/nvidia/gpus"):
        text = sysfs.read_attribute(entry / "information") or ""
        said = dict(re.findall(r"^(.+?):\s+(.+?)\s*$", text, re.MULTILINE))
        minor, uuid = said.get("Device Minor", ""), said.get("GPU UUID", entry.name)
        if not (dev / f"nvidia{minor}").exists():
            continue
        function = pci.find(entry.name, sysfs_root=sys)
        node = function.numa_node if function else None
        device = kd.Device(
            uuid,
            paths=[f"/dev/nvidia{minor}", *common],
            env={"NVIDIA_VISIBLE_DEVICES": uuid},
            numa_nodes=() if node is None else (node,),
        )
        tree.add("gpu", device)
    return tree


if __name__ == "__main__":
    kd.run(periodic(5, find), domain="nvidia.com", env_merge="join")
