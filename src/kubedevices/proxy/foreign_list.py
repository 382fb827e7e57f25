"""A list of another plugin as devices. Pure; what is odd about the list is counted, not refused.

A kubelet takes every list, so this does, too: of two devices with one ID the unhealthy one counts,
a health that is not a word of the API is `Unhealthy`, a NUMA node below 0 is none.
"""

from collections.abc import Sequence
from itertools import compress
from operator import is_not
from typing import NamedTuple

from kubedevices.device import Device, ForeignDevice, Health, ReportedDevice
from kubedevices.errors import InvalidDevice

_WORDS = {str(health): health for health in Health}


class Oddities(NamedTuple):
    """How many devices of a list are not as the API says."""

    doubled: int = 0
    odd_words: int = 0
    negative_nodes: int = 0
    impossible_ids: int = 0
    """Devices that nothing can be done with; only a list that is passed on as it is has them."""


class ForeignList(NamedTuple):
    """What one list says."""

    reports: Sequence[ReportedDevice] = ()
    devices: dict[str, Device] = {}  # noqa: RUF012 - nobody changes it
    oddities: Oddities = Oddities()


def read_list(reports: Sequence[ReportedDevice], before: ForeignList) -> ForeignList:
    """Return `reports` as devices; those that `before` has as well are the same objects."""
    if (quick := patch_list(reports, before)) is not None:
        return quick
    known = before.devices
    same = {
        new.id
        for old, new in zip(before.reports, reports, strict=False)
        if old is new and new.id in known
    }
    devices: dict[str, Device] = {}
    doubled = words = nodes = impossible = 0
    for report in reports:
        is_odd_word = report.health not in _WORDS
        words += is_odd_word
        nodes += any(node < 0 for node in report.numa_nodes or ())
        twin = devices.get(report.id)
        if twin is not None:
            doubled += 1
            if not twin.is_healthy:
                continue
        if twin is None and report.id in same and _says(known[report.id], report):
            devices[report.id] = known[report.id]
            continue
        try:
            devices[report.id] = _device(report)
        except InvalidDevice:
            impossible += 1
    return ForeignList(reports, devices, Oddities(doubled, words, nodes, impossible))


def patch_list(reports: Sequence[ReportedDevice], before: ForeignList) -> ForeignList | None:
    """Return the list where only few devices of a faultless list are other objects; quickly.

    None for any other list: `read_list` takes every list.
    """
    if len(reports) != len(before.devices) or before.oddities != Oddities():
        return None
    are_new = [*map(is_not, before.reports, reports)]
    read_again = zip(compress(before.reports, are_new), compress(reports, are_new), strict=True)
    # A device is read again with its neighbours, most of which say the same.
    changed = [
        (old, new) for old, new in read_again if old != new or _unknown(old) != _unknown(new)
    ]
    if not changed:
        return before._replace(reports=reports)
    if len(changed) > len(reports) // 8 or any(old.id != new.id for old, new in changed):
        return None
    read = read_list([new for _, new in changed], ForeignList())
    if read.oddities != Oddities():
        return None
    return ForeignList(reports, {**before.devices, **read.devices}, Oddities())


def _says(device: Device, report: ReportedDevice) -> bool:
    """Whether `device` was made of an equal report, and not of a twin of its."""
    return device.health == _WORDS.get(report.health, Health.UNHEALTHY)


def _device(report: ReportedDevice) -> Device:
    health = _WORDS.get(report.health, Health.UNHEALTHY)
    nodes = tuple(int(node) for node in report.numa_nodes or () if node >= 0)
    unknown, topology = _unknown(report)
    if unknown or topology:
        if len(nodes) != len(report.numa_nodes or ()):
            topology = b""  # a node below 0 is mended, and the rest of its place goes with it
        return ForeignDevice(
            report.id, health=health, numa_nodes=nodes, unknown=unknown, topology=topology
        )
    return Device(report.id, health=health, numa_nodes=nodes)


def _unknown(report: ReportedDevice) -> tuple[bytes, bytes]:
    """Return the fields of a later API that `report` carries, and its topology if that does."""
    return getattr(report, "unknown", b""), getattr(report.numa_nodes, "sent", b"")
