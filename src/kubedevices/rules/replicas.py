"""Replicas: several IDs for one device, so that several containers may have the device. Pure.

A replica equals its device except for the ID, so health and NUMA nodes always agree. The ID of a
replica is the ID of its device, `::` and a number: `card0::1`. The middleware is in `share`, which
has the `ShareRule`, and `replica_choice` says which replicas a container gets.
"""

from collections.abc import Callable, Collection, Iterable

from kubedevices.errors import UsageError
from kubedevices.values.device import Device
from kubedevices.values.device_tree import DeviceTree

SEPARATOR = "::"


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
