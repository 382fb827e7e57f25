"""Queues of IBM Z crypto cards (AP bus), a resource per mode: cex.example.com/accel, cca, ep11."""

from pathlib import Path

import kubedevices as kd
from kubedevices.host import sysfs
from kubedevices.plugin.scanners import periodic

MODES = {"A": "accel", "C": "cca", "P": "ep11"}  # the last letter of a type such as CEX8P


def find(sys: Path = Path("/sys"), dev: Path = Path("/dev")) -> kd.DeviceTree:
    """Find every queue; a queue that is configured off or offline is Unhealthy."""
    tree = kd.DeviceTree()
    for card in (sys / "bus/ap/devices").glob("card*"):
        mode = MODES.get((sysfs.read_attribute(card / "type") or " ")[-1])
        if not mode or not (dev / "z90crypt").exists():
            continue
        tree.declare(mode)
        for queue in sorted(card.glob("[0-9a-f][0-9a-f].[0-9a-f]*")):
            states = [sysfs.read_attribute(place / "online") for place in (card, queue)]
            states.append(sysfs.read_attribute(card / "config") or "1")
            health = kd.Health.HEALTHY if set(states) == {"1"} else kd.Health.UNHEALTHY
            env = {"CEX_QUEUES": queue.name}
            device = kd.Device(queue.name, health=health, paths=["/dev/z90crypt"], env=env)
            tree.add(mode, device)
    return tree


if __name__ == "__main__":
    kd.run(periodic(15, find), domain="cex.example.com", env_merge="join")
