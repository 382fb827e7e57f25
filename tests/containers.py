"""Helpers for tests with real containers: a small root file system, device files, and skips."""

import os
import shutil
import stat
import struct
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubedevices.host.device_files import read_device_file

INSTALL = "install the Debian packages with `make test-deps`"
_CAP_SYS_ADMIN = 1 << 21
_CANDIDATES = (
    "/dev/fuse",
    "/dev/kvm",
    "/dev/loop-control",
    "/dev/hwrng",
    "/dev/net/tun",
    "/dev/loop0",
    "/dev/tty1",
)
_INTERPRETER = 3  # PT_INTERP: the program asks for a dynamic loader


def need(condition: object, what: str, how: str = INSTALL) -> None:
    """Skip the test with a message; in CI fail instead, because a skip would hide a
    broken setup.
    """
    if condition:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing: {how}")
    pytest.skip(f"{what} is missing: {how}")


def need_root_and(*programs: str) -> None:
    """Skip the test without root or without the programs that start containers."""
    need(os.geteuid() == 0 and _may_mount(), "root that may mount", "run the tests as root")
    for program in programs:
        need(shutil.which(program), program)


def make_root_file_system(directory: Path) -> Path:
    """Fill `directory` with a static busybox and the mount points of runtimes; return it."""
    busybox = shutil.which("busybox")
    need(busybox and _is_static(Path(busybox)), "a static busybox")
    for name in ("bin", "dev", "proc", "sys", "tmp"):
        (directory / name).mkdir(parents=True)
    shutil.copy2(str(busybox), directory / "bin/busybox")
    (directory / "bin/sh").symlink_to("busybox")
    return directory


def two_devices() -> tuple[str, str]:
    """Return two device files of this host that can be opened and that no container has
    by default.
    """
    found = [path for path in _CANDIDATES if _can_open(path)]
    need(len(found) >= 2, "a second device file", f"two of {', '.join(_CANDIDATES)} must open")
    return found[0], found[1]


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


def _may_mount() -> bool:
    """Whether root has CAP_SYS_ADMIN, which root in an unprivileged container does not have."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) & _CAP_SYS_ADMIN)


def _can_open(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def _is_static(program: Path) -> bool:
    header: Any = struct.unpack_from("<16sHHIQQQIHHH", data := program.read_bytes())
    offset, size, count = header[5], header[9], header[10]
    kinds = (struct.unpack_from("<I", data, offset + i * size)[0] for i in range(count))
    return _INTERPRETER not in kinds
