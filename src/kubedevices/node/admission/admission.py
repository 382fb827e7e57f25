"""The admission of a pod: all containers get their devices, or the pod gets nothing.

The steps:

1. Plan without an await: choose NUMA nodes and devices for all containers, and reserve the devices.
   If a plugin has to be asked for its preference first, nothing is reserved; the plugin is asked,
   and the plan is made again with the state at that time.
2. Call Allocate. Plugins of different resources are called at the same time. Each plugin gets its
   containers one after the other. The devices stay reserved, so no lock is needed.
3. The caller commits the reservation and writes the pod to the store. After any failure the devices
   are free again.

A *part* is one resource of one container. `allocator` chooses the devices. This module runs the
steps and waits for the plugins.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from kubedevices.errors import (
    AdmissionRejected,
    DevicesNoLongerHealthy,
    DevicesUnavailable,
    EndpointNotFound,
    KubedevicesError,
    UnexpectedlyFewDevices,
    UnknownPlugin,
)
from kubedevices.host import deadlines
from kubedevices.node.admission.concurrency import OngoingWork, concurrently
from kubedevices.node.admission.device_choice import (
    AskPlugin,
    Chosen,
    DeviceRequest,
    check_preference,
    plan,
)
from kubedevices.node.arrival.endpoint import Endpoint
from kubedevices.node.inventory.inventory import Inventory
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.pods.pod_devices import ContainerResource, HeldDevices, Holding, PodDevices
from kubedevices.node.topology.policy import TopologyAffinityError
from kubedevices.pages.metrics import ALLOCATION_SECONDS, NO_METRICS, Metrics
from kubedevices.values.allocation import ContainerAllocateResponse, ContainerPreferredRequest
from kubedevices.values.numa import NumaNodes

logger = logging.getLogger(__name__)

UNEXPECTED = "UnexpectedAdmissionError"

_ASKED_AGAIN = 3
"""How often a plugin is asked again if other pods took the devices that the plugin preferred."""

_LONGEST_WAIT = 300.0
"""Seconds to wait for ongoing work on other pods. Each piece of work ends by its deadline, but new
work may begin again and again.
"""

Align = Callable[[Container, Callable[[str], Collection[str]]], NumaNodes | None]
"""Returns the NUMA nodes of a container, None if NUMA nodes do not matter.

