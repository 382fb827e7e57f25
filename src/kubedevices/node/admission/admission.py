"""A whole pod, all or nothing: plan every container, ask the plugins, commit once or roll back.

Decides nothing itself and keeps nothing: the allocator chooses, the reservation holds what was
chosen while plugins are awaited, the store makes the result last. Plugins of different resources
are called concurrently, one plugin for one container after the other.

Nothing is locked meanwhile. NUMA nodes and devices of all containers are decided on in one breath,
without any await, and reserved in the same one. Plugins that want to be asked for a preference are
asked before, with nothing reserved; then all is decided again, on the state as it is by then.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from kubedevices.allocation import ContainerAllocateResponse, ContainerPreferredRequest
from kubedevices.errors import (
    AdmissionRejected,
    DevicesNoLongerHealthy,
    DevicesUnavailable,
    EndpointNotFound,
    KubedevicesError,
    UnexpectedlyFewDevices,
    UnknownPlugin,
)
from kubedevices.metrics import ALLOCATION_SECONDS, NO_METRICS, Metrics
from kubedevices.node.admission.allocator import (
    AskPlugin,
    Chosen,
    DeviceRequest,
    check_preference,
    plan,
)
from kubedevices.node.admission.order import UnderWay, concurrently
from kubedevices.node.arrival.endpoint import Endpoint
from kubedevices.node.inventory.inventory import Inventory
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.pods.pod_devices import ContainerResource, HeldDevices, Holding, PodDevices
from kubedevices.node.topology.policy import TopologyAffinityError
from kubedevices.numa import NumaNodes

logger = logging.getLogger(__name__)

UNEXPECTED = "UnexpectedAdmissionError"

_ASKED_AGAIN = 3
"""How often a plugin is asked again when others took what it preferred."""

_LONGEST_WAIT = 300.0
"""Seconds for what others have under way; each of them has deadlines, an endless row has none."""

Align = Callable[[Container, Callable[[str], Collection[str]]], NumaNodes | None]
"""Container and what it may reuse of a resource → its NUMA nodes, None where they do not matter."""

Responses = dict[ContainerResource, ContainerAllocateResponse]


class _Preference(NamedTuple):
    """What a plugin answered, to which question, and how often it was asked for this part."""

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
        under_way: UnderWay,
        *,
        settled: Collection[ContainerResource] = (),
        new_decision: Callable[[], Align] = lambda: lambda _container, _reusable: None,
        must_stay_aligned: bool = False,
        metrics: Metrics = NO_METRICS,
    ) -> None:
        """`settled` parts run since before our start and are left as they are.

        `new_decision` forgets what was decided on the NUMA nodes of the pod, and returns what
        decides for one container after the other; it may raise `AdmissionRejected`. Devices that
        `must_stay_aligned` may not move to other nodes before the pod has them.
        """
        self._must_stay_aligned = must_stay_aligned
        self._aligned: dict[ContainerResource, Mapping[int, list[str]]] = {}
        self._new_decision, self._metrics = new_decision, metrics
        self._settled, self._under_way = settled, under_way
        self._pod, self._inventory, self._pod_devices = pod, inventory, pod_devices
        self._find_endpoint = find_endpoint
        self._preferences: dict[ContainerResource, _Preference] = {}
        self.reservation = Reservation(pod, inventory, pod_devices)

    @asynccontextmanager
    async def prepared(self) -> AsyncIterator[Responses]:
        """Reserve devices and fetch the plugins' answers; commit the reservation in the block.

        Raises `AdmissionRejected`. Whatever ends the block with an error has given everything back.
        """
        try:
            await self._plan()
            # No await since the plan: whoever lacks these devices finds an admission to wait for.
            with self._under_way.admission({resource for _, resource in self.reservation.parts}):
                try:
                    responses = await self._ask_plugins()
                    # Lists may have come while the plugins were awaited.
                    self._check_health()
                    yield responses
                finally:
                    self.reservation.roll_back()
        except KubedevicesError as error:
            raise rejected(error) from error

    # ------------------------------------------------------------ planning

    async def _plan(self) -> None:
        """Return with everything reserved, or raise with nothing.

        Before it refuses, it waits for devices that others hold for now, or are about to free.
        """
        wanted = {name for each in self._pod for name, count in each.limits.items() if count}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _LONGEST_WAIT
        while True:
            try:
                questions = self._plan_now()
            except (DevicesUnavailable, UnexpectedlyFewDevices, TopologyAffinityError) as error:
                # A NUMA decision may fail for any of the resources.
                lacking = {error.resource} if isinstance(error, DevicesUnavailable) else wanted
                try:
                    async with asyncio.timeout_at(deadline):
                        may_fit = await self._under_way.may_free(lacking)
                except TimeoutError:
                    may_fit = False
                if not may_fit:
                    raise
                continue
            if not questions:
                return
            await concurrently([self._ask_preference(*each) for each in questions.items()])

    def _plan_now(self) -> dict[ContainerResource, ContainerPreferredRequest]:
        """Reserve devices for all containers, or nothing; return what plugins must be asked first.

        Without an await, so that the NUMA nodes still fit when the devices are reserved.
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
        if all((container.name, name) in self._settled for name in known):
            # What runs already is not moved, so it needs no decision.
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
            is_running=part in self._settled,
        )
        known = self._preferences.get(part)
        step = self._decide(request, known.answer if known else None)
        if known is None or known.times > _ASKED_AGAIN or isinstance(step, AskPlugin):
            return step
        if set(step.missed).isdisjoint(known.asked.available):
            return step
        return self._decide(request, None)  # it was offered what is no longer there

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
            # As at a kubelet, a plugin sees no two Allocate calls at once for one pod.
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
        """Refuse devices that went bad or moved, or whose plugin left, while plugins answered."""
        for part, device_ids in self.reservation.parts.items():
            resource = part[1]
            if not set(device_ids).issubset(self._inventory.healthy(resource)):
                raise DevicesNoLongerHealthy(resource)
            now = self._inventory.per_numa(resource, device_ids)
            if self._aligned.get(part, now) != now:
                raise TopologyAffinityError


def rejected(error: KubedevicesError) -> AdmissionRejected:
    """Return the rejection of a pod because of `error`, in the kubelet's words."""
    if isinstance(error, AdmissionRejected):
        return error
    return AdmissionRejected(UNEXPECTED, f"Allocate failed due to {error}, which is unexpected")


class Reservation:
    """The devices that a pod is about to get: reserved at once, then held or given back together.

    The admission awaits plugins in between. Whatever else happens meanwhile, the devices stay
    reserved, and a pod that fails leaves nothing behind.
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
        """Return what was taken, by container and resource; the plugins are asked for these."""
        return self._parts

    def reusable(self, resource: str) -> frozenset[str]:
        """Return the devices of finished init containers that the next container may use."""
        return frozenset(self._reusable.get(resource, ()))

    def take(self, container: Container, resource: str, device_ids: tuple[str, ...]) -> None:
        """Reserve what a plan chose, in the same breath as planning it."""
        if device_ids:
            self._inventory.reserve(resource, device_ids)
            self._parts[container.name, resource] = device_ids

    def finish(self, container: Container) -> None:
        """Note that `container` is planned, and which of its devices later containers may use.

        A plain init container leaves everything to them, a sidecar or app container keeps its own.
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
        """Give back what is only reserved; safe at any time, and more than once."""
        if self._is_open:
            self._is_open = False
            for (_, resource), device_ids in self._parts.items():
                self._inventory.unreserve(resource, device_ids)
