"""Files that replace the device files of simulated devices: copies of the device node /dev/null.

Without permission to create device nodes, plain files replace them. Plain files become mounts,
because container engines do not accept them as devices. Blocking file access, but fast.
"""

import contextlib
import os
import stat
from dataclasses import replace
from pathlib import Path

from kubedevices.errors import CannotAsk
from kubedevices.values.device import Device, Mount

_NULL = os.makedev(1, 3)


class StandInFiles:
    """The files that this process created; files that existed before are left unchanged."""

    def __init__(self) -> None:
        self._made: set[Path] = set()

    def give(self, device: Device) -> Device:
        """Create the files of `device`; return it, plain files as mounts. Raises `CannotAsk`."""
        for spec in device.specs:
            path = Path(spec.host_path)
            if path not in self._made and make_device_file(path):
                self._made.add(path)
        plain = [spec for spec in device.specs if Path(spec.host_path).is_file()]
        if not plain:
            return device
        mounts = [Mount(spec.host_path, spec.container_path or spec.host_path) for spec in plain]
        specs = [spec for spec in device.specs if spec not in plain]
        return replace(device, specs=specs, mounts=[*device.mounts, *mounts])

    def remove(self) -> None:
        """Remove every file that this process created."""
        for path in self._made:
            with contextlib.suppress(OSError):  # another program removed it
                path.unlink()
        self._made.clear()


def make_device_file(path: Path) -> bool:
    """Create a device file that behaves like /dev/null, or a plain file if that is not permitted.

    Return whether the file may be removed later. An existing file stays and is not removed, unless
    it is such a device file: a killed simulator left it. Raises `CannotAsk`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            return _is_null(path)
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, _NULL)
            path.chmod(0o666)  # for containers without root, whatever the umask is
        except PermissionError:
            path.touch()
    except OSError as error:
        raise CannotAsk(f"cannot create {path}: {error.strerror}") from error
    return True


def _is_null(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == _NULL
