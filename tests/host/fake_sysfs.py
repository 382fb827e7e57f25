"""A /sys made of files, and device files that need no mknod. For tests of NUMA look-ups."""

import os
from pathlib import Path

from kubedevices.host.sysfs import DeviceNumber, NumaReader


class FakeSysfs:
    """Directories below `root`/sys and `root`/dev, and the numbers that `stat` would find."""

    def __init__(self, root: Path) -> None:
        self.sys, self.dev = root / "sys", root / "dev"
        self.numbers: dict[Path, DeviceNumber] = {}
        (self.sys / "devices").mkdir(parents=True)
        self.dev.mkdir()

    def directory(self, name: str, numa: str | None = None, cpus: str | None = None) -> Path:
        """Make `name` below /sys/devices, with the attributes that are given."""
        directory = self.sys / "devices" / name
        directory.mkdir(parents=True, exist_ok=True)
        for attribute, text in (("numa_node", numa), ("local_cpulist", cpus)):
            if text is not None:
                (directory / attribute).write_text(text + "\n")
        return directory

    def device_file(self, name: str, directory: Path, *, kind: str = "char") -> str:
        """Give `directory` a device file; return its path as a plugin would say it."""
        number = DeviceNumber(kind, 240, len(self.numbers) + 1)
        link = self.sys / "dev" / kind / f"{number.major}:{number.minor}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(directory, link.parent))
        self.numbers[self.dev / name] = number
        return f"/dev/{name}"

    def online(self, text: str) -> None:
        """Say which NUMA nodes this machine has."""
        self.directory("system/node").joinpath("online").write_text(text + "\n")

    def stat(self, path: Path) -> DeviceNumber:
        """Stand in for `sysfs.device_number`."""
        if path not in self.numbers:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return self.numbers[path]

    def reader(self) -> NumaReader:
        """Return a reader that sees only this tree."""
        return NumaReader(
            sysfs_root=self.sys,
            dev_root=self.dev,
            stat_device=self.stat,
        )
