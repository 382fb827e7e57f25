"""Replaces symbolic links by device files: engines refuse links in a CDI file. Blocking."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kubedevices.host.sysfs import DEV_ROOT
from kubedevices.values.device import Device, DeviceSpec


def without_links(
    specs: Iterable[DeviceSpec], *, dev_root: Path = DEV_ROOT
) -> tuple[DeviceSpec, ...]:
    """Return `specs` with the real device files as host paths."""
    return tuple(spec._replace(host_path=_target(spec.host_path, dev_root)) for spec in specs)


def with_real_files(device: Device, dev_root: Path = DEV_ROOT) -> Device:
    """Return `device` with real device files; the `cdi` of a plugin author stays unchanged."""
    if device.cdi is not None:
        return device
    specs = without_links(device.all_specs, dev_root=dev_root)
    return device if specs == device.all_specs else replace(device, paths=(), specs=specs)


def _target(host_path: str, dev_root: Path) -> str:
    place = Path(host_path)
    here = dev_root / place.relative_to("/dev") if place.is_relative_to("/dev") else place
    if not here.is_symlink():
        return host_path
    target = here.resolve()
    if target.is_relative_to(dev_root):
        return str(Path("/dev") / target.relative_to(dev_root))
    return str(target)
