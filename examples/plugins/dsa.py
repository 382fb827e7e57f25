"""Work queues of Intel DSA and IAA, a resource per type and mode: dsa.intel.com/wq-user-shared."""

from pathlib import Path

import kubedevices as kd
from kubedevices.host import device_files, sysfs
from kubedevices.plugin.scanners import periodic
from kubedevices.rules.replicas import replicate


def find(sys: Path = Path("/sys"), dev: Path = Path("/dev"), kind: str = "dsa") -> kd.DeviceTree:
    """Find the queues of one kind: `dsa`, or `iax`, the kernel's name of IAA."""
    tree = kd.DeviceTree()
    for queue in sysfs.list_entries(sys / "bus/dsa/devices"):
        path = f"/dev/{kind}/{queue.name}"
        there = queue.name.startswith("wq") and (dev / kind / queue.name).exists()
        if not there or sysfs.read_attribute(queue / "state") != "enabled":
            continue
        wq_type, mode = (sysfs.read_attribute(queue / each) for each in ("type", "mode"))
        link = device_files.char_link(path, dev_root=dev)  # libraries open /dev/char/MAJOR:MINOR
        paths = [path, link] if link else [path]
        tree.add(
            f"wq-{wq_type}-{mode}", kd.Device(queue.name, paths=paths, attributes={"mode": mode})
        )
    return replicate(tree, lambda device: 10 if device.attributes["mode"] == "shared" else 1)


if __name__ == "__main__":
    kd.run(periodic(5, find), domain="dsa.intel.com")
