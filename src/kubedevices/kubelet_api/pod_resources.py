"""The podresources API, v1 and v1alpha1: values, their messages, the service and a client.

The kubelet reports on this API which pod holds which device. `node.services.pod_resources` serves
it for our node. `kubelet_devices` asks a real kubelet.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from kubedevices.kubelet_api.convert import TOPOLOGY
from kubedevices.kubelet_api.protobuf import Field, Message, block
from kubedevices.values.device import ReportedDevice
from kubedevices.wire.unix_grpc import GrpcChannel, Methods, UnaryMethod

LIST = "/v1.PodResourcesLister/List"
GET_ALLOCATABLE = "/v1.PodResourcesLister/GetAllocatableResources"
GET = "/v1.PodResourcesLister/Get"
LIST_V1ALPHA1 = "/v1alpha1.PodResourcesLister/List"


class DeviceEntry(NamedTuple):
    """A ContainerDevices message. `numa_nodes` is None if the message has no topology.

    A kubelet sends one entry per device and NUMA node, so a device on two NUMA nodes has two.
    """

    resource: str
    device_ids: tuple[str, ...]
    numa_nodes: tuple[int, ...] | None = None


class ClaimedDevice(NamedTuple):
    """A ClaimResource message: a device of a DRA driver, by its name in a pool of ResourceSlices.

    `share_id` is empty unless several claims may share the device.
    """

    driver: str
    pool: str
    device: str
    share_id: str = ""


class ClaimEntry(NamedTuple):
    """A DynamicResource message: a ResourceClaim whose devices a container has."""

    name: str
    namespace: str
    devices: tuple[ClaimedDevice, ...] = ()


class ContainerEntry(NamedTuple):
    """A container, the devices of device plugins that it holds, and its claims."""

    name: str
    devices: tuple[DeviceEntry, ...] = ()
    claims: tuple[ClaimEntry, ...] = ()


class PodEntry(NamedTuple):
    """A pod and its containers."""

    name: str
    namespace: str
    containers: tuple[ContainerEntry, ...] = ()


_DEVICES = Message(
    "v1.ContainerDevices",
    DeviceEntry,
    Field(1, "resource", "text"),
    Field(2, "device_ids", "texts"),
    Field(3, "numa_nodes", "optional", of=TOPOLOGY),
)
_CLAIMED = Message(
    "v1.ClaimResource",
    ClaimedDevice,
    Field(2, "driver", "text"),
    Field(3, "pool", "text"),
    Field(4, "device", "text"),
    Field(5, "share_id", "text"),
)
_CLAIM = Message(
    "v1.DynamicResource",
    ClaimEntry,
    Field(2, "name", "text"),
    Field(3, "namespace", "text"),
    Field(4, "devices", "messages", of=_CLAIMED),
)
_CONTAINER = Message(
    "v1.ContainerResources",
    ContainerEntry,
    Field(1, "name", "text"),
    Field(2, "devices", "messages", of=_DEVICES),
    Field(5, "claims", "messages", of=_CLAIM),
)
_NAME, _NAMESPACE = Field(1, "name", "text"), Field(2, "namespace", "text")
POD = Message(
    "v1.PodResources",
    PodEntry,
    _NAME,
    _NAMESPACE,
    Field(3, "containers", "messages", of=_CONTAINER),
)
POD_LIST: Message[tuple[PodEntry, ...]] = Message(
    "v1.ListPodResourcesResponse", tuple, Field(1, "", "messages", of=POD)
)
"""The same message as in v1alpha1, where devices have no NUMA nodes."""

ALLOCATABLE: Message[tuple[DeviceEntry, ...]] = Message(
    "v1.AllocatableResourcesResponse", tuple, Field(1, "", "messages", of=_DEVICES)
)
GET_REQUEST = Message("v1.GetPodResourcesRequest", PodEntry, _NAME, _NAMESPACE)
GET_RESPONSE: Message[PodEntry] = Message(
    "v1.GetPodResourcesResponse", lambda pod: pod, Field(1, "", "message", of=POD)
)


class PodResourcesService(Protocol):
    """The methods of the service; each may raise `RpcError`."""

    async def list_pods(self) -> Iterable[bytes]:
        """Return all pods of v1.List, each encoded by `pod_to_wire`."""

    async def get_pod(self, name: str, namespace: str) -> bytes:
        """Return one pod, encoded by `pod_to_wire`."""

    async def get_allocatable(self) -> bytes:
        """Return all allocatable devices, held or not, each encoded by `allocatable_to_wire`."""

    async def list_pods_v1alpha1(self) -> Iterable[PodEntry]:
        """Return all pods of v1alpha1.List."""


def pod_resources_methods(service: PodResourcesService) -> Methods:
    """Return the methods of v1.PodResourcesLister and v1alpha1.PodResourcesLister."""

    async def list_pods(_payload: bytes) -> bytes:
        return b"".join(await service.list_pods())

    async def get_pod(payload: bytes) -> bytes:
        asked = GET_REQUEST.from_wire(payload)
        # The pod is field 1 of the response, as in the list: an entry of a list is a response.
        return await service.get_pod(asked.name, asked.namespace)

    async def get_allocatable(_payload: bytes) -> bytes:
        return await service.get_allocatable()

    async def list_v1alpha1(_payload: bytes) -> bytes:
        return pods_v1alpha1_to_wire(await service.list_pods_v1alpha1())

    return {
        LIST: UnaryMethod(list_pods),
        GET: UnaryMethod(get_pod),
        GET_ALLOCATABLE: UnaryMethod(get_allocatable),
        LIST_V1ALPHA1: UnaryMethod(list_v1alpha1),
    }


class PodResourcesClient:
    """Client for a kubelet or for our node; raises `RpcError`, `ProtocolError`.

    A thread decodes long answers.
    """

    def __init__(self, channel: GrpcChannel) -> None:
        self._channel = channel

    async def list_pods(self, *, timeout: float) -> tuple[PodEntry, ...]:
        """v1.List."""
        answer = await self._channel.unary(LIST, b"", timeout=timeout)
        return await asyncio.to_thread(POD_LIST.from_wire, answer)

    async def get_pod(self, name: str, namespace: str, *, timeout: float) -> PodEntry:
        """v1.Get."""
        request = GET_REQUEST.to_wire(PodEntry(name, namespace))
        return GET_RESPONSE.from_wire(await self._channel.unary(GET, request, timeout=timeout))

    async def get_allocatable(self, *, timeout: float) -> tuple[DeviceEntry, ...]:
        """v1.GetAllocatableResources."""
        answer = await self._channel.unary(GET_ALLOCATABLE, b"", timeout=timeout)
        return await asyncio.to_thread(ALLOCATABLE.from_wire, answer)

    async def list_pods_v1alpha1(self, *, timeout: float) -> tuple[PodEntry, ...]:
        """v1alpha1.List; entries without NUMA nodes."""
        answer = await self._channel.unary(LIST_V1ALPHA1, b"", timeout=timeout)
        return await asyncio.to_thread(POD_LIST.from_wire, answer)


# ---------------------------------------------------------------- entries


def pod_to_wire(pod: PodEntry) -> bytes:
    """Return `pod` as one encoded entry of v1.List: a list is a join of entries."""
    return block(1, POD.to_wire(pod))


def allocatable_entries(resource: str, device: ReportedDevice) -> Iterator[DeviceEntry]:
    """Yield one entry per NUMA node of the device, or one entry without a node.

    The kubelet leaves out a device whose topology names no node.
    """
    if device.numa_nodes:
        for node in device.numa_nodes:
            yield DeviceEntry(resource, (device.id,), (node,))
    else:
        yield DeviceEntry(resource, (device.id,))


def allocatable_to_wire(device: DeviceEntry) -> bytes:
    """Return `device` as one encoded entry of v1.GetAllocatableResources."""
    return block(1, _DEVICES.to_wire(device))


def pods_v1alpha1_to_wire(pods: Iterable[PodEntry]) -> bytes:
    """Return a v1alpha1 ListPodResourcesResponse: like v1, but without NUMA nodes."""
    return POD_LIST.to_wire(map(_without_numa_nodes, pods))


def _without_numa_nodes(pod: PodEntry) -> PodEntry:
    containers = [
        ContainerEntry(each.name, tuple([one._replace(numa_nodes=None) for one in each.devices]))
        for each in pod.containers
    ]
    return pod._replace(containers=tuple(containers))
