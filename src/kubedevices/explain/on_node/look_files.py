"""Looks at device files on the host and inside containers. Blocking file access; opens no device.

`dev_root`, `proc_root` and `sysfs_root` are the paths at which this process sees the host's /dev,
/proc and /sys.
"""

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from kubedevices.errors import NotADeviceFile
from kubedevices.explain.on_node.facts import ContainerFile, FileFacts, ProcessFacts, Selinux
from kubedevices.explain.on_node.look_processes import PROC_ROOT, described, processes, read_text
from kubedevices.host.device_files import char_link, place_of
from kubedevices.host.sysfs import DEV_ROOT, SYSFS_ROOT

_CAP_DAC_OVERRIDE = 1 << 1
_KINDS = {
    stat.S_IFCHR: "c",
    stat.S_IFBLK: "b",
    stat.S_IFIFO: "p",
    stat.S_IFDIR: "directory",
    stat.S_IFREG: "file",
    stat.S_IFSOCK: "socket",
}


def look_at_file(path: str, *, dev_root: Path = DEV_ROOT) -> FileFacts:
    """Return the file that the host has at `path`; links are followed."""
    place = place_of(path, dev_root=dev_root)
    try:
        status = place.stat()
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        reason = "" if is_missing else (error.strerror or str(error)).lower()
        return FileFacts(path, problem=reason)
    try:
        link = char_link(path, dev_root=dev_root) or ""
    except NotADeviceFile:
        link = ""
    try:
        label = os.getxattr(place, "security.selinux").decode().rstrip("\0")
    except OSError:
        label = ""
    return FileFacts(path, *_node(status), link, label)


def _node(status: os.stat_result) -> tuple[str, int, int, int, int, int]:
    """Return kind, major, minor, mode, user and group of a file."""
    return (
        _KINDS.get(stat.S_IFMT(status.st_mode), "file"),
        os.major(status.st_rdev),
        os.minor(status.st_rdev),
        stat.S_IMODE(status.st_mode),
        status.st_uid,
        status.st_gid,
    )


def look_at_selinux(sysfs_root: Path = SYSFS_ROOT) -> Selinux:
    """Return whether SELinux is enforced here."""
    place = sysfs_root / "fs" / "selinux"
    use_devices = read_text(place / "booleans" / "container_use_devices")
    return Selinux(
        is_enforcing=(read_text(place / "enforce") or "").strip() == "1",
        use_devices=None if use_devices is None else use_devices.split()[:1] == ["1"],
    )


# ---------------------------------------------------------------- containers


def processes_of_pods(
    pod_uids: Iterable[str],
    proc_root: Path = PROC_ROOT,
    names: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, list[ProcessFacts]]:
    """Return the processes of each pod, by the pod's uid; pods without processes are left out.

    The cgroup of a process names the uid of its pod. `names` maps uids to names of pods.
    """
    # With the systemd driver, the names of cgroups have underscores instead of dashes.
    spellings = {uid: (uid, uid.replace("-", "_")) for uid in pod_uids if uid}
    found: dict[str, list[ProcessFacts]] = {}
    if not spellings:
        return found
    for each in processes(proc_root):
        groups = read_text(proc_root / str(each.pid) / "cgroup") or ""
        if "pod" not in groups:
            continue
        for uid, spelt in spellings.items():
            if any(f"pod{name}" in groups for name in spelt):
                found.setdefault(uid, []).append(described(each, proc_root, names))
    return found


def look_inside(
    seen: Iterable[ProcessFacts],
    paths: Iterable[str],
    *,
    proc_root: Path = PROC_ROOT,
    sysfs_root: Path = SYSFS_ROOT,
) -> list[ContainerFile] | None:
    """Return each of `paths` as each process of `seen` sees it.

    Processes that have ended, or that may not be looked into, are left out. Return None if that
    leaves no process.
    """
    found: list[ContainerFile] = []
    visible = False
    paths = list(paths)
    for each in seen:
        place = proc_root / str(each.pid)
        about = read_text(place / "status")
        try:
            (place / "root").stat()
        except OSError:
            continue
        if about is None:
            continue
        visible = True
        cgroup = _devices_list(each, proc_root, sysfs_root)
        found += [_inside(each, place / "root", path, about, cgroup) for path in paths]
    return found if visible else None


def _inside(
    process: ProcessFacts, root: Path, path: str, about: str, cgroup: str | None
) -> ContainerFile:
    """Look at one device file. `about` is /proc/PID/status, `cgroup` is devices.list, as text."""
    try:
        # lstat: an absolute link in a container would lead to a file of the host.
        status = os.lstat(root / path.lstrip("/"))
    except OSError:
        return ContainerFile(process, path)
    fields = dict(line.split(":\t", 1) for line in about.splitlines() if ":\t" in line)
    user = [int(each) for each in fields.get("Uid", "0 0").split()]
    group = [int(each) for each in fields.get("Gid", "0 0").split()]
    groups = {group[1], *(int(each) for each in fields.get("Groups", "").split())}
    # A process with this capability may open files of any mode, but only if their owner is a user
    # of its user namespace.
    may_override = bool(int(fields.get("CapEff", "0"), 16) & _CAP_DAC_OVERRIDE)
    return ContainerFile(
        process,
        path,
        *_node(status),
        user[1],
        tuple(sorted(groups)),
        cgroup,
        is_main=fields.get("NSpid", "").split()[-1:] == ["1"],
        is_above_modes=may_override and _has_user(root.parent / "uid_map", status.st_uid),
    )


def _has_user(uid_map: Path, uid: int) -> bool:
    """Whether a user namespace, by its uid_map, has the user `uid`."""
    for line in (read_text(uid_map) or "").splitlines():
        _, first, count = map(int, line.split())
        if first <= uid < first + count:
            return True
    return False


def _devices_list(process: ProcessFacts, proc_root: Path, sysfs_root: Path) -> str | None:
    """Return what the devices cgroup of a process permits; None with cgroup version 2."""
    groups = read_text(proc_root / str(process.pid) / "cgroup") or ""
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        # Version 2 has no such controller: there a BPF program decides, and it cannot be read.
        if "devices" in controllers.split(","):
            folder = sysfs_root / "fs" / "cgroup" / "devices" / path.lstrip("/")
            return read_text(folder / "devices.list")
    return None
