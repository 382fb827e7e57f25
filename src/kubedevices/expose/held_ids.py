"""Who holds which ID, for the naming of devices: pods, and operators who cordoned a device. Pure.

Three witnesses tell: the kubelet's checkpoint, its podresources socket, and the file of
`kubedevices cordon`. The checkpoint has the answer of the plugin too, so it tells the device file
of a held ID.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kubedevices.rules.replicas import SEPARATOR, device_of


class Hold(NamedTuple):
    """The ID of a device that is held, without the number of a replica."""

    device: str
    is_replica: bool


@dataclass(frozen=True)
class Holds:
    """The holds of one resource. `by_path` has those whose device file is known.

    `labels` are the names of devices in ResourceSlices that claims have, of all resources.
    """

    by_device: Mapping[str, Hold] = field(default_factory=dict)
    by_path: Mapping[str, Hold] = field(default_factory=dict)
    labels: Collection[str] = ()

    def of(self, device_id: str) -> Hold | None:
        """Return the hold of a device; `device_id` has no number of a replica."""
        if self.labels and device_id not in self.by_device:
            from kubedevices.dra.names import device_label  # noqa: PLC0415 - only with DRA

            if device_label(device_id) in self.labels:
                return Hold(device_id, is_replica=False)
        return self.by_device.get(device_id)

    def at(self, path: str, names: Iterable[str]) -> Hold | None:
        """Return the hold of the device file `path`, or of one of `names`."""
        return self.by_path.get(path) or next(filter(None, map(self.of, names)), None)


def gather(
    held: Iterable[tuple[str, Collection[str]]] = (),
    cordoned: Iterable[str] = (),
    labels: Collection[str] = (),
) -> Holds:
    """Return the holds of one resource.

    `held` has each held ID with the paths of the device files of the container, which are empty
    where they are not known, or where the container has several devices. `cordoned` are IDs.
    """
    by_device: dict[str, Hold] = {}
    by_path: dict[str, Hold] = {}
    for device_id, paths in (*held, *((each, ()) for each in cordoned)):
        device = device_of(device_id)
        hold = Hold(device, f"{device}{SEPARATOR}" in device_id)
        by_device.setdefault(device, hold)
        for path in paths:
            by_path.setdefault(path, hold)
    return Holds(by_device, by_path, labels)
