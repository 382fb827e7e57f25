"""A small configuration for runc, to which `oci.apply_to_oci` adds container options."""

from collections.abc import Sequence
from typing import Any

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CAPABILITIES = ("CAP_AUDIT_WRITE", "CAP_KILL", "CAP_NET_BIND_SERVICE")
_NAMESPACES = ("pid", "network", "ipc", "uts", "mount")
_QUIET = ("nosuid", "noexec", "nodev")
_MASKED = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/firmware",
)
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


def minimal_config(args: Sequence[str]) -> dict[str, Any]:
    """Return a complete configuration for runc: isolated, unprivileged, no device allowed.

    It is like the output of `runc spec`, but without a terminal, without limits (to raise limits
    needs a capability that root does not always have) and without a group for terminals (which
    needs a mapped ID). runc itself adds the devices of every container, such as /dev/null.
    """
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": list(args),
            "env": [PATH],
            "cwd": "/",
            "capabilities": {
                group: list(_CAPABILITIES) for group in ("bounding", "effective", "permitted")
            },
            "noNewPrivileges": True,
        },
        "root": {"path": "rootfs", "readonly": True},
        "hostname": "container",
        "mounts": [
            _mount("/proc", "proc", "proc"),
            _mount("/dev", "tmpfs", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
            _mount(
                *("/dev/pts", "devpts", "devpts", "nosuid", "noexec"),
                *("newinstance", "ptmxmode=0666", "mode=0620"),
            ),
            _mount("/dev/shm", "tmpfs", "shm", *_QUIET, "mode=1777", "size=65536k"),
            _mount("/dev/mqueue", "mqueue", "mqueue", *_QUIET),
            _mount("/sys", "sysfs", "sysfs", *_QUIET, "ro"),
        ],
        "linux": {
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
            "namespaces": [{"type": name} for name in _NAMESPACES],
            "maskedPaths": list(_MASKED),
            "readonlyPaths": list(_READ_ONLY),
        },
    }


def _mount(destination: str, kind: str, source: str, *options: str) -> dict[str, Any]:
    mount: dict[str, Any] = {"destination": destination, "type": kind, "source": source}
    return mount | ({"options": list(options)} if options else {})
