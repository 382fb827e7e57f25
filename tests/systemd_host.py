"""A separate systemd that runs only the units of a test, on the files of this host.

It is process 1 of a process namespace that ends with the test. The host's files are read-only,
/run, /tmp and /var have only the checkout of these tests. Only systemd's cgroups are writable.
"""

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.host_needs import require

SYSTEMD = Path("/lib/systemd/systemd")
CGROUPS = Path("/sys/fs/cgroup/systemd")
CHECKOUT = Path(__file__).parents[1]
TARGETS = ("sysinit", "basic", "local-fs", "shutdown", "umount")
PREPARE = """\
set -e
mount --make-rprivate /
mount -t proc proc /proc
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mount -t tmpfs tmpfs /run
mkdir /run/test /run/checkout
mount --bind "$1" /run/test
mount --bind "$3" /run/checkout
mount -o remount,bind,ro /
for directory in /tmp /var /sys/fs/cgroup; do mount -t tmpfs tmpfs "$directory"; done
case "$3" in /tmp/*|/var/*) mkdir -p "$3"; mount --bind /run/checkout "$3";; esac
mkdir -p /var/tmp /var/lib/kubelet/device-plugins /sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin SYSTEMD_UNIT_PATH=/run/test/units \\
  SYSTEMD_GENERATOR_PATH=/run/none "$2" --log-target=null --default-standard-output=null
"""
NAMESPACES = ("--mount", "--pid", "--fork", "--uts", "--ipc", "--net", "--cgroup", "--kill-child")
DEADLINE = 60


@contextlib.contextmanager
def systemd(units: Mapping[str, str]) -> Iterator[Path]:
    """Run all `units`; give the directory that the units see as /run/test."""
    require("mount", "systemd", "cgroups of systemd")
    group = Path(tempfile.mkdtemp(prefix="kd-test-", dir=CGROUPS))
    with tempfile.TemporaryDirectory(prefix="kd-systemd-", dir="/tmp") as name:
        directory = Path(name)
        _write_units(directory / "units", units)
        join = f'echo $$ > {group}/cgroup.procs; exec "$@"'
        script = ("sh", "-c", PREPARE, "prepare", name, str(SYSTEMD), str(CHECKOUT))
        process = subprocess.Popen(
            ["sh", "-c", join, "join", "unshare", *NAMESPACES, *script],
            stdin=subprocess.DEVNULL,
        )
        try:
            yield directory
        finally:
            process.kill()  # this ends process 1 of the namespace, too
            process.wait(DEADLINE)
            _remove(group)


def _write_units(directory: Path, units: Mapping[str, str]) -> None:
    directory.mkdir()
    for target in TARGETS:
        (directory / f"{target}.target").write_text("[Unit]\nDefaultDependencies=no\n")
    wanted = f"[Unit]\nWants={' '.join(units)}\nAllowIsolate=yes\n"
    for unit, text in {"default.target": wanted, **units}.items():
        (directory / unit).write_text(text)


def _remove(group: Path) -> None:
    """Remove the cgroups as soon as the kernel has removed the last process."""
    deadline = time.monotonic() + DEADLINE
    while group.exists():
        for directory, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                Path(directory).rmdir()
        assert time.monotonic() < deadline, f"{group} is not empty"
        time.sleep(0.02)
