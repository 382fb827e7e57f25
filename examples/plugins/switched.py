"""Accelerators behind PCI switches: preferred neighbours, a reset at each start, firmware."""

from collections import Counter
from pathlib import Path

import kubedevices as kd


class SwitchedAccelerators(kd.PolledScanner, kd.PreferredAllocator, kd.ContainerPreStarter):
    def __init__(self, sysfs_root: Path = Path("/sys"), dev_root: Path = Path("/dev")) -> None:
        self.accel, self.dev = Path(sysfs_root) / "class/accel", Path(dev_root)

    def list_devices(self) -> kd.DeviceTree:
        names = [each.name for each in sorted(self.accel.glob("accel[0-9]*"))]
        mounts = [kd.Mount("/lib/firmware/example", "/lib/firmware/example", read_only=True)]
        found = [kd.Device(n, paths=[self.dev / "accel" / n], mounts=mounts) for n in names]
        return kd.DeviceTree({"accel": found})

    def get_preferred_allocation(self, request):  # type: ignore[no-untyped-def]
        return kd.PreferredAllocationResponse(tuple(map(self.neighbours, request.containers)))

    def neighbours(self, asked: kd.ContainerPreferredRequest) -> list[str]:
        chosen, free = [*asked.must_include], {*asked.available} - {*asked.must_include}
        while free and (missing := asked.size - len(chosen)) > 0:
            used, sizes = {*map(self.switch, chosen)}, Counter(map(self.switch, free))
            ranks = {}  # first a used switch, then the smallest large enough, then the largest
            for name in free:
                size = sizes[self.switch(name)]
                fit = (False, size) if size >= missing else (True, -size)
                ranks[name] = (self.switch(name) not in used, *fit, name)
            chosen.append(min(free, key=ranks.__getitem__))
            free.remove(chosen[-1])
        return chosen

    def switch(self, name: str) -> Path:
        return (self.accel / name / "device").resolve().parent.parent  # above the port

    def pre_start_container(self, request: kd.PreStartContainerRequest) -> None:
        for name in request.device_ids:
            (self.accel / name / "device/reset").write_text("1")