The second argument is a function: resource → devices that the container may reuse.
"""

Responses = dict[ContainerResource, ContainerAllocateResponse]


class _Preference(NamedTuple):
    """The answer of a plugin, the question, and how often the plugin was asked for this part."""

    asked: ContainerPreferredRequest
    answer: tuple[str, ...]
    times: int


class Admission:
    """One attempt to give a pod its devices."""

    def __init__(
        self,
        pod: Pod,
        inventory: Inventory,
        pod_devices: PodDevices,
        find_endpoint: Callable[[str], Endpoint | None],
        ongoing: OngoingWork,
        *,
        fixed_parts: Collection[ContainerResource] = (),
        new_decision: Callable[[], Align] = lambda: lambda _container, _reusable: None,
        must_stay_aligned: bool = False,
        metrics: Metrics = NO_METRICS,
    ) -> None:
        """Store the arguments; `prepared` does the work.

        The devices of `fixed_parts` stay with their containers (see `after_restart`).
        `new_decision` discards the NUMA decisions for the pod and returns a function that decides
        for one container after the other; this function may raise `AdmissionRejected`. With
        `must_stay_aligned`, the pod is rejected if a plugin reports other NUMA nodes for its
        devices during the admission.
        """
        self._must_stay_aligned = must_stay_aligned
        self._aligned: dict[ContainerResource, Mapping[int, list[str]]] = {}
        self._new_decision, self._metrics = new_decision, metrics
        self._fixed_parts, self._ongoing = fixed_parts, ongoing
        self._pod, self._inventory, self._pod_devices = pod, inventory, pod_devices
        self._find_endpoint = find_endpoint
        self._preferences: dict[ContainerResource, _Preference] = {}
        self.reservation = Reservation(pod, inventory, pod_devices)

    @asynccontextmanager
    async def prepared(self) -> AsyncIterator[Responses]:
        """Reserve devices and call Allocate; the caller commits the reservation in the block.

        Raises `AdmissionRejected`. After an error, also in the block, all devices are free again.
        """
        try:
            await self._plan()
            # There must be no await between `_plan` and this line. Then every other pod that needs
            # these devices finds this admission and waits until it ends.
            with self._ongoing.admission({resource for _, resource in self.reservation.parts}):
                try:
                    responses = await self._ask_plugins()
                    # Device lists may have arrived while the plugins were awaited.
                    self._check_health()
                    yield responses
                finally:
                    self.reservation.roll_back()
        except KubedevicesError as error:
            raise rejected(error) from error

    # ------------------------------------------------------------ planning

    async def _plan(self) -> None:
        """Reserve the devices of all containers; raise an error with nothing reserved.

        If devices are missing, wait for ongoing admissions and releases that may free devices.
        """
        wanted = {name for each in self._pod for name, count in each.limits.items() if count}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _LONGEST_WAIT
        while True:
            try:
                questions = self._plan_now()
            except (DevicesUnavailable, UnexpectedlyFewDevices, TopologyAffinityError) as error:
                # A NUMA error does not say which resource is short, so wait for all resources.
                lacking = {error.resource} if isinstance(error, DevicesUnavailable) else wanted
                try:
                    async with deadlines.timeout_at(deadline):
                        may_fit = await self._ongoing.may_free(lacking)
                except TimeoutError:
                    may_fit = False
                if not may_fit:
                    raise
                continue
            if not questions:
                return
            await concurrently([self._ask_preference(*each) for each in questions.items()])

    def _plan_now(self) -> dict[ContainerResource, ContainerPreferredRequest]:
        """Reserve devices for all containers, or return the questions to ask plugins first.

        There is no await, so the NUMA decision still holds when the devices are reserved.
        """
        self.reservation = Reservation(self._pod, self._inventory, self._pod_devices)
        align = self._new_decision()
        self._aligned = {}
        questions: dict[ContainerResource, ContainerPreferredRequest] = {}
        try:
            for container in self._pod:
                questions = self._plan_container(container, align)
                if questions:
                    break
                self.reservation.finish(container)
        except BaseException:
            self.reservation.roll_back()
            raise
        if questions:
            self.reservation.roll_back()
        return questions

    def _plan_container(
        self, container: Container, align: Align
    ) -> dict[ContainerResource, ContainerPreferredRequest]:
        known = [name for name in container.limits if self._inventory.is_known(name)]
        if all((container.name, name) in self._fixed_parts for name in known):
            # All devices of the container are fixed, so no NUMA decision is needed.
            numa_nodes = None
        else:
            numa_nodes = align(container, self.reservation.reusable)
        questions = {}
        for resource in known:
            step = self._choose(container, resource, numa_nodes)
            if isinstance(step, AskPlugin):
                questions[container.name, resource] = step.request
            else:
                self.reservation.take(container, resource, step.device_ids)
                if self._must_stay_aligned and numa_nodes is not None:
                    self._aligned[container.name, resource] = self._inventory.per_numa(
                        resource, step.device_ids
                    )
        return questions

    def _choose(
        self, container: Container, resource: str, numa_nodes: NumaNodes | None
    ) -> AskPlugin | Chosen:
        part = (container.name, resource)
        request = DeviceRequest(
            self._pod.uid,
            container.name,
            resource,
            container.limits[resource],
            self.reservation.reusable(resource),
            affinity=numa_nodes,
            is_fixed=part in self._fixed_parts,
        )
        known = self._preferences.get(part)
        step = self._decide(request, known.answer if known else None)
        if known is None or known.times > _ASKED_AGAIN or isinstance(step, AskPlugin):
            return step
        if set(step.missed).isdisjoint(known.asked.available):
            return step
        # Other pods took the preferred devices. With None, `plan` asks the plugin again.
        return self._decide(request, None)

    def _decide(self, request: DeviceRequest, answer: Sequence[str] | None) -> AskPlugin | Chosen:
        return plan(request, self._inventory, self._pod_devices, answer=answer)

    async def _ask_preference(
        self, part: ContainerResource, request: ContainerPreferredRequest
    ) -> None:
        _, resource = part
        endpoint = self._find_endpoint(resource)
        if endpoint is None:
            raise EndpointNotFound(resource)
        answer = await endpoint.get_preferred_allocation(request)
        for problem in check_preference(resource, request, answer):
            logger.warning("%s", problem)
        before = self._preferences.get(part)
        times = before.times + 1 if before else 1
        self._preferences[part] = _Preference(request, answer, times)

    # ------------------------------------------------------------ the plugins' answers

    async def _ask_plugins(self) -> Responses:
        by_resource: dict[str, list[ContainerResource]] = {}
        for part in self.reservation.parts:
            by_resource.setdefault(part[1], []).append(part)
        responses: Responses = {}
        loop = asyncio.get_running_loop()

        async def ask(resource: str, parts: list[ContainerResource]) -> None:
            # As the kubelet does, never send a plugin two Allocate calls for one pod at once.
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
        """Raise if, during Allocate, a device became unhealthy or moved, or its plugin left."""
        for part, device_ids in self.reservation.parts.items():
            resource = part[1]
            if not set(device_ids).issubset(self._inventory.healthy(resource)):
                raise DevicesNoLongerHealthy(resource)
            now = self._inventory.per_numa(resource, device_ids)
            if self._aligned.get(part, now) != now:
                raise TopologyAffinityError


def rejected(error: KubedevicesError) -> AdmissionRejected:
    """Return `error` as the rejection of a pod, with the kubelet's wording."""
    if isinstance(error, AdmissionRejected):
        return error
    return AdmissionRejected(UNEXPECTED, f"Allocate failed due to {error}, which is unexpected")


