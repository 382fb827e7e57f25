"""The podresources API, v1 and v1alpha1: values, their messages, the service and a client.

Which pod holds which device, as a kubelet tells its neighbours. `node.pod_resources` serves it;
`kubedevices devices` also asks a real kubelet.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from kubedevices.wire.messages import message_class, parse, serialize
from kubedevices.wire.unix_grpc import GrpcChannel, Methods, UnaryMethod

LIST = "/v1.PodResourcesLister/List"
GET_ALLOCATABLE = "/v1.PodResourcesLister/GetAllocatableResources"
GET = "/v1.PodResourcesLister/Get"
LIST_V1ALPHA1 = "/v1alpha1.PodResourcesLister/List"


class DeviceEntry(NamedTuple):
    """One ContainerDevices message. `numa_nodes` is None without a topology object.

    A kubelet sends one entry per device and NUMA node, so a device on two nodes comes twice.
    """

    resource: str
    device_ids: tuple[str, ...]
    numa_nodes: tuple[int, ...] | None = None


class ContainerEntry(NamedTuple):
    """A container and the devices it holds."""

    name: str
    devices: tuple[DeviceEntry, ...] = ()


class PodEntry(NamedTuple):
    """A pod and its containers."""

    name: str
    namespace: str
    containers: tuple[ContainerEntry, ...] = ()


class PodResourcesService(Protocol):
    """What is served; each method may raise `RpcError`."""

    async def list_pods(self) -> Iterable[bytes]:
        """Return every pod of v1.List, each as `pod_to_wire` makes it."""

    async def get_pod(self, name: str, namespace: str) -> bytes:
        """Return one pod as `pod_to_wire` makes it."""

    async def get_allocatable(self) -> Sequence[DeviceEntry]:
        """Return every device that could be held, held or not."""

    async def list_pods_v1alpha1(self) -> Iterable[PodEntry]:
        """Return every pod of v1alpha1.List."""


def pod_resources_methods(service: PodResourcesService) -> Methods:
    """v1.PodResourcesLister and v1alpha1.PodResourcesLister."""

    async def list_pods(_payload: bytes) -> bytes:
        return b"".join(await service.list_pods())

    async def get_pod(payload: bytes) -> bytes:
        request = parse("v1.GetPodResourcesRequest", payload)
        # Field 1 of the answer is the pod, as it is of the list: the same bytes serve both.
        return await service.get_pod(request.pod_name, request.pod_namespace)

    async def get_allocatable(_payload: bytes) -> bytes:
        return allocatable_to_wire(await service.get_allocatable())

    async def list_v1alpha1(_payload: bytes) -> bytes:
        return pods_v1alpha1_to_wire(await service.list_pods_v1alpha1())

    return {
        LIST: UnaryMethod(list_pods),
        GET: UnaryMethod(get_pod),
        GET_ALLOCATABLE: UnaryMethod(get_allocatable),
        LIST_V1ALPHA1: UnaryMethod(list_v1alpha1),
    }


class PodResourcesClient:
    """Asks a kubelet, or a node of ours."""

    def __init__(self, channel: GrpcChannel) -> None:
        self._channel = channel

    async def list_pods(self, *, timeout: float) -> tuple[PodEntry, ...]:
        """v1.List; raises `RpcError`, `ProtocolError`."""
        answer = await self._channel.unary(LIST, b"", timeout=timeout)
        message = parse("v1.ListPodResourcesResponse", answer)
        return tuple(_pod_value(pod) for pod in message.pod_resources)

    async def get_pod(self, name: str, namespace: str, *, timeout: float) -> PodEntry:
        """v1.Get."""
        request = message_class("v1.GetPodResourcesRequest")(pod_name=name, pod_namespace=namespace)
        answer = await self._channel.unary(GET, serialize(request), timeout=timeout)
        return _pod_value(parse("v1.GetPodResourcesResponse", answer).pod_resources)

    async def get_allocatable(self, *, timeout: float) -> tuple[DeviceEntry, ...]:
        """v1.GetAllocatableResources."""
        answer = await self._channel.unary(GET_ALLOCATABLE, b"", timeout=timeout)
        message = parse("v1.AllocatableResourcesResponse", answer)
        return tuple(_device_value(device) for device in message.devices)

    async def list_pods_v1alpha1(self, *, timeout: float) -> tuple[PodEntry, ...]:
        """v1alpha1.List; entries without NUMA nodes."""
        answer = await self._channel.unary(LIST_V1ALPHA1, b"", timeout=timeout)
        message = parse("v1alpha1.ListPodResourcesResponse", answer)
        return tuple(_pod_value(pod) for pod in message.pod_resources)


# ---------------------------------------------------------------- messages


def pod_to_wire(pod: PodEntry) -> bytes:
    """Return `pod` as one ready entry of v1.List: a list is a join of these."""
    message = message_class("v1.ListPodResourcesResponse")()
    _fill_pod(message.pod_resources.add(), pod)
    return serialize(message)


def allocatable_to_wire(devices: Iterable[DeviceEntry]) -> bytes:
    """v1 AllocatableResourcesResponse."""
    message = message_class("v1.AllocatableResourcesResponse")()
    for device in devices:
        _fill_device(message.devices.add(), device)
    return serialize(message)


def pods_v1alpha1_to_wire(pods: Iterable[PodEntry]) -> bytes:
    """v1alpha1 ListPodResourcesResponse, which knows no NUMA nodes."""
    message = message_class("v1alpha1.ListPodResourcesResponse")()
    for pod in pods:
        entry = message.pod_resources.add(name=pod.name, namespace=pod.namespace)
        for container in pod.containers:
            listed = entry.containers.add(name=container.name)
            for device in container.devices:
                listed.devices.add(resource_name=device.resource, device_ids=device.device_ids)
    return serialize(message)


def _fill_pod(message: Any, pod: PodEntry) -> None:
    message.name, message.namespace = pod.name, pod.namespace
    for container in pod.containers:
        entry = message.containers.add(name=container.name)
        for device in container.devices:
            _fill_device(entry.devices.add(), device)


def _fill_device(message: Any, device: DeviceEntry) -> None:
    message.resource_name = device.resource
    message.device_ids.extend(device.device_ids)
    if device.numa_nodes is not None:
        message.topology.SetInParent()
        for node in device.numa_nodes:
            message.topology.nodes.add(ID=node)


def _pod_value(message: Any) -> PodEntry:
    return PodEntry(
        message.name,
        message.namespace,
        tuple(
            ContainerEntry(
                container.name, tuple(_device_value(device) for device in container.devices)
            )
            for container in message.containers
        ),
    )


def _device_value(message: Any) -> DeviceEntry:
    has_topology = "topology" in message.DESCRIPTOR.fields_by_name and message.HasField("topology")
    nodes = tuple(node.ID for node in message.topology.nodes) if has_topology else None
    return DeviceEntry(message.resource_name, tuple(message.device_ids), nodes)
