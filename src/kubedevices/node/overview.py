"""What a node knows, as JSON-ready documents: devices, pods, run options. For the control service.

The keys are what `kubedevices devices -o json` and `allocate -o json` print, so they are a promise.
"""

from collections.abc import Mapping
from typing import Any

from kubedevices.allocation import ContainerOptions
from kubedevices.device import natural_key
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.hold_owner import HoldOwner
from kubedevices.node.pod import Container, Pod

Document = dict[str, Any]


def describe_node(manager: DeviceManager, *, resource: str = "") -> Document:
    """Return every resource, or `resource` alone, with its devices and who holds them."""
    capacity = manager.get_capacity()
    held = manager.pod_devices.reserved()
    names = sorted({*capacity.capacity, *manager.inventory, *held})
    return {
        "resources": [
            {
                "resource": name,
                "capacity": capacity.capacity.get(name, 0),
                "allocatable": capacity.allocatable.get(name, 0),
                "held": len(held.get(name, ())),
                "plugin": _plugin_state(manager, name),
                "devices": _devices(manager, name),
            }
            for name in names
            if resource in ("", name)
        ]
    }


def describe_registrations(manager: DeviceManager) -> Document:
    """Return how plugins arrived: the socket of each resource, and who was refused and why."""
    endpoints = {name: manager.inventory.endpoint(name) for name in manager.inventory}
    return {
        "topology_policy": manager.topology_policy,
        "sockets": {name: each.socket for name, each in endpoints.items() if each is not None},
        "refused": [
            {"resource": resource, "socket": socket, "reason": reason}
            for resource, socket, reason in manager.refusals
        ],
    }


def _plugin_state(manager: DeviceManager, resource: str) -> str:
    """Return connected, starting (no list yet), stopped, or missing (after the grace period)."""
    record = manager.inventory.record(resource)
    if record is None:
        return "missing"
    if record.stopped_at is not None:
        return "stopped"
    return "connected" if record.devices.is_live else "starting"


def _devices(manager: DeviceManager, resource: str) -> list[Document]:
    """Return the devices listed, and those still held that no longer are."""
    listed = manager.inventory.devices(resource)
    held = manager.pod_devices.reserved().get(resource, set())
    return [
        {
            "id": device_id,
            "health": str(manager.inventory.health(resource, device_id)),
            "numa_nodes": [*(listed[device_id].numa_nodes or ())] if device_id in listed else [],
            "held_by": _holders(manager, resource, device_id) if device_id in held else [],
        }
        for device_id in sorted({*listed, *held}, key=natural_key)
    ]


def _holders(manager: DeviceManager, resource: str, device_id: str) -> list[Document]:
    holders = []
    for pod_uid, container in manager.pod_devices.holders(resource, device_id):
        pod = manager.get_pod(pod_uid)
        holders.append(
            {
                "namespace": pod.namespace if pod else "",
                "pod": pod.name if pod else "",
                "uid": pod_uid,
                "container": container,
            }
        )
    return holders


def describe_pods(manager: DeviceManager, owners: Mapping[str, HoldOwner]) -> Document:
    """Return every admitted pod with what its containers hold, and whether that is left behind."""
    return {
        "pods": [
            describe_pod(manager, pod) | {"left_behind": _left_behind(manager, pod, owners)}
            for pod in manager.pods()
        ]
    }


def _left_behind(manager: DeviceManager, pod: Pod, owners: Mapping[str, HoldOwner]) -> str:
    """Return why nobody uses the devices of `pod` any more, empty if somebody may."""
    owner = owners.get(pod.uid)
    if owner is not None:
        return "" if owner.is_running else f"its command is gone ({owner.command})"
    if manager.is_of_this_boot(pod.uid):
        return ""
    return "it is from before the machine booted, and was not started again"


def describe_pod(
    manager: DeviceManager,
    pod: Pod,
    options: Mapping[str, ContainerOptions | None] | None = None,
) -> Document:
    """Return one pod: its containers in start order, what each holds and starts with."""
    allocation = manager.get_allocation(pod.uid)
    containers = []
    for container in pod:
        devices = allocation.get(container.name, {})
        document: Document = {
            "name": container.name,
            "kind": _kind(pod, container),
            "devices": {resource: list(ids) for resource, ids in devices.items()},
        }
        if options is not None:
            document["options"] = options_as_dict(options.get(container.name))
        containers.append(document)
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "containers": containers,
    }


def _kind(pod: Pod, container: Container) -> str:
    if pod.is_plain_init(container):
        return "init"
    return "sidecar" if container.is_sidecar else "app"


def options_as_dict(options: ContainerOptions | None) -> Document:
    """Return run options as a document; a container without devices has all of them empty."""
    made = options or ContainerOptions()
    return {
        "env": dict(made.env),
        "devices": [
            {
                "host_path": spec.host_path,
                "container_path": spec.container_path,
                "permissions": spec.permissions,
            }
            for spec in made.devices
        ],
        "mounts": [
            {
                "host_path": mount.host_path,
                "container_path": mount.container_path,
                "read_only": mount.read_only,
            }
            for mount in made.mounts
        ],
        "annotations": dict(made.annotations),
        "cdi_devices": list(made.cdi_devices),
    }
