"""Device files: their numbers, their links in /dev/char, and all device files of one device.

Blocking file access. Paths are the host's (`/dev/...`). `dev_root` is where we see the host's /dev:
elsewhere in a test, or in a container that mounts it. `host.sysfs` finds NUMA nodes.
"""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from kubedevices.errors import NotADeviceFile, os_errors_as
from kubedevices.host.sysfs import DEV_ROOT, list_entries, read_attribute
from kubedevices.values.cdi import DeviceFile

_TYPES = {stat.S_IFCHR: "c", stat.S_IFBLK: "b", stat.S_IFIFO: "p"}


def read_device_file(
    path: str | Path, *, follow: bool = True, dev_root: Path = DEV_ROOT
) -> DeviceFile:
    """Return type, numbers, mode and owner; raises `NotADeviceFile`.

    `follow=False` refuses a symbolic link. Container engines refuse links in the host paths of CDI
    files, but follow the links in a device plugin's response.
    """
    place = place_of(path, dev_root=dev_root)
    with os_errors_as(NotADeviceFile, path):
        status = place.stat() if follow else place.lstat()
    kind = _TYPES.get(stat.S_IFMT(status.st_mode))
    if kind is None:
        raise NotADeviceFile(str(path), "not a device node")
    return DeviceFile(
        kind,
        os.major(status.st_rdev),
        os.minor(status.st_rdev),
        stat.S_IMODE(status.st_mode),
        status.st_uid,
        status.st_gid,
    )


def read_device_files(paths: Iterable[str], *, dev_root: Path = DEV_ROOT) -> dict[str, DeviceFile]:
    """Return path → device file for `runtimes.oci`; follows links. Raises `NotADeviceFile`."""
    return {path: read_device_file(path, dev_root=dev_root) for path in paths}


def char_link(path: str | Path, *, dev_root: Path = DEV_ROOT) -> str | None:
    """Return `/dev/char/x:y` (or `/dev/block/x:y`) of a device file, if that link leads to it.

    Some user-space drivers open a device by its number, and newer runc versions with systemd look
    the number up there. None if the link is missing or leads to another device.
    """
    device = read_device_file(path, dev_root=dev_root)
    folder = {"c": "char", "b": "block"}.get(device.type)
    if folder is None:
        return None
    link = DEV_ROOT / folder / f"{device.major}:{device.minor}"
    try:
        target = read_device_file(link, dev_root=dev_root)
    except NotADeviceFile:
        return None
    same = (target.type, target.major, target.minor) == (device.type, device.major, device.minor)
    return str(link) if same else None


def device_files_below(directory: Path, *, dev_root: Path = DEV_ROOT) -> tuple[str, ...]:
    """Return the host paths of all device files that belong to a device's directory in /sys.

    A GPU has several (`dri/card0`, `dri/renderD128`). A serial adapter has one, some levels below
    its USB directory. Device files of other devices behind this one, as behind a hub or a bridge,
    are left out, and also files that the driver has not created yet.
    """
    found: list[str] = []
    for place in _belonging_directories(directory):
        if not (place / "dev").is_file():
            continue
        path = DEV_ROOT / (_uevent(place).get("DEVNAME") or place.name)
        if place_of(path, dev_root=dev_root).exists():
            found.append(str(path))
    return tuple(found)


def _belonging_directories(directory: Path) -> Iterable[Path]:
    yield directory
    for entry in list_entries(directory):
        # Links lead to the bus, the driver and so on; only real directories belong to the device.
        if entry.is_symlink() or not entry.is_dir() or _is_another_device(entry):
            continue
        yield from _belonging_directories(entry)


def _is_another_device(entry: Path) -> bool:
    """Whether the directory is of another PCI function or USB device; USB interfaces are not."""
    return (entry / "idVendor").exists() or (
        (entry / "vendor").exists() and (entry / "class").exists()
    )


def _uevent(place: Path) -> dict[str, str]:
    lines = (read_attribute(place / "uevent") or "").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def place_of(path: str | Path, *, dev_root: Path = DEV_ROOT) -> Path:
    """Return the path where we see the host's `path`."""
    path = Path(path)
    if dev_root != DEV_ROOT and path.is_relative_to(DEV_ROOT):
        return dev_root / path.relative_to(DEV_ROOT)
    return path
