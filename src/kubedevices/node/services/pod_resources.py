"""The podresources service of a node: which pod holds which device, v1 and v1alpha1.

Tools that call the kubelet's `pod-resources/kubelet.sock` get the same answers here, with the same
rate limit. Our own command line uses `control`.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar

from kubedevices.errors import RpcError, StatusCode
from kubedevices.kubelet_api.pod_resources import (
    ContainerEntry,
    DeviceEntry,
    PodEntry,
    allocatable_entries,
    allocatable_to_wire,
    pod_resources_methods,
    pod_to_wire,
)
from kubedevices.node.arrival.plugin_directory import make_directory
from kubedevices.node.inventory.inventory import Inventory
from kubedevices.node.loop_slices import LoopSlices
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.pods.pod_devices import NO_NUMA_NODE, HeldDevices, PodDevices
from kubedevices.wire.unix_grpc import GrpcServer

CALLS_PER_SECOND = 100
BURST = 10
"""The kubelet's limit, shared by all callers and methods."""

_DEVICES_AT_ONCE = 64
"""Devices between two pauses: a few tenths of a millisecond."""

_ANSWERS_LIMIT = 64 * 2**20
"""Bytes of answers that wait for their readers: ten answers with 100,000 devices."""

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Node(Protocol):
    """The part of the device manager that this service uses."""

    inventory: Inventory
    pod_devices: PodDevices

    def pods(self) -> Iterable[Pod]:
        """Return the pods that were admitted and not released."""

    async def update_allocated_devices(self) -> None:
        """Release pods that are not active any more."""


class PodResourcesServer:
    """Serves `socket`. `count(method, version, failed)` counts calls within the rate limit."""

    def __init__(
        self,
        node: Node,
        socket: Path,
        *,
        count: Callable[[str, str, bool], None] = lambda _method, _version, _failed: None,
    ) -> None:
        self._node, self.socket = node, socket
        self._count = count
        self._bucket = TokenBucket(CALLS_PER_SECOND, BURST)
        # Pod uid → pod, number of its last change, and its encoded entry. In most calls, most pods
        # have not changed since the last call.
        self._encoded: dict[str, tuple[Pod, int, bytes]] = {}
        self._allocatable: asyncio.Task[bytes] | None = None
        self._server = GrpcServer(
            pod_resources_methods(self), name="podresources", max_held=_ANSWERS_LIMIT
        )

    async def start(self) -> None:
        """Listen. The socket appears when calls can be answered. Raises `CannotAsk`."""
        make_directory(self.socket.parent, 0o750)
        await self._server.start(self.socket, mode=0o660, by_rename=True)

    async def stop(self) -> None:
        """End every connection and remove the socket."""
        await self._server.stop()
        if self._allocatable is not None:
            self._allocatable.cancel()
            await asyncio.gather(self._allocatable, return_exceptions=True)

    # ------------------------------------------------------------ methods

    async def list_pods(self) -> Iterable[bytes]:
        """Answer v1.List: sidecars and app containers of every active pod."""
        self._check_rate("list", "v1")
        await self._node.update_allocated_devices()
        return self._encode_all()

    async def get_pod(self, name: str, namespace: str) -> bytes:
        """Answer v1.Get: one pod."""
        self._check_rate("get", "v1")
        await self._node.update_allocated_devices()
        for pod in self._node.pods():
            if (_name(pod), pod.namespace) == (name, namespace):
                return pod_to_wire(self._entry(pod, v1alpha1=False))
        self._count("get", "v1", True)
        raise RpcError(StatusCode.UNKNOWN, f"pod {name} in namespace {namespace} not found")

    async def get_allocatable(self) -> bytes:
        """Answer v1.GetAllocatableResources: every healthy device, free or held.

        All callers share the answer that is being made: it may have 100,000 devices.
        """
        self._check_rate("get_allocatable", "v1")
        if self._allocatable is None:
            work = LoopSlices().run(self._encode_allocatable())
            task = asyncio.create_task(work, name="allocatable devices")
            task.add_done_callback(self._forget_allocatable)
            self._allocatable = task
        return await asyncio.shield(self._allocatable)

    def _forget_allocatable(self, _: "asyncio.Task[bytes]") -> None:
        self._allocatable = None

    def _encode_allocatable(self) -> Generator[None, None, bytes]:
        """Return the encoded answer; yield after each `_DEVICES_AT_ONCE` devices.

        The devices of each resource are those of one moment.
        """
        inventory, parts = self._node.inventory, list[bytes]()
        for resource in [*inventory]:
            healthy = inventory.healthy(resource)
            devices = iter([*inventory.devices(resource).items()])
            while some := [*islice(devices, _DEVICES_AT_ONCE)]:
                parts += [
                    allocatable_to_wire(entry)
                    for device_id, device in some
                    if device_id in healthy
                    for entry in allocatable_entries(resource, device)
                ]
                yield
        return b"".join(parts)

    async def list_pods_v1alpha1(self) -> Iterable[PodEntry]:
        """Answer v1alpha1.List: app containers only."""
        self._check_rate("list", "v1alpha1")
        await self._node.update_allocated_devices()
        return [self._entry(pod, v1alpha1=True) for pod in self._node.pods()]

    # ------------------------------------------------------------ entries

    def _check_rate(self, method: str, version: str) -> None:
        if not self._bucket.take(asyncio.get_running_loop().time()):
            raise RpcError(StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        self._count(method, version, False)

    def _encode_all(self) -> list[bytes]:
        """Return every pod encoded. A pod without changes is not encoded again."""
        encoded: dict[str, tuple[Pod, int, bytes]] = {}
        for pod in self._node.pods():
            change = self._node.pod_devices.last_change(pod.uid)
            known = self._encoded.get(pod.uid)
            if known is None or known[0] is not pod or known[1] != change:
                known = pod, change, pod_to_wire(self._entry(pod, v1alpha1=False))
            encoded[pod.uid] = known
        self._encoded = encoded
        return [pod_bytes for _, _, pod_bytes in encoded.values()]

    def _entry(self, pod: Pod, *, v1alpha1: bool) -> PodEntry:
        sidecars = () if v1alpha1 else (each for each in pod.init_containers if each.is_sidecar)
        return PodEntry(
            _name(pod),
            pod.namespace,
            tuple(self._container(pod, each) for each in (*sidecars, *pod.containers)),
        )

    def _container(self, pod: Pod, container: Container) -> ContainerEntry:
        held = self._node.pod_devices.of_container(pod.uid, container.name)
        return ContainerEntry(
            container.name,
            tuple(entry for resource in held for entry in _held(resource, held[resource])),
        )


def _name(pod: Pod) -> str:
    """Return the name of a pod, or its uid if the name is unknown (imported checkpoint)."""
    return pod.name or pod.uid


def _held(resource: str, held: HeldDevices) -> Iterator[DeviceEntry]:
    """Yield one entry per device and NUMA node, as the kubelet does."""
    for node, device_ids in held.devices_per_numa.items():
        nodes = None if node == NO_NUMA_NODE else (node,)
        for device_id in device_ids:
            yield DeviceEntry(resource, (device_id,), nodes)


class TokenBucket:
    """A rate limit: at most `burst` tokens, and `rate` new tokens per second."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._tokens = float(burst)
        self._since: float | None = None

    def take(self, now: float) -> bool:
        """Take a token and return True, or return False; `now` is a monotonic time in seconds."""
        if self._since is not None:
            gained = max(0.0, now - self._since) * self._rate
            self._tokens = min(self._burst, self._tokens + gained)
        self._since = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
