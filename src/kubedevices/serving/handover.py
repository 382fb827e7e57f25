"""Decides which device API may have a device now. Pure: the time is the argument `now`.

A device leaves one API before it enters the other. In between the device is in neither API, until
no slice, claim, list or pod of the first API can have it. A process that is killed in between
leaves no device in both APIs: the next process starts with devices in neither.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

from kubedevices.dra.names import DeviceKey


class HandoverTiming(NamedTuple):
    """All in seconds."""

    look: float = 0.5
    """Time between two decisions while a device waits to enter an API."""

    drain: float = 2.0
    """Time from the last slice with a device until the device plugin lists the device. A claim may
    have got the device just before."""

    withdrawn: float = 1.0
    """Time from the device plugin's list without a device until the kubelet's answers about the
    device count. The kubelet must have processed the list."""

    allocated: float = 3.0
    """Time from an answer to Allocate until the kubelet reports the pod of the device."""

    returning: float = 10.0
    """After a reboot: time from the kubelet's first stream of the device plugin's list until the
    kubelet has admitted its pods again."""


class Handover:
    """Records which devices the device plugin offers, and when each device left an API."""

    def __init__(self, timing: HandoverTiming) -> None:
        self._timing = timing
        # The last time when DRA had the device.
        self._in_slices: dict[DeviceKey, float] = {}
        # The time when the device plugin stopped to offer the device.
        self._withdrawn: dict[DeviceKey, float] = {}
        # The number of running Allocate calls for the device.
        self._allocating: dict[DeviceKey, int] = {}
        # The time of the last answer to an Allocate call for the device.
        self._allocated: dict[DeviceKey, float] = {}
        self.offered: frozenset[DeviceKey] = frozenset()
        """The devices that the device plugin may list and allocate."""

    def decide(
        self,
        devices: Collection[DeviceKey],
        wants_dra: Callable[[DeviceKey], bool],
        kept_by_dra: Callable[[DeviceKey], str],
        allocated: Callable[[DeviceKey, float], str],
        now: float,
    ) -> None:
        """Decide again which of `devices`, all devices of the scanner, are `offered`.

        `kept_by_dra` returns why a device is still in DRA; empty if it is not. `allocated` returns
        why a claim may still have a device that no scheduler allocates since a time; else empty.
        """
        offered = set()
        for key in devices:
            if kept_by_dra(key):
                self._in_slices[key] = now
            elif not wants_dra(key):
                # The device is no longer in DRA, but the scheduler may still allocate it by slices
                # that it read before.
                in_slices = self._in_slices.get(key)
                drained = None if in_slices is None else in_slices + self._timing.drain
                if drained is None or (now >= drained and not allocated(key, drained)):
                    self._in_slices.pop(key, None)
                    offered.add(key)
        self._withdrawn |= dict.fromkeys(self.offered - offered, now)
        self.offered = frozenset(offered)

    def was_in_slices(self, keys: Collection[DeviceKey], now: float) -> None:
        """Record that an earlier process may have had these devices in slices until now.

        A claim may have got a device then, also if the slices are gone before our first decision.
        """
        for key in keys:
            self._in_slices.setdefault(key, now)

    def allocation_begins(self, keys: Collection[DeviceKey]) -> None:
        """Record that an Allocate call for these devices has started."""
        for key in keys:
            self._allocating[key] = self._allocating.get(key, 0) + 1

    def allocation_ends(self, keys: Collection[DeviceKey], now: float) -> None:
        """Record that this call is answered."""
        for key in keys:
            self._allocating[key] -= 1
            self._allocated[key] = now

    def kept_by_plugin(self, key: DeviceKey, now: float, asked_at: float) -> str:
        """Return why DRA must not have a device; empty if it may.

        `asked_at` is the time of the last question to the kubelet. `dra.device_plugin_view`
        evaluates the kubelet's answer itself.
        """
        if key in self.offered:
            return "the device plugin offers it"
        if self._allocating.get(key):
            return "the device plugin is allocating it"
        if now - self._allocated.get(key, -self._timing.allocated) < self._timing.allocated:
            return "the device plugin allocated it just now"
        withdrawn = self._withdrawn.get(key)
        # An answer counts only if the kubelet can have processed the list without the device.
        if withdrawn is not None and asked_at < withdrawn + self._timing.withdrawn:
            return "the device plugin offered it until now"
        return ""
