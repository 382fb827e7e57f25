"""What a kubelet's podresources socket says, in the form of `kubedevices devices`.

For that verb, for `explain` and for the metrics of a plugin. It tells less than a node of ours:
healthy devices and held ones. A device that is held and not among the healthy is Unknown; capacity
and the state of plugins are not told (null).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kubedevices.device import natural_key
from kubedevices.errors import CannotAsk, DialError, WireError
from kubedevices.wire.pod_resources import DeviceEntry, PodEntry, PodResourcesClient
from kubedevices.wire.unix_grpc import GrpcChannel

DEADLINE = 10.0


async def ask_kubelet(socket: Path) -> dict[str, Any]:
    """Return the document; raises `CannotAsk`."""
    try:
        async with await GrpcChannel.dial(socket, timeout=DEADLINE) as channel:
            client = PodResourcesClient(channel)
            allocatable = await client.get_allocatable(timeout=DEADLINE)
            return describe_pod_resources(allocatable, await client.list_pods(timeout=DEADLINE))
    except DialError as error:
        raise CannotAsk(f"no kubelet answers at {socket}: {error.reason}") from error
    except WireError as error:
        raise CannotAsk(f"the kubelet at {socket} did not answer: {error}") from error


def describe_pod_resources(
    allocatable: Iterable[DeviceEntry], pods: Iterable[PodEntry]
) -> dict[str, Any]:
    """Put both answers together: an entry per device, its NUMA nodes united, its holders listed."""
    resources: dict[str, dict[str, dict[str, Any]]] = {}

    def note(entry: DeviceEntry, health: str) -> list[dict[str, Any]]:
        devices = resources.setdefault(entry.resource, {})
        noted = []
        for device_id in entry.device_ids:
            new = {"id": device_id, "health": health, "numa_nodes": [], "held_by": []}
            device = devices.setdefault(device_id, new)
            nodes = {*device["numa_nodes"], *(entry.numa_nodes or ())}
            device["numa_nodes"] = sorted(nodes)
            noted.append(device)
        return noted

    for entry in allocatable:
        note(entry, "Healthy")
    healthy = {resource: len(devices) for resource, devices in resources.items()}
    for pod in pods:
        for container in pod.containers:
            holder = {
                "namespace": pod.namespace,
                "pod": pod.name,
                "uid": "",
                "container": container.name,
            }
            for entry in container.devices:
                for device in note(entry, "Unknown"):
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
        ]
    }
