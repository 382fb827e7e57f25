"""Which replicas a container gets: the limits of a `ShareRule`, and its preference. Pure.

The functions take the values of the rule, which is in `share`; `expose` has the same limits.
"""

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from kubedevices.errors import SharesRefused
from kubedevices.rules.replicas import device_of, number_of
from kubedevices.values.allocation import AllocateRequest
from kubedevices.values.device import natural_order

Spreading: TypeAlias = Literal["spread", "pack"]


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
