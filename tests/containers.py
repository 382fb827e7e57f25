"""Helpers for tests with real containers: a small root file system and device files."""

import os
import shutil
import stat
from functools import partial
from pathlib import Path

from kubedevices.host.device_files import read_device_file
from tests.host_needs import openable_devices, require


def make_root_file_system(directory: Path) -> Path:
    """Fill `directory` with a static busybox and the mount points of runtimes; return it."""
    require("static busybox")
    for name in ("bin", "dev", "proc", "sys", "tmp"):
        (directory / name).mkdir(parents=True)
    shutil.copy2(str(shutil.which("busybox")), directory / "bin/busybox")
    (directory / "bin/sh").symlink_to("busybox")
    return directory


def two_devices() -> tuple[str, str]:
    """Return two device files of this host that can be opened and that no container has
    by default.
    """
    require("two device files")
    first, second, *_ = openable_devices()
    return first, second


def make_node_like(path: str, copy: Path) -> None:
    """Create a device file with type and numbers of `path`."""
    device = read_device_file(path)
    kind = stat.S_IFCHR if device.type == "c" else stat.S_IFBLK
    os.mknod(copy, 0o666 | kind, os.makedev(device.major, device.minor))


def try_to_open(*paths: str) -> list[str]:
    """Return a command that prints for each path whether it can be opened."""
    loop = 'for path; do if (: <"$path"); then echo "opened $path"; else echo "refused $path"; fi'
    return ["/bin/sh", "-c", f"{loop}; done", "sh", *paths]


look_at_node = partial(read_device_file, follow=False)
"""Container engines read the host paths of CDI files this way."""
