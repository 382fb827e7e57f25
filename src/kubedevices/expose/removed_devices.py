"""Remembers devices from one look to the next, with their numbers; also removed devices. Pure.

A removed device is remembered for a grace period. If it is plugged in again in this time, it keeps
its ID, so a container that holds it keeps it too. It also keeps its number (`{index}`). After this
time it is not listed any more, but its ID stays: a pod or a cordon may still name the device.
"""

import itertools
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

FORMER_LIMIT = 500
"""Most devices of one resource that are remembered and not listed; the oldest are forgotten."""


class Remembered(NamedTuple, Generic[T]):
    """A present device (`gone_at` is None), or a device that was removed at `gone_at`."""

    thing: T
    number: int
    gone_at: float | None = None
    is_listed: bool = True


class Memory(Generic[T]):
    """The devices of the last look by resource and key, also removed devices."""

    def __init__(self) -> None:
        self._resources: dict[Hashable, dict[str, Remembered[T]]] = {}

    def __contains__(self, resource: Hashable) -> bool:
        return resource in self._resources

    def restore(self, resource: Hashable, devices: Mapping[str, Remembered[T]]) -> None:
        """Take the devices of an earlier process, which are removed until a look finds them."""
        self._resources[resource] = dict(devices)

    def known(self, resource: Hashable) -> Mapping[str, Remembered[T]]:
        """Return the present devices of the last look, then the removed ones, latest first."""
        return self._resources.get(resource, {})

    def update(
        self,
        resource: Hashable,
        seen: Mapping[str, T],
        now: float,
        grace: float,
        *,
        has_name: Callable[[T], object] = bool,
        numbers: Mapping[str, int] | None = None,
        held: Collection[int] = (),
    ) -> Mapping[str, Remembered[T]]:
        """Return the devices in `seen`, and devices removed less than `grace` seconds ago.

        Of devices that were removed earlier, those with a name are remembered.
        A new device gets its number in `numbers`, or the lowest free number that is not `held`.
        """
        before = self.known(resource)
        gone = {
            key: each._replace(gone_at=now) if each.gone_at is None else each
            for key, each in before.items()
            if key not in seen
        }
        kept = {
            key: each
            for key, each in gone.items()
            if each.is_listed and each.gone_at is not None and now - each.gone_at < grace
        }
        former = {
            key: each._replace(is_listed=False)
            for key, each in gone.items()
            if key not in kept and has_name(each.thing)
        }
        given = {key: before[key].number for key in seen if key in before and before[key].is_listed}
        used = {*given.values(), *(each.number for each in kept.values())}
        for key in seen:  # the number of an ID that is known or held, unless another device has it
            number = (numbers or {}).get(key, before[key].number if key in before else -1)
            if key not in given and number >= 0 and number not in used:
                given[key] = number
                used.add(number)
        used |= set(held)
        free = (number for number in itertools.count() if number not in used)
        here = {
            key: Remembered(thing, given[key] if key in given else next(free))
            for key, thing in seen.items()
        }
        former = dict(itertools.islice(former.items(), FORMER_LIMIT))
        self._resources[resource] = here | kept | former
        return here | kept

    def keep_only(self, resources: Collection[Hashable]) -> None:
        """Forget every other resource."""
        for name in self._resources.keys() - set(resources):
            del self._resources[name]
