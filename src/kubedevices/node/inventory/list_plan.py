"""What a new list changes in the devices of a resource. Worked out in slices, then applied. Pure.

A list of 100,000 devices takes most of a second to compare and to sort into sets. During this time
the node uses the devices of the last list. Then the plan is applied in one step, with the
reservations that changed in between. If the devices changed in between, the plan is stale.
"""

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from kubedevices.node.inventory.free_devices import FreeDevices, mask_of_device
from kubedevices.values.device import Health, ReportedDevice

AT_ONCE = 500
"""Devices that are handled between two yields: less than a millisecond."""

IN_PLACE = 500
"""Changes. Up to this number, the existing sets are changed; for more, new sets are made."""

_HEALTHY = Health.HEALTHY.value
_T = TypeVar("_T")


class ListChange(NamedTuple):
    """What a list, or the loss of the plugin, changed; device IDs in the order of the list.

    `changed` devices have another health than before. `moved` devices have other NUMA nodes and the
    same health. `duplicates` is the number of repeated entries.
    """

    appeared: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    vanished: tuple[str, ...] = ()
    duplicates: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether the list changed nothing."""
        return not (self.appeared or self.changed or self.moved or self.vanished)


NO_CHANGE = ListChange()


class ListPlan:
    """One list, and what it changes. After `steps`, `change` is not None.

    `devices` is None if nothing changes, or if only the devices in `gone` are exchanged for the
    devices in `come`.
    """

    def __init__(
        self,
        listed: Sequence[ReportedDevice],
        *,
        before: Sequence[ReportedDevice],
        known: Mapping[str, ReportedDevice],
        is_live: bool,
        reserved: Collection[str],
        is_stale: Callable[[], bool],
    ) -> None:
        self.listed, self.is_stale = listed, is_stale
        self._before, self._known, self._is_live = before, known, is_live
        self._reserved = reserved
        self.change: ListChange | None = None
        self.devices: dict[str, ReportedDevice] | None = None
        self.gone: list[ReportedDevice] = []
        self.come: list[ReportedDevice] = []
        self.healthy: set[str] = set()
        self.counts: Counter[int] = Counter()
        self.free: FreeDevices | None = None
        self.healths: dict[str, str] = {}
        """The new health of every device in `change.changed`."""
        self.words: set[str] = set()
        """Every health text in the list of a device that appeared or changed."""
        self.touched: set[str] = set()
        """Devices that were reserved or released since the plan was begun."""

    def steps(self) -> Generator[None, None, None]:
        """Compare the lists and set `change`; stop early if the plan became stale."""
        pairs: list[tuple[ReportedDevice, ReportedDevice]] | None = None
        if self._is_live and len(self.listed) == len(self._before):
            pairs = yield from self._pairs()
            if pairs == []:
                self.change = NO_CHANGE
                return
        if (
            pairs is not None
            and len(pairs) <= IN_PLACE
            # Equal lengths: no ID is listed twice. If the same IDs are in the same places, a change
            # of health needs no new dictionary of all devices.
            and len(self._before) == len(self._known)
            and all(old.id == new.id for old, new in pairs)
        ):
            self._exchange(pairs)
        elif not self.is_stale():
            yield from self._compare()

    def _pairs(self) -> Generator[None, None, list[tuple[ReportedDevice, ReportedDevice]]]:
        """Return the pairs of different devices at one place of the last list and this list."""
        pairs = []
        for start in range(0, len(self.listed), AT_ONCE):
            old = self._before[start : start + AT_ONCE]
            new = self.listed[start : start + AT_ONCE]
            if tuple(old) != tuple(new):
                pairs += [each for each in zip(old, new, strict=True) if each[0] != each[1]]
            yield
        return pairs

    def _exchange(self, pairs: Iterable[tuple[ReportedDevice, ReportedDevice]]) -> None:
        changed, moved = [], []
        for old, new in pairs:
            self.gone.append(old)
            self.come.append(new)
            if old.health == new.health:
                moved.append(new.id)
            else:
                changed.append(new.id)
                self._note_health(new)
        self._known = {}  # the dictionary stays in use, so `free_old` must not free it
        self.change = ListChange(changed=tuple(changed), moved=tuple(moved))

    def _note_health(self, device: ReportedDevice) -> None:
        self.words.add(device.health)
        is_healthy = device.health == _HEALTHY
        self.healths[device.id] = str(Health.HEALTHY if is_healthy else Health.UNHEALTHY)

    def _compare(self) -> Generator[None, None, None]:
        new = yield from self._each_once()
        appeared, changed, moved = yield from self._differences(new)
        vanished: list[str] = []
        if len(new) - len(appeared) < len(self._known):
            for ids in parts(self._known):
                # Other tasks run at each yield and may change `_known` in place. Then the iteration
                # must not continue.
                vanished += [device_id for device_id in ids if device_id not in new]
                yield
                if self.is_stale():
                    return
        if self.is_stale():
            return
        changes = len(appeared) + len(changed) + len(moved) + len(vanished)
        if self._is_live and changes <= IN_PLACE:
            self.gone = [self._known[each] for each in (*vanished, *changed, *moved)]
            self.come = [new[each] for each in (*appeared, *changed, *moved)]
        else:
            yield from self._sort_in(new)
        self.devices = new
        self.change = ListChange(
            tuple(appeared),
            tuple(changed),
            tuple(moved),
            tuple(vanished),
            len(self.listed) - len(new),
        )

    def _each_once(self) -> Generator[None, None, dict[str, ReportedDevice]]:
        """Return the devices by ID. If an ID has several entries, an unhealthy entry counts."""
        new: dict[str, ReportedDevice] = {}
        for devices in parts(self.listed):
            for device in devices:
                before = new.get(device.id)
                # The kubelet uses the last entry, and counts the device twice in the capacity.
                if before is None or before.health == _HEALTHY or device.health != _HEALTHY:
                    new[device.id] = device
            yield
        return new

    def _differences(
        self, new: Mapping[str, ReportedDevice]
    ) -> Generator[None, None, tuple[list[str], list[str], list[str]]]:
        """Return the devices that appeared, changed their health, and moved to other NUMA nodes."""
        appeared: list[str] = []
        changed: list[str] = []
        moved: list[str] = []
        for devices in parts(new.values()):
            for device in devices:
                known = self._known.get(device.id)
                if known is None:
                    appeared.append(device.id)
                    self.words.add(device.health)
                elif not self._is_live or known.health != device.health:
                    changed.append(device.id)
                    self._note_health(device)
                elif known != device:
                    moved.append(device.id)
            yield
        return appeared, changed, moved

    def free_old(self) -> Generator[None, None, None]:
        """Free the old objects in slices: to free all at once takes as long as to make them."""
        before = [*self._before, *self._known.values()]
        self._before, self._known = (), {}
        while before:
            del before[-AT_ONCE:]
            yield

    def _sort_in(self, new: Mapping[str, ReportedDevice]) -> Generator[None, None, None]:
        free = FreeDevices()
        for devices in parts(new.values()):
            for device in devices:
                mask = mask_of_device(device)
                self.counts[mask] += 1
                if device.health == _HEALTHY:
                    self.healthy.add(device.id)
                    if device.id not in self._reserved:
                        free.add(device.id, mask)
            yield
        self.free = free


def parts(things: Iterable[_T]) -> Iterator[list[_T]]:
    """Return `things` in lists of at most `AT_ONCE` things."""
    rest = iter(things)
    while part := list(islice(rest, AT_ONCE)):
        yield part
