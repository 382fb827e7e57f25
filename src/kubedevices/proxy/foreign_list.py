"""Turns the list of another vendor's plugin into devices. Pure. Faults are counted, not refused.

A kubelet accepts every list, so this does too. Of two devices with the same ID, an unhealthy device
counts. A health that the API does not define is `Unhealthy`. NUMA nodes below 0 are ignored.
"""

from collections.abc import Sequence
from itertools import compress
from operator import is_not
from typing import NamedTuple

from kubedevices.errors import InvalidDevice
from kubedevices.values.device import Device, ForeignDevice, Health, ReportedDevice

_WORDS = {str(health): health for health in Health}


class Oddities(NamedTuple):
    """How many devices of a list break which rule of the API."""

    doubled: int = 0
    odd_words: int = 0
    negative_nodes: int = 0
    impossible_ids: int = 0
    """Devices with IDs that kubedevices cannot serve; only a list passed on unchanged has them."""


class ForeignList(NamedTuple):
    """One list: as the plugin sent it, as devices, and its faults."""

    reports: Sequence[ReportedDevice] = ()
    devices: dict[str, Device] = {}  # noqa: RUF012 - nobody changes it
    oddities: Oddities = Oddities()


def read_list(reports: Sequence[ReportedDevice], before: ForeignList) -> ForeignList:
    """Return `reports` as devices; unchanged devices are the same objects as in `before`."""
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
        if twin is None and report.id in same and _is_made_of(known[report.id], report):
            devices[report.id] = known[report.id]
            continue
        try:
            devices[report.id] = _device(report)
        except InvalidDevice:
            impossible += 1
    return ForeignList(reports, devices, Oddities(doubled, words, nodes, impossible))


def patch_list(reports: Sequence[ReportedDevice], before: ForeignList) -> ForeignList | None:
    """Return `before` with the few devices that changed, faster than `read_list`.

    Return None unless `before` has no faults and few of `reports` are new objects: then `read_list`
    has to read the whole list.
    """
    if not len(reports) == len(before.devices) == len(before.reports):
        return None
    if before.oddities != Oddities():
        return None
    are_new = [*map(is_not, before.reports, reports)]
    read_again = zip(compress(before.reports, are_new), compress(reports, are_new), strict=True)
    # The decoder makes new objects of a changed device and its neighbours, which are mostly equal.
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


def _is_made_of(device: Device, report: ReportedDevice) -> bool:
    """Whether `device` comes from an equal report, not from another report with the same ID."""
    return device.health == _WORDS.get(report.health, Health.UNHEALTHY)


def _device(report: ReportedDevice) -> Device:
    health = _WORDS.get(report.health, Health.UNHEALTHY)
    nodes = tuple(int(node) for node in report.numa_nodes or () if node >= 0)
    unknown, topology = _unknown(report)
    if unknown or topology:
        if len(nodes) != len(report.numa_nodes or ()):
            topology = b""  # the bytes contain a node below 0: fields of a later API go with them
        return ForeignDevice(
            report.id, health=health, numa_nodes=nodes, unknown=unknown, topology=topology
        )
    return Device(report.id, health=health, numa_nodes=nodes)


def _unknown(report: ReportedDevice) -> tuple[bytes, bytes]:
    """Return fields of a later API in `report`, and its topology if that has such fields."""
    return getattr(report, "unknown", b""), getattr(report.numa_nodes, "sent", b"")
