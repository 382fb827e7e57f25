"""What stands in for the device files of simulated devices: /dev/null by another name.

Where making device files is not permitted, plain files do, as mounts: no container engine takes
them for devices. Blocking, and quick. For `simulator`.
"""

import contextlib
import os
import stat
from dataclasses import replace
from pathlib import Path

from kubedevices.device import Device, Mount
from kubedevices.errors import CannotAsk

_NULL = os.makedev(1, 3)


class StandInFiles:
    """The files made so far; others that were there before stay what they are."""

    def __init__(self) -> None:
        self._made: set[Path] = set()

    def give(self, device: Device) -> Device:
        """Make the files of `device`; return it with them as what they are. Raises `CannotAsk`."""
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
        """Remove every file that was made here."""
        for path in self._made:
            with contextlib.suppress(OSError):  # somebody was there before us
                path.unlink()
        self._made.clear()


def make_device_file(path: Path) -> bool:
    """Make a device file that behaves like /dev/null, or a plain file where that is not permitted.

    Return whether it is ours: a file that is there already stays, and is not, unless it is just
    what would be made, as a simulator that was killed leaves it. Raises `CannotAsk`.
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
        raise CannotAsk(f"cannot make {path}: {error.strerror}") from error
    return True


def _is_null(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == _NULL
