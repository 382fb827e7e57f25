"""What expose remembers from one look to the next: numbers, and devices that have just gone. Pure.

A device that vanishes is kept for a while, so that a short re-plug keeps its ID, and with it the
container that holds it. It keeps its number (`{index}`) just as long.
"""

from collections.abc import Collection, Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Remembered(NamedTuple, Generic[T]):
    """A device that is there (`gone_at` is None) or was there until then; `number` is its own."""

    thing: T
    number: int
    gone_at: float | None = None


class Memory(Generic[T]):
    """Per resource, what was there by the last look; keys tell devices from each other."""

    def __init__(self) -> None:
        self._resources: dict[Hashable, dict[str, Remembered[T]]] = {}

    def known(self, resource: Hashable) -> Collection[Remembered[T]]:
        """Return what was there at the last look, then what was gone, the latest first."""
        return self._resources.get(resource, {}).values()

    def update(
        self, resource: Hashable, seen: Mapping[str, T], now: float, grace: float
    ) -> Mapping[str, Remembered[T]]:
        """Return what is `seen`, and what has been gone for less than `grace` seconds.

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
