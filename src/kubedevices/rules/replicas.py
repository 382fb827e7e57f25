"""Replicas: several IDs for one device, so that several containers may have the device. Pure.

A replica equals its device except for the ID, so health and NUMA nodes always agree. The ID of a
replica is the ID of its device, `::` and a number: `card0::1`. The middleware is in `share`, which
has the `ShareRule`; the functions here take its values.
"""

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from kubedevices.errors import SharesRefused, UsageError
from kubedevices.values.allocation import AllocateRequest
from kubedevices.values.device import Device, natural_order
from kubedevices.values.device_tree import DeviceTree

SEPARATOR = "::"

Spreading: TypeAlias = Literal["spread", "pack"]


def replicate(
    tree: DeviceTree,
    count: int | Callable[[Device], int],
    *,
    rename: Callable[[str], str] | None = None,
) -> DeviceTree:
    """Return a tree with `count` replicas of every device: `card0::0`, `card0::1` and so on.

    `count` may be a function of the device; 0 leaves the device out. `rename` returns the new name
    of a device type, for example `"{}.shared".format`.
    """
    replicated = DeviceTree()
    for device_type in tree:
        name = rename(device_type) if rename else device_type
        replicated.declare(name)
        for device in tree.devices(device_type).values():
            shares = count if isinstance(count, int) else count(device)
            if shares < 0:
                raise UsageError(f"{device_type}: {device.id} cannot have {shares} replicas")
            for replica in replicas_of(device, range(shares)):
                replicated.add(name, replica)
    return replicated


def replicas_of(device: Device, numbers: Iterable[int]) -> tuple[Device, ...]:
    """Return the replicas of `device` with these numbers."""
    return tuple(device.with_id(replica_id(device.id, number), device.id) for number in numbers)


def replica_id(device_id: str, number: int) -> str:
    """Return the ID of one replica."""
    return f"{device_id}{SEPARATOR}{number}"


def device_of(device_id: str) -> str:
    """Return the ID of the device of a replica; `device_id` itself if it is no replica."""
    # From the right: an ID of a plugin may contain `::`, too.
    device, separator, number = device_id.rpartition(SEPARATOR)
    return device if separator and number.isdecimal() else device_id


def number_of(device_id: str) -> int:
    """Return the number of a replica; 0 if `device_id` is no replica."""
    number = device_id.rpartition(SEPARATOR)[2]
    return int(number) if device_of(device_id) != device_id else 0


def numbers_to_serve(count: int, held: Collection[int]) -> list[int]:
    """Return the numbers of the replicas to list for a device that should have `count`.

    Numbers that containers hold (`held`) stay, so that no container loses its device; the lowest
    free numbers are added up to `count`. If `count` is smaller than before, more than `count`
    replicas may be listed until the containers give the surplus replicas back.
    """
    kept = sorted(held)
    free = (number for number in range(count + len(kept)) if number not in held)
    return sorted([*kept, *(next(free) for _ in range(count - len(kept)))])


# ---------------------------------------------------------------- Allocate


def check_shares(
    request: AllocateRequest, device_type: str, *, per_container: int | None, distinct: bool
) -> None:
    """Raise `SharesRefused` if a container asks for more replicas than the rule allows.

    `per_container` is the most that one container may have; None means no limit. With `distinct` a
    container may have only one replica of each device.
    """
    for container in request.containers:
        ids = container.device_ids
        if per_container is not None and len(ids) > per_container:
            raise SharesRefused(device_type, ids, per_container)
        if distinct and (twins := _first_twins(ids)):
            raise SharesRefused(device_type, twins)


def _first_twins(ids: Iterable[str]) -> tuple[str, ...]:
    by_device: dict[str, list[str]] = {}
    for device_id in dict.fromkeys(ids):
        by_device.setdefault(device_of(device_id), []).append(device_id)
    return next((tuple(each) for each in by_device.values() if len(each) > 1), ())


# ---------------------------------------------------------------- preferred allocation


class EqualDevices(NamedTuple):
    """A question to the caller: which `size` of these equally used `devices` to take?

    `chosen` are the devices that the container gets already.
    """

    devices: tuple[str, ...]
    chosen: tuple[str, ...]
    size: int


def prefer(
    available: Iterable[str],
    must_include: Iterable[str],
    size: int,
    total: Mapping[str, int],
    *,
    spreading: Spreading = "spread",
    distinct: bool = False,
) -> Generator[EqualDevices, Collection[str], list[str]]:
    """Choose `size` of the `available` replicas; return an empty list if the rule forbids it.

    `total` is the number of replicas of each device; replicas that are not available are in use.
    `spread` takes different devices, the least used first; `pack` takes the most used first.
    Yields `EqualDevices` if the rule does not decide; the caller sends the devices to take.
    """
    chosen = natural_order(set(must_include))
    picks = Counter(map(device_of, chosen))
    free: dict[str, list[str]] = {}
    for each in sorted(set(available).union(chosen), key=number_of, reverse=True):
        free.setdefault(device_of(each), []).append(each)
    # A device that is not listed any more counts as unused.
    used = {device: total.get(device, len(left)) - len(left) for device, left in free.items()}
    for each in chosen:
        free[device_of(each)].remove(each)

    def rank(device: str) -> tuple[int, ...]:
        if spreading == "pack":
            # `min` takes the smallest rank, so the most used device has the lowest number.
            return (-used[device] - picks[device],)
        return picks[device], used[device]

    while (missing := size - len(chosen)) > 0:
        open_ = [each for each, left in free.items() if left and not (distinct and picks[each])]
        if not open_:
            return []
        best = min(map(rank, open_))
        equal = natural_order(each for each in open_ if rank(each) == best)
        count = min(missing, len(equal)) if spreading == "spread" else 1
        if count < len(equal):
            taken = yield EqualDevices(tuple(equal), tuple(picks), count)
        else:
            taken = equal
        for device in taken:
            # The lowest number: if a later rule gives fewer replicas, few high numbers are in use.
            chosen.append(free[device].pop())
            picks[device] += 1
    return chosen
