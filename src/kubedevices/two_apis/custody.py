"""Which device API may have a device now. Pure: the time is the argument `now`.

A device leaves one API before the other gets it. In between it is in neither, until nothing and
nobody of the first API can have it any more. So a process that is killed in between leaves no
device in both: the next process begins with devices that are in neither.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

from kubedevices.dra.names import DeviceKey


class CustodyTiming(NamedTuple):
    """All in seconds."""

    look: float = 0.5
    """Between two looks while a device is on its way."""

    drain: float = 2.0
    """From the end of the slices until a device plugin has it: for claims that got it just then."""

    withdrawn: float = 1.0
    """From the end of the device plugin's list until what the kubelet says of a device counts."""

    allocated: float = 3.0
    """From an answer to Allocate until the kubelet says whose the device is."""

    returning: float = 10.0
    """After a reboot, from the moment when a kubelet watches the device plugin until it has its
    pods again."""


class Custody:
    """What the device plugin of a node offers, and since when it does not."""

    def __init__(self, timing: CustodyTiming) -> None:
        self._timing = timing
        # When DRA had a device last, when the device plugin ceased to offer it, how many Allocate
        # calls for it are open, and when the last one was answered.
        self._in_slices: dict[DeviceKey, float] = {}
        self._withdrawn: dict[DeviceKey, float] = {}
        self._allocating: dict[DeviceKey, int] = {}
        self._allocated: dict[DeviceKey, float] = {}
        self.offered: frozenset[DeviceKey] = frozenset()
        """What the device plugin may list and allocate."""

    def decide(
        self,
        devices: Collection[DeviceKey],
        wants_dra: Callable[[DeviceKey], bool],
        kept_by_dra: Callable[[DeviceKey], str],
        now: float,
    ) -> None:
        """Say anew what is `offered`, of the devices that there are."""
        offered = set()
        for key in devices:
            if kept_by_dra(key):
                self._in_slices[key] = now
            elif not wants_dra(key):
                # DRA has let go of it, but the scheduler may have decided by slices that it read
                # before.
                in_slices = self._in_slices.get(key)
                if in_slices is None or now - in_slices >= self._timing.drain:
                    offered.add(key)
        self._withdrawn |= dict.fromkeys(self.offered - offered, now)
        self.offered = frozenset(offered)

    def allocation_begins(self, keys: Collection[DeviceKey]) -> None:
        """Note devices of an Allocate call."""
        for key in keys:
            self._allocating[key] = self._allocating.get(key, 0) + 1

    def allocation_ends(self, keys: Collection[DeviceKey], now: float) -> None:
        """Note that this call is answered."""
        for key in keys:
            self._allocating[key] -= 1
            self._allocated[key] = now

    def kept_by_plugin(self, key: DeviceKey, now: float, asked_at: float) -> str:
        """Return why DRA must not have a device, given when the kubelet was asked; empty if it may.

        What the kubelet answered is judged elsewhere: `dra.plugin_view`.
        """
        if key in self.offered:
            return "the device plugin offers it"
        if self._allocating.get(key):
            return "the device plugin is allocating it"
        if now - self._allocated.get(key, -self._timing.allocated) < self._timing.allocated:
            return "the device plugin allocated it just now"
        withdrawn = self._withdrawn.get(key)
        # What a kubelet answered before it can have seen the new list says nothing about the
        # device.
        if withdrawn is not None and asked_at < withdrawn + self._timing.withdrawn:
            return "the device plugin offered it until now"
        return ""
