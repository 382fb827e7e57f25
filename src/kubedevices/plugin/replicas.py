"""Shares of devices: several IDs for one device, so that several containers may have it. Pure.

A replica is its device in everything but the ID, so health and NUMA nodes always agree.
"""

from collections.abc import Callable
from dataclasses import replace

from kubedevices.allocation import AllocateRequest
from kubedevices.device import Device
from kubedevices.device_tree import DeviceTree
from kubedevices.errors import RpcError, StatusCode, UsageError

SEPARATOR = "::"


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
                raise UsageError(f"{device_type}: {shares} replicas of {device.id} cannot be")
            for i in range(shares):
                replicated.add(name, replace(device, id=f"{device.id}{SEPARATOR}{i}"))
    return replicated


def device_of(device_id: str) -> str:
    """Return the ID of the device that `device_id` is a replica of."""
    return device_id.partition(SEPARATOR)[0]


def refuse_several(request: AllocateRequest, device_type: str) -> None:
    """Refuse a container that asks for two devices, because two replicas may be the same device.

    For `Allocator.allocate`.
    """
    for container in request.containers:
        if len(container.device_ids) > 1:
            raise RpcError(
                StatusCode.INVALID_ARGUMENT,
                f"a container may have only one {device_type}, not {len(container.device_ids)}",
            )
