"""Device files behind symbolic links, as container engines want them in a CDI file. Blocking."""

from collections.abc import Iterable
from pathlib import Path

from kubedevices.device import DeviceSpec
from kubedevices.host.sysfs import DEV_ROOT


def without_links(
    specs: Iterable[DeviceSpec], *, dev_root: Path = DEV_ROOT
) -> tuple[DeviceSpec, ...]:
    """Return `specs`, each with the real device file as its host path."""
    return tuple(spec._replace(host_path=_target(spec.host_path, dev_root)) for spec in specs)


def _target(host_path: str, dev_root: Path) -> str:
    place = Path(host_path)
    here = dev_root / place.relative_to("/dev") if place.is_relative_to("/dev") else place
    if not here.is_symlink():
        return host_path
    target = here.resolve()
    if target.is_relative_to(dev_root):
        return str(Path("/dev") / target.relative_to(dev_root))
    return str(target)
