"""Remembers devices from one look to the next, with their numbers; also removed devices. Pure.

A removed device is remembered for a grace period. If it is plugged in again in this time, it keeps
its ID, so a container that holds it keeps it too. It also keeps its number (`{index}`).
"""

from collections.abc import Collection, Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Remembered(NamedTuple, Generic[T]):
    """A present device (`gone_at` is None), or a device that was removed at `gone_at`."""

    thing: T
    number: int
    gone_at: float | None = None


class Memory(Generic[T]):
    """The devices of the last look by resource and key, also removed devices."""

    def __init__(self) -> None:
        self._resources: dict[Hashable, dict[str, Remembered[T]]] = {}

    def known(self, resource: Hashable) -> Collection[Remembered[T]]:
        """Return the present devices of the last look, then the removed ones, latest first."""
        return self._resources.get(resource, {}).values()

    def update(
        self, resource: Hashable, seen: Mapping[str, T], now: float, grace: float
    ) -> Mapping[str, Remembered[T]]:
        """Return the devices in `seen`, and devices removed less than `grace` seconds ago.

        A new device gets the lowest free number.
        """
        before = self._resources.get(resource, {})
        gone = {
            key: each._replace(gone_at=now) if each.gone_at is None else each
            for key, each in before.items()
            if key not in seen
        }
        kept = {
            key: each
            for key, each in gone.items()
            if each.gone_at is not None and now - each.gone_at < grace
        }
        used = {before[key].number for key in seen if key in before}
        used |= {each.number for each in kept.values()}
        free = (number for number in range(len(used) + len(seen)) if number not in used)
        here = {
            key: Remembered(thing, before[key].number if key in before else next(free))
            for key, thing in seen.items()
        }
        self._resources[resource] = here | kept
        return self._resources[resource]

    def keep_only(self, resources: Collection[Hashable]) -> None:
        """Forget every other resource."""
        for name in self._resources.keys() - set(resources):
            del self._resources[name]