class Reservation:
    """The devices that a pod is about to get. All become held by the pod, or all become free.

    The devices stay reserved while the admission awaits the plugins.
    """

    def __init__(self, pod: Pod, inventory: Inventory, pod_devices: PodDevices) -> None:
        self.pod = pod
        self._inventory, self._pod_devices = inventory, pod_devices
        self._parts: dict[ContainerResource, tuple[str, ...]] = {}
        self._reusable: dict[str, set[str]] = {}
        self._is_open = True

    def __repr__(self) -> str:
        state = "open" if self._is_open else "closed"
        return f"<Reservation of {len(self._parts)} parts for {self.pod.uid}, {state}>"

    @property
    def parts(self) -> Mapping[ContainerResource, tuple[str, ...]]:
        """The reserved devices by container and resource, in the order of the Allocate calls."""
        return self._parts

    def reusable(self, resource: str) -> frozenset[str]:
        """Return the devices of earlier init containers, which the next container may use too."""
        return frozenset(self._reusable.get(resource, ()))

    def take(self, container: Container, resource: str, device_ids: tuple[str, ...]) -> None:
        """Reserve devices that were just chosen. The caller must not await in between."""
        if device_ids:
            self._inventory.reserve(resource, device_ids)
            self._parts[container.name, resource] = device_ids

    def finish(self, container: Container) -> None:
        """Record which devices of a planned `container` the later containers may use.

        A plain init container ends before the later containers start, so they may use its devices.
        A sidecar or app container keeps its devices.
        """
        for resource in container.limits:
            ids = self._parts.get((container.name, resource)) or self._pod_devices.device_ids(
                self.pod.uid, container.name, resource
            )
            if self.pod.is_plain_init(container):
                self._reusable.setdefault(resource, set()).update(ids)
            else:
                self._reusable.get(resource, set()).difference_update(ids)

    def commit(
        self, responses: Mapping[ContainerResource, ContainerAllocateResponse]
    ) -> tuple[Holding, ...]:
        """Let the pod hold the reserved devices, with a response per part; return the entries."""
        holdings = tuple(
            Holding(
                self.pod.uid,
                container,
                resource,
                HeldDevices(
                    self._inventory.per_numa(resource, device_ids),
                    responses[container, resource],
                ),
            )
            for (container, resource), device_ids in self._parts.items()
        )
        for holding in holdings:
            self._pod_devices.insert(*holding)
        self.roll_back()
        return holdings

    def roll_back(self) -> None:
        """Cancel the reservation. May be called at any time and more than once."""
        if self._is_open:
            self._is_open = False
            for (_, resource), device_ids in self._parts.items():
                self._inventory.unreserve(resource, device_ids)
