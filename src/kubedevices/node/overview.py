"""The state of a node as JSON objects: devices, pods, run options. For the control service.

`kubedevices devices -o json` and `allocate -o json` print these keys, so the keys must not change.
"""

import json
from collections.abc import Generator, Mapping
from typing import Any

from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.inventory.list_plan import parts
from kubedevices.node.pods.container_options import container_options
from kubedevices.node.pods.hold_owner import HoldOwner
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.values.allocation import ContainerOptions
from kubedevices.values.device import natural_key


def encode_node(manager: DeviceManager, *, resource: str = "") -> Generator[None, None, bytes]:
    """Return every resource, or only `resource`, with its devices and their holders, as JSON.

    A generator for `LoopSlices`, because 100,000 devices take a second.
    """
    resources = []
    for head in _describe_resources(manager, resource):
        text = _dump(head)[:-1]
        devices = yield from _encode_devices(manager, head["resource"])
        resources.append(f'{text},"devices":[{",".join(devices)}]}}')
    return f'{{"resources":[{",".join(resources)}]}}'.encode()


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _describe_resources(manager: DeviceManager, resource: str) -> list[dict[str, Any]]:
    capacity = manager.get_capacity()
    held = manager.pod_devices.reserved()
    names = sorted({*capacity.capacity, *manager.inventory, *held})
    return [
        {
            "resource": name,
            "capacity": capacity.capacity.get(name, 0),
            "allocatable": capacity.allocatable.get(name, 0),
            "held": len(held.get(name, ())),
            "plugin": _plugin_state(manager, name),
        }
        for name in names
        if resource in ("", name)
    ]


def describe_registrations(manager: DeviceManager) -> dict[str, Any]:
    """Return the socket of each registered resource, and the refused registrations with reasons."""
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


def _encode_devices(manager: DeviceManager, resource: str) -> Generator[None, None, list[str]]:
    """Return the listed devices, and held devices that are not listed, some in each text."""
    held = manager.pod_devices.reserved().get(resource, set())
    keys: list[tuple[str, str]] = []
    for ids in parts({*manager.inventory.devices(resource), *held}):
        keys += [(natural_key(device_id), device_id) for device_id in ids]
        yield
    keys.sort()
    texts = []
    for some in parts(keys):
        listed = manager.inventory.devices(resource)  # another list may have come meanwhile
        documents = []
        for _, device_id in some:
            device = listed.get(device_id)
            documents.append(
                {
                    "id": device_id,
                    "health": str(manager.inventory.health(resource, device_id)),
                    "numa_nodes": [*(device.numa_nodes or ())] if device else [],
                    "held_by": _holders(manager, resource, device_id) if device_id in held else [],
                }
            )
        texts.append(_dump(documents)[1:-1])
        yield
    return texts


def _holders(manager: DeviceManager, resource: str, device_id: str) -> list[dict[str, Any]]:
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


def describe_pods(manager: DeviceManager, owners: Mapping[str, HoldOwner]) -> dict[str, Any]:
    """Return every admitted pod with the devices of its containers, and why no one uses them."""
    return {
        "pods": [
            describe_pod(manager, pod) | {"left_behind": _left_behind(manager, pod, owners)}
            for pod in manager.pods()
        ]
    }


def _left_behind(manager: DeviceManager, pod: Pod, owners: Mapping[str, HoldOwner]) -> str:
    """Return why the devices of `pod` are not in use; empty if they may be in use."""
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
) -> dict[str, Any]:
    """Return one pod: its containers in start order, with their devices and run options.

    `conflicts` says what is not in the options, because another resource gives the same key.
    """
    allocation = manager.get_allocation(pod.uid)
    containers = []
    for container in pod:
        devices = allocation.get(container.name, {})
        document: dict[str, Any] = {
            "name": container.name,
            "kind": _kind(pod, container),
            "devices": {resource: list(ids) for resource, ids in devices.items()},
        }
        if options is not None:
            document["options"] = _options_as_dict(options.get(container.name))
            merged = container_options(manager.pod_devices.of_container(pod.uid, container.name))
            document["conflicts"] = [str(each) for each in merged.conflicts] if merged else []
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


def _options_as_dict(options: ContainerOptions | None) -> dict[str, Any]:
    """Return run options as a JSON object; without devices all its values are empty."""
    made = options or ContainerOptions()
    return {
        "env": dict(made.env),
        "devices": [spec._asdict() for spec in made.devices],
        "mounts": [mount._asdict() for mount in made.mounts],
        "annotations": dict(made.annotations),
        "cdi_devices": list(made.cdi_devices),
    }
