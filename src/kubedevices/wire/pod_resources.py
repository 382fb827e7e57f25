"""The podresources API, v1 and v1alpha1: values, their messages, the service and a client.

Which pod holds which device, as a kubelet tells its neighbours. `node.pod_resources` serves it;
`kubedevices devices` also asks a real kubelet.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from kubedevices.wire.convert import topology_to_wire
from kubedevices.wire.device_lists import topology_value
from kubedevices.wire.protobuf import Fields, block, read, text, texts
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
        name, namespace = read(
            "v1.GetPodResourcesRequest", payload, lambda message: (message.text(1), message.text(2))
        )
        # Field 1 of the answer is the pod, as it is of the list: the same bytes serve both.
        return await service.get_pod(name, namespace)

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
        return read("v1.ListPodResourcesResponse", answer, _pods)

    async def get_pod(self, name: str, namespace: str, *, timeout: float) -> PodEntry:
        """v1.Get."""
        request = text(1, name) + text(2, namespace)
        answer = await self._channel.unary(GET, request, timeout=timeout)
        return read(
            "v1.GetPodResourcesResponse", answer, lambda message: _pod_value(message.message(1))
        )

    async def get_allocatable(self, *, timeout: float) -> tuple[DeviceEntry, ...]:
        """v1.GetAllocatableResources."""
        answer = await self._channel.unary(GET_ALLOCATABLE, b"", timeout=timeout)
        return read(
            "v1.AllocatableResourcesResponse",
            answer,
            lambda message: tuple([_device_value(device) for device in message.messages(1)]),
        )

    async def list_pods_v1alpha1(self, *, timeout: float) -> tuple[PodEntry, ...]:
        """v1alpha1.List; entries without NUMA nodes."""
        answer = await self._channel.unary(LIST_V1ALPHA1, b"", timeout=timeout)
        return read("v1alpha1.ListPodResourcesResponse", answer, _pods)


# ---------------------------------------------------------------- messages


def pod_to_wire(pod: PodEntry) -> bytes:
    """Return `pod` as one ready entry of v1.List: a list is a join of these."""
    containers = [
        block(3, text(1, each.name) + _devices_to_wire(2, each.devices)) for each in pod.containers
    ]
    return block(1, text(1, pod.name) + text(2, pod.namespace) + b"".join(containers))


def allocatable_to_wire(devices: Iterable[DeviceEntry]) -> bytes:
    """v1 AllocatableResourcesResponse."""
    return _devices_to_wire(1, devices)


def pods_v1alpha1_to_wire(pods: Iterable[PodEntry]) -> bytes:
    """v1alpha1 ListPodResourcesResponse: that of v1, but without NUMA nodes."""
    return b"".join([pod_to_wire(_without_numa_nodes(pod)) for pod in pods])


def _without_numa_nodes(pod: PodEntry) -> PodEntry:
    containers = [
        ContainerEntry(each.name, tuple([one._replace(numa_nodes=None) for one in each.devices]))
        for each in pod.containers
    ]
    return pod._replace(containers=tuple(containers))


def _devices_to_wire(number: int, devices: Iterable[DeviceEntry]) -> bytes:
    return b"".join(
        [
            block(
                number,
                text(1, each.resource)
                + texts(2, each.device_ids)
                + topology_to_wire(3, each.numa_nodes),
            )
            for each in devices
        ]
    )


def _pods(message: Fields) -> tuple[PodEntry, ...]:
    return tuple([_pod_value(pod) for pod in message.messages(1)])


def _pod_value(message: Fields) -> PodEntry:
    containers = [
        ContainerEntry(each.text(1), tuple([_device_value(one) for one in each.messages(2)]))
        for each in message.messages(3)
    ]
    return PodEntry(message.text(1), message.text(2), tuple(containers))


def _device_value(message: Fields) -> DeviceEntry:
    return DeviceEntry(message.text(1), message.texts(2), topology_value(message, 3))
