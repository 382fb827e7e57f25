"""A whole pod, all or nothing: plan every container, ask the plugins, commit once or roll back.

Decides nothing itself and keeps nothing: the allocator chooses, the reservation holds what was
chosen while plugins are awaited, the store makes the result last. Plugins of different resources
are called concurrently, one plugin for one container after the other. Nothing is locked meanwhile,
so everything is looked at again after each call.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from kubedevices.allocation import ContainerAllocateResponse
from kubedevices.errors import (
    AdmissionRejected,
    DevicesNoLongerHealthy,
    EndpointNotFound,
    KubedevicesError,
    UnknownPlugin,
)
from kubedevices.metrics import ALLOCATION_SECONDS, NO_METRICS, Metrics
from kubedevices.node.allocator import AskPlugin, Chosen, DeviceRequest, plan
from kubedevices.node.concurrently import concurrently
from kubedevices.node.endpoint import Endpoint
from kubedevices.node.inventory import Inventory
from kubedevices.node.pod import Container, Pod
from kubedevices.node.pod_devices import PodDevices
from kubedevices.node.reservation import Part, Reservation
from kubedevices.numa import NumaNodes

logger = logging.getLogger(__name__)

UNEXPECTED = "UnexpectedAdmissionError"

Align = Callable[[Container, Callable[[str], Collection[str]]], NumaNodes | None]
"""Container and what it may reuse of a resource → its NUMA nodes, None where they do not matter."""

Responses = dict[Part, ContainerAllocateResponse]


class Admission:
    """One attempt to give a pod its devices."""

    def __init__(
        self,
        pod: Pod,
        inventory: Inventory,
        pod_devices: PodDevices,
        find_endpoint: Callable[[str], Endpoint | None],
        *,
        settled: Collection[Part] = (),
        align: Align = lambda _container, _reusable: None,
        metrics: Metrics = NO_METRICS,
        compat: bool = False,
    ) -> None:
        """`settled` parts run since before our start and are left as they are.

        `align` decides on the NUMA nodes of a container; it may raise `AdmissionRejected`.
        """
        self._align, self._metrics = align, metrics
        self._settled = settled
        self._pod, self._inventory, self._pod_devices = pod, inventory, pod_devices
        self._find_endpoint, self._compat = find_endpoint, compat
        self.reservation = Reservation(pod, inventory, pod_devices)

    async def prepare(self) -> Responses:
        """Reserve devices and fetch the plugins' answers; raises `AdmissionRejected`.

        Whatever ends this other than a return has given everything back.
        """
        try:
            await self._plan()
            responses = await self._ask_plugins()
            if not self._compat:
                self._check_health()
        except KubedevicesError as error:
            self.reservation.roll_back()
            raise rejected(error) from error
        except BaseException:
            self.reservation.roll_back()
            raise
        return responses

    # ------------------------------------------------------------ planning

    async def _plan(self) -> None:
        for container in self._pod:
            known = [name for name in container.limits if self._inventory.is_known(name)]
            if known:
                numa_nodes = None
                if not all((container.name, name) in self._settled for name in known):
                    numa_nodes = self._align(container, self.reservation.reusable)
                await concurrently([self._choose(container, name, numa_nodes) for name in known])
            self.reservation.finish(container)

    async def _choose(
        self, container: Container, resource: str, numa_nodes: NumaNodes | None
    ) -> None:
        request = DeviceRequest(
            self._pod.uid,
            container.name,
            resource,
            container.limits[resource],
            self.reservation.reusable(resource),
            affinity=numa_nodes,
            is_running=(container.name, resource) in self._settled,
        )
        answer: Sequence[str] | None = None
        while isinstance(step := self._decide(request, answer), AskPlugin):
            answer = await self._endpoint_with_preference(resource).get_preferred_allocation(
                step.request
            )
        for warning in step.warnings:
            logger.warning("%s", warning)
        self.reservation.take(container, resource, step.device_ids)

    def _decide(self, request: DeviceRequest, answer: Sequence[str] | None) -> AskPlugin | Chosen:
        return plan(request, self._inventory, self._pod_devices, answer=answer, compat=self._compat)

    def _endpoint_with_preference(self, resource: str) -> Endpoint:
        endpoint = self._find_endpoint(resource)
        if endpoint is None:
            raise EndpointNotFound(resource)
        return endpoint

    # ------------------------------------------------------------ the plugins' answers

    async def _ask_plugins(self) -> Responses:
        by_resource: dict[str, list[Part]] = {}
        for part in self.reservation.parts:
            by_resource.setdefault(part[1], []).append(part)
        responses: Responses = {}
        loop = asyncio.get_running_loop()

        async def ask(resource: str, parts: list[Part]) -> None:
            for part in parts:
                began = loop.time()
                try:
                    endpoint = self._find_endpoint(resource)
                    if endpoint is None:
                        raise UnknownPlugin(resource)
                    responses[part] = await endpoint.allocate(self.reservation.parts[part])
                finally:
                    self._metrics.observe(ALLOCATION_SECONDS, loop.time() - began, resource)

        if by_resource:
            await concurrently([ask(resource, parts) for resource, parts in by_resource.items()])
        return responses

    def _check_health(self) -> None:
        """Refuse devices that went bad, or whose plugin went away, while plugins were answering."""
        for (_, resource), device_ids in self.reservation.parts.items():
            if not set(device_ids).issubset(self._inventory.healthy(resource)):
                raise DevicesNoLongerHealthy(resource)


def rejected(error: KubedevicesError) -> AdmissionRejected:
    """Return the rejection of a pod because of `error`, in the kubelet's words."""
    if isinstance(error, AdmissionRejected):
        return error
    return AdmissionRejected(UNEXPECTED, f"Allocate failed due to {error}, which is unexpected")
