"""The kubelet's answers on its podresources socket, as a document of `kubedevices devices`.

For `kubedevices devices`, `kubedevices explain` and a plugin's metrics. The kubelet reports only
healthy devices and held devices. So a held device that is not healthy has the health Unknown, and
capacity and the state of plugins are null. `claims` are the ResourceClaims that containers have, of
all DRA drivers: `driver`, `claim` (NAMESPACE/NAME), `devices`, `held_by`, and `parts`: pool, device
and share of each device, for `explain`.
"""

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from kubedevices.errors import (
    CannotAsk,
    DialError,
    KubeletSilent,
    NotPermitted,
    RpcError,
    StatusCode,
    WireError,
)
from kubedevices.kubelet_api.pod_resources import (
    ContainerEntry,
    DeviceEntry,
    PodEntry,
    PodResourcesClient,
)
from kubedevices.values.device import natural_key
from kubedevices.wire.unix_grpc import GrpcChannel

DEADLINE = 10.0
_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Seconds. A kubelet answers 100 calls per second of all clients together, and refuses more."""

_Answer = TypeVar("_Answer")


async def ask_kubelet(socket: Path, *, timeout: float = DEADLINE) -> dict[str, Any]:
    """Return the document; raises `CannotAsk` (`KubeletSilent` if the kubelet does not answer).

    `timeout` is in seconds, for the connection and for each of two calls.
    """
    async with _podresources(socket, timeout) as client:
        allocatable = await _ask_with_retries(client.get_allocatable, timeout)
        pods = await _ask_with_retries(client.list_pods, timeout)
        # Thousands of devices: in a thread, so that the calls of a kubelet need not wait.
        return await asyncio.to_thread(describe_pod_resources, allocatable, pods)


async def ask_held(socket: Path) -> set[tuple[str, str]]:
    """Return (resource, device ID) of each device that a container holds; raises `CannotAsk`."""
    containers = (container for pod in await ask_pods(socket) for container in pod.containers)
    entries = (entry for container in containers for entry in container.devices)
    return {(entry.resource, device) for entry in entries for device in entry.device_ids}


async def ask_pods(socket: Path, *, timeout: float = DEADLINE) -> tuple[PodEntry, ...]:
    """Return the pods of the kubelet with devices and claims; raises `CannotAsk`."""
    async with _podresources(socket, timeout) as client:
        return tuple(await _ask_with_retries(client.list_pods, timeout))


@contextlib.asynccontextmanager
async def _podresources(socket: Path, timeout: float) -> AsyncIterator[PodResourcesClient]:
    """Connect to the kubelet; raises `CannotAsk` in place of every error of a call."""
    try:
        async with await GrpcChannel.dial(socket, timeout=timeout) as channel:
            yield PodResourcesClient(channel)
    except DialError as error:
        if error.errno == errno.ETIMEDOUT:
            raise KubeletSilent(str(socket), timeout, error.reason) from error
        if error.errno in (errno.EACCES, errno.EPERM):
            raise NotPermitted(f"ask the kubelet at {socket}") from error
        raise CannotAsk(f"no kubelet answers at {socket}: {error.reason}") from error
    except WireError as error:
        if isinstance(error, RpcError) and error.code is StatusCode.DEADLINE_EXCEEDED:
            raise KubeletSilent(str(socket), timeout, error.message) from error
        raise CannotAsk(f"the kubelet at {socket} did not answer: {error}") from error


async def ask_claims(socket: Path) -> frozenset[tuple[str, str]]:
    """Return namespace and name of each ResourceClaim that a container has.

    Raises `CannotAsk`.
    """
    try:
        async with await GrpcChannel.dial(socket, timeout=DEADLINE) as channel:
            pods = await _ask_with_retries(PodResourcesClient(channel).list_pods, DEADLINE)
    except WireError as error:
        raise CannotAsk(f"the kubelet at {socket} did not answer: {error}") from error
    return frozenset(
        (claim.namespace, claim.name)
        for pod in pods
        for container in pod.containers
        for claim in container.claims
    )


async def _ask_with_retries(question: Callable[..., Awaitable[_Answer]], timeout: float) -> _Answer:
    """Call again after a pause while the kubelet refuses because of too many calls."""
    for pause in _PAUSES:
        try:
            return await question(timeout=timeout)
        except RpcError as error:
            if error.code is not StatusCode.RESOURCE_EXHAUSTED or "rate" not in error.message:
                raise  # a response above the size limit has this code too
            await asyncio.sleep(pause)
    return await question(timeout=timeout)


def describe_pod_resources(
    allocatable: Iterable[DeviceEntry], pods: Iterable[PodEntry]
) -> dict[str, Any]:
    """Merge both answers: one entry per device with the NUMA nodes and holders of all messages."""
    pods = tuple(pods)
    resources: dict[str, dict[str, dict[str, Any]]] = {}

    def add(entry: DeviceEntry, health: str) -> list[dict[str, Any]]:
        devices = resources.setdefault(entry.resource, {})
        entries = []
        for device_id in entry.device_ids:
            new = {"id": device_id, "health": health, "numa_nodes": [], "held_by": []}
            device = devices.setdefault(device_id, new)
            nodes = {*device["numa_nodes"], *(entry.numa_nodes or ())}
            device["numa_nodes"] = sorted(nodes)
            entries.append(device)
        return entries

    for entry in allocatable:
        add(entry, "Healthy")
    healthy = {resource: len(devices) for resource, devices in resources.items()}
    for pod in pods:
        for container in pod.containers:
            holder = _holder(pod, container)
            for entry in container.devices:
                for device in add(entry, "Unknown"):
                    if holder not in device["held_by"]:
                        device["held_by"].append(holder)
    return {
        "resources": [
            {
                "resource": resource,
                "capacity": None,
                "allocatable": healthy.get(resource, 0),
                "held": sum(bool(device["held_by"]) for device in devices.values()),
                "plugin": None,
                "devices": sorted(devices.values(), key=lambda device: natural_key(device["id"])),
            }
            for resource, devices in sorted(resources.items())
        ],
        "claims": _claims_of(pods),
    }


def _holder(pod: PodEntry, container: ContainerEntry) -> dict[str, str]:
    # After a restart, a node of ours may know only the UID of a pod: then it sends the UID as the
    # name, without a namespace.
    name, uid = (pod.name, "") if pod.namespace else ("", pod.name)
    return {"namespace": pod.namespace, "pod": name, "uid": uid, "container": container.name}


def _claims_of(pods: Iterable[PodEntry]) -> list[dict[str, Any]]:
    """Return one entry per driver and claim, with the devices and holders of all messages.

    A kubelet lists for each container the devices of the requests that the container uses.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for pod in pods:
        for container in pod.containers:
            holder = _holder(pod, container)
            for claim in container.claims:
                for device in claim.devices:
                    name = f"{claim.namespace}/{claim.name}"
                    new = {"driver": device.driver, "claim": name, "devices": [], "held_by": []}
                    new["parts"] = []
                    entry = found.setdefault((device.driver, name), new)
                    if (part := device[1:]) not in entry["parts"]:
                        entry["parts"].append(part)
                    if device.device not in entry["devices"]:
                        entry["devices"].append(device.device)
                    if holder not in entry["held_by"]:
                        entry["held_by"].append(holder)
    for entry in found.values():
        entry["devices"].sort(key=natural_key)
    return [found[key] for key in sorted(found)]
