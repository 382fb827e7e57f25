"""Shares of devices: several IDs for one device, so that several containers may have it. Pure.

A replica is its device in everything but the ID, so health and NUMA nodes always agree. The ID of
a replica is that of its device, `::` and a number: `card0::1`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from kubedevices.allocation import AllocateRequest
from kubedevices.device import Device, natural_order
from kubedevices.device_tree import DeviceTree
from kubedevices.errors import SharesRefused, UsageError

SEPARATOR = "::"

Spreading: TypeAlias = Literal["spread", "pack"]
SPREADINGS = ("spread", "pack")


def replicate(
    tree: DeviceTree,
    count: int | Callable[[Device], int],
    *,
    rename: Callable[[str], str] | None = None,
) -> DeviceTree:
    """Return a tree with `count` replicas of every device: `card0::0`, `card0::1` and so on.

    `count` may depend on the device; 0 leaves it out. `rename` makes the name of a shared device
    type of the plain one, as `"{}.shared".format` does.
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
    """Return the replicas of `device` that have these numbers."""
    return tuple(device.with_id(replica_id(device.id, number)) for number in numbers)


def replica_id(device_id: str, number: int) -> str:
    """Return the ID of one replica."""
    return f"{device_id}{SEPARATOR}{number}"


def device_of(device_id: str) -> str:
    """Return the ID of the device that `device_id` is a replica of; itself if it is none."""
    # From the right: an ID of a plugin may have `::` in it already.
    device, separator, number = device_id.rpartition(SEPARATOR)
    return device if separator and number.isdecimal() else device_id


def number_of(device_id: str) -> int:
    """Return the number of a replica; 0 if it is none."""
    number = device_id.rpartition(SEPARATOR)[2]
    return int(number) if device_of(device_id) != device_id else 0


def numbers_to_serve(count: int, held: Collection[int]) -> list[int]:
    """Return the numbers of the replicas of a device that is to have `count`.

    Those `held` stay, whatever their number, so that no container loses its device; the lowest
    numbers fill up. So a device with fewer replicas than before has no more holders than replicas
    as soon as the surplus ones are given back.
    """
    kept = sorted(held)
    free = (number for number in range(count + len(kept)) if number not in held)
    return sorted([*kept, *(next(free) for _ in range(count - len(kept)))])


# ---------------------------------------------------------------- Allocate


def check_shares(
    request: AllocateRequest, device_type: str, *, per_container: int | None, distinct: bool
) -> None:
    """Raise `SharesRefused` for a container that asks for too many replicas, or twice for a device.

    `per_container` is the most that one container may have. With `distinct` no two of them may be
    of one device.
    """
    for container in request.containers:
        ids = container.device_ids
        if per_container is not None and len(ids) > per_container:
            raise SharesRefused(device_type, ids, per_container)
        if distinct and len(twins := _first_twins(ids)) > 1:
            raise SharesRefused(device_type, twins)


def _first_twins(ids: Iterable[str]) -> tuple[str, ...]:
    by_device: dict[str, list[str]] = {}
    for device_id in dict.fromkeys(ids):
        by_device.setdefault(device_of(device_id), []).append(device_id)
    return next((tuple(each) for each in by_device.values() if len(each) > 1), ())


# ---------------------------------------------------------------- preferred allocation


class Tie(NamedTuple):
    """A question: which `size` of these equally good `devices`, beside those `chosen` already?"""

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
) -> Generator[Tie, Collection[str], list[str]]:
    """Choose `size` of the `available` replicas; returns none where the rule cannot be kept.

    `total` is the number of replicas of each device: those that are not available are in use.
    `spread` takes different devices, the least used first; `pack` fills the most used one first.
    Yields a `Tie` where the rule leaves a choice; send the devices to be taken.
    """
    chosen = natural_order(set(must_include))
    picks = Counter(map(device_of, chosen))
    free: dict[str, list[str]] = {}
    for each in set(available).union(chosen):
        free.setdefault(device_of(each), []).append(each)
    used = {device: max(0, total.get(device, 0) - len(left)) for device, left in free.items()}
    for each in chosen:
        free[device_of(each)].remove(each)

    def rank(device: str) -> tuple[int, int]:
        if spreading == "pack":
            # `min` takes the smallest rank, so that the most used device is the most negative.
            return -used[device] - picks[device], 0
        return picks[device], used[device]

    while (missing := size - len(chosen)) > 0:
        open_ = [each for each, left in free.items() if left and not (distinct and picks[each])]
        if not open_:
            return []
        best = min(map(rank, open_))
        tied = natural_order(each for each in open_ if rank(each) == best)
        count = min(missing, len(tied)) if spreading == "spread" else 1
        if count < len(tied):
            taken = yield Tie(tuple(tied), tuple(picks), count)
        else:
            taken = tied
        for device in taken:
            # The lowest number, so that few numbers are in use when a rule gives fewer replicas
            # later.
            lowest = min(free[device], key=number_of)
            free[device].remove(lowest)
            chosen.append(lowest)
            picks[device] += 1
    return chosen
