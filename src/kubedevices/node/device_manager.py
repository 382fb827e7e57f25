"""DeviceManager: the node's side of the device plugin API.

The device manager connects registration, endpoints, inventory, admission and container start, and
is the only object that changes their state. Its methods follow the device manager of the kubelet.
`services.control` offers these methods over a socket. Pure modules make the decisions. No lock is
held while a plugin is awaited.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from kubedevices.errors import (
    AdmissionRejected,
    GivenUp,
    KubedevicesError,
    NodeError,
    RegistrationError,
    RegistrationServerFailed,
)
from kubedevices.node.admission.admission import UNEXPECTED, Admission
from kubedevices.node.admission.admitted_pods import AdmittedPods
from kubedevices.node.admission.after_restart import AfterRestart, RunningContainers
from kubedevices.node.admission.concurrency import OngoingWork, PodQueue, to_its_end
from kubedevices.node.admission.container_start import ContainerStart
from kubedevices.node.arrival.endpoint_table import EndpointTable
from kubedevices.node.arrival.plugin_directory import (
    StateLock,
    claim_plugin_directory,
    make_directory,
    prepare_plugin_directory,
)
from kubedevices.node.arrival.registration import RegistrationServer
from kubedevices.node.checkpoint.writer import CheckpointWriter
from kubedevices.node.events import EventKind, NodeEvent
from kubedevices.node.inventory.inventory import Inventory
from kubedevices.node.ledger.ledger import Ledger
from kubedevices.node.node_view import HEALTH_CHECK, Allocation, NodeView
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.pods.pod_devices_store import PodDevicesStore
from kubedevices.node.settings import DEFAULTS, NodeSettings
from kubedevices.node.topology.hints import Hints
from kubedevices.node.topology.manager import HintProvider, TopologyManager
from kubedevices.node.topology.policy import TopologyAffinityError
from kubedevices.pages.metrics import (
    ADMISSIONS,
    DAMAGED_STATE,
    NO_METRICS,
    TOPOLOGY_MILLISECONDS,
    Metrics,
)
from kubedevices.values.allocation import ContainerOptions, RegisterRequest
from kubedevices.values.socket_paths import CHECKPOINT_NAME, default_state_dir

logger = logging.getLogger(__name__)


class DeviceManager(NodeView):
    """Accepts plugins in `socket_dir` and gives their devices to pods.

    `active_pods` returns the uids of all active pods, or None as long as they are not known, for
    example right after a start. Pods that are not active are released. Without `active_pods`, a pod
    is active until `release` is called.

    `running_containers` asks the container runtime. `store` replaces the ledger in `state_dir`.
    `hint_providers` give NUMA hints in addition to the hints for devices, as CPU and memory
    managers.
    """

    _is_running = False
    _end: asyncio.Task[None] | None = None

    def __init__(
        self,
        socket_dir: Path,
        *,
        state_dir: Path | None = None,
        settings: NodeSettings = DEFAULTS,
        store: PodDevicesStore | None = None,
        active_pods: Callable[[], Collection[str] | None] | None = None,
        running_containers: RunningContainers | None = None,
        hint_providers: Sequence[HintProvider] = (),
        metrics: Metrics = NO_METRICS,
    ) -> None:
        checkpoint = socket_dir / CHECKPOINT_NAME
        super().__init__(Inventory(grace_period=settings.grace_period), checkpoint)
        self.state_dir = state_dir or default_state_dir(socket_dir)
        self._metrics = metrics
        metrics.collect_from(self.gauges)
        self._endpoints = EndpointTable(
            self.inventory,
            self._events,
            expire=self.get_capacity,
            timeouts=settings.timeouts,
            receive_limit=settings.receive_limit,
        )
        self._registration = RegistrationServer(
            socket_dir,
            self.connect_plugin,
            refused=self._publish_refusal,
            metrics=metrics,
        )
        self._topology = TopologyManager(
            settings.topology,
            self.inventory,
            self.pod_devices,
            providers=hint_providers,
            metrics=metrics,
        )
        self._lock = StateLock(self.state_dir)
        self._use_store(store or Ledger(self.state_dir, checkpoint, settings.boot_id_file))
        self._after_restart = AfterRestart(
            self.inventory,
            self.pod_devices,
            self._events,
            self._store.mark_verified,
            running_containers=running_containers,
            admission_wait=settings.admission_wait,
            start_wait=settings.start_wait,
        )
        self._active_pods, self._pod_queue, self._ongoing = active_pods, PodQueue(), OngoingWork()

    def _use_store(self, store: PodDevicesStore) -> None:
        self._store = store
        self._admitted = AdmittedPods(self.pod_devices, store, self._events)
        self._checkpoint = CheckpointWriter(
            self._checkpoint_file,
            self.inventory,
            self.pod_devices,
            self._events,
            store.keep_resources,
        )

    def __repr__(self) -> str:
        """Return one line with the directory and the numbers of plugins and pods."""
        return (
            f"<DeviceManager {self._registration.socket.parent}: {len(self._endpoints)} plugins, "
            f"{len(self._admitted)} pods>"
        )

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Lock the directories, load the stored pods and accept plugins; raises `CannotAsk`."""
        make_directory(self.state_dir, 0o700)
        self._lock.acquire()
        try:
            # In this order: a kubelet that still runs must lose neither its checkpoint nor its
            # sockets, and a start that fails must leave the directory as it was.
            claim_plugin_directory(self._registration.socket)
            resources = await self._load()
            self.prepare_directory(self._registration.socket)
            await self._registration.start()
        except BaseException:
            await self._endpoints.close()
            await self._store.close()
            self._lock.release()
            raise
        self._checkpoint.start(resources)
        self._pod_queue.open()
        self._is_running = True

    async def _load(self) -> Collection[str]:
        """Load the stored pods; return the resources that had a device list before the start."""
        kept = await self._admitted.load()
        resources = set(kept.resources)
        for admitted in kept.pods:
            self._after_restart.restore(admitted)
            resources.update(holding.resource for holding in admitted.holdings)
        for resource in resources:
            self._endpoints.expect(resource)
        for damage in kept.damage:
            self._metrics.count(DAMAGED_STATE)
            self._events.publish(NodeEvent(EventKind.DAMAGED, details=damage.as_dict()))
        return kept.resources

    async def stop(self) -> None:
        """Disconnect every plugin and remove kubelet.sock. A second call does nothing.

        The stop continues when its caller is cancelled. Another caller waits for the same stop.
        """
        if self._is_running:
            self._is_running = False
            self._end = asyncio.create_task(self._stop(), name="end of the device manager")
        if self._end is not None:
            await asyncio.shield(self._end)

    async def _stop(self) -> None:
        # Closing the endpoints makes every device unhealthy, so the checkpoint is written before.
        # The store closes last, because the pod queue and the checkpoint write to the store.
        await self._registration.stop()
        await self._pod_queue.close()
        await self._checkpoint.stop()
        await self._endpoints.close()
        self._events.close()
        await self._store.close()
        self._lock.release()

    async def __aenter__(self) -> Self:
        """Start; the end of the block stops the device manager."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # The node of a test bench overrides the next two methods.

    def prepare_directory(self, kubelet_socket: Path) -> None:
        """Prepare the plugin directory for a start; raises `CannotAsk`."""
        prepare_plugin_directory(kubelet_socket)

    async def connect_plugin(self, resource: str, socket: Path) -> None:
        """Connect to a plugin that called Register; raises `RegistrationError`."""
        await self._endpoints.connect(resource, socket)

    def _publish_refusal(self, request: RegisterRequest, error: RegistrationError) -> None:
        self._refusals.append((request.resource_name, request.endpoint, str(error)))
        details = {"socket": request.endpoint, "reason": str(error)}
        self._events.publish(NodeEvent(EventKind.REFUSED, request.resource_name, details=details))

    @property
    def topology_policy(self) -> str:
        """How devices are aligned by NUMA node."""
        return self._topology.settings.policy

    # ------------------------------------------------------------ pods

    async def allocate(self, pod: Pod) -> Allocation:
        """Give each container of `pod` its devices; raises `AdmissionRejected` and gives nothing.

        A pod that already has its devices keeps them, and no plugin is called.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            return await self._pod_queue.take(
                pod.uid, lambda: self._admit(pod), can_be_cancelled=True
            )
        except AdmissionRejected as error:
            self._publish_rejection(pod, error)
            raise
        except GivenUp:
            why = "the pod was released" if self._is_running else "the node was stopped"
            given_up = AdmissionRejected(UNEXPECTED, f"{why} while the pod was being admitted")
            self._publish_rejection(pod, given_up)
            raise given_up from None
        finally:
            self._metrics.observe(TOPOLOGY_MILLISECONDS, (loop.time() - began) * 1e3)

    async def _admit(self, pod: Pod) -> Allocation:
        await self.update_allocated_devices(besides=pod.uid)
        # All steps that may wait come before the plan, because the plan has no await.
        fixed = await self._after_restart.fixed_parts(pod)
        await self._after_restart.wait_for_plugins(pod, fixed)
        self._topology.begin()
        admission = Admission(
            pod,
            self.inventory,
            self.pod_devices,
            self._endpoints.find,
            self._ongoing,
            fixed_parts=fixed,
            new_decision=partial(self._topology.new_decision, pod),
            must_stay_aligned=self._topology.is_strict,
            metrics=self._metrics,
        )
        async with admission.prepared() as responses:
            # Memory first: the reserved devices become held devices without an await between, so no
            # other pod can take them. If the store fails, `add` removes them from memory.
            holdings = admission.reservation.commit(responses)
            await self._admitted.add(pod, holdings)
        # From here the pod is admitted, even if the caller is cancelled.
        self._metrics.count(ADMISSIONS, "admitted")
        self._topology.note_admitted(pod.uid)
        if self._after_restart.has_unverified(pod.uid):
            await to_its_end(self._after_restart.note_admitted(pod))
        return self.get_allocation(pod.uid)

    def _publish_rejection(self, pod: Pod, error: AdmissionRejected) -> None:
        self._metrics.count(ADMISSIONS, "rejected")
        if isinstance(error, TopologyAffinityError):
            self._topology.note_refused()
        # A pod that was admitted before this call keeps its devices and its NUMA decision.
        if self.get_pod(pod.uid) is None:
            self._topology.forget(pod.uid)
        details = {"reason": error.reason, "message": error.message}
        self._events.publish(NodeEvent(EventKind.REJECTED, pod=pod.full_name, details=details))

    async def release(self, pod_uid: str) -> Mapping[str, tuple[str, ...]]:
        """Release the devices of a pod; return their IDs by resource.

        An admission of the pod that is still running is cancelled. Raises `GivenUp` if the node
        stops before the release began.
        """
        self._pod_queue.cancel_current(pod_uid)
        return await self._pod_queue.take(pod_uid, lambda: self._release(pod_uid))

    async def _release(self, pod_uid: str) -> Mapping[str, tuple[str, ...]]:
        resources = {holding.resource for holding in self.pod_devices.holdings(pod_uid)}
        with self._ongoing.release(resources):
            released = await self._admitted.remove(pod_uid)
        self._after_restart.forget(pod_uid)
        self._topology.forget(pod_uid)
        return released

    async def update_allocated_devices(self, *, besides: str = "") -> None:
        """Release every pod that `active_pods` does not return, except the pod `besides`."""
        found = self._active_pods() if self._active_pods is not None else None
        if found is None:
            return
        active = {*found, besides}
        for pod_uid in [pod.uid for pod in self._admitted if pod.uid not in active]:
            # Skip a pod with work in its queue: two admissions that wait here for each other's pod
            # would never end.
            if not self._pod_queue.is_taken(pod_uid):
                try:
                    await self.release(pod_uid)
                except KubedevicesError as error:
                    logger.warning("pod %s has ended but keeps its devices: %s", pod_uid, error)

    def pods(self) -> Collection[Pod]:
        """Return the pods that were admitted and not released."""
        return [*self._admitted]

    def get_pod(self, pod_uid: str) -> Pod | None:
        """Return the admitted pod with this uid."""
        return self._admitted.get(pod_uid)

    def is_of_this_boot(self, pod_uid: str) -> bool:
        """Whether the pod was admitted or verified since the machine booted."""
        return self._after_restart.is_of_this_boot(pod_uid)

    async def get_device_run_container_options(
        self, pod: Pod, container: str
    ) -> ContainerOptions | None:
        """Return the options to start a container with; None if the container has no devices.

        Calls PreStartContainer of the plugins that require the call; raises `AllocationError`. An
        admitted pod gets its devices now if a resource became known only after the admission. After
        a restart of the node, a container that does not run waits until its plugin has listed its
        devices (see `after_restart`). Raises `AdmissionRejected` if the pod is released meanwhile.
        """
        named = next((each for each in pod if each.name == container), None)
        if named is None:
            raise NodeError(f'pod "{pod.full_name}" has no container "{container}"')
        # Before the first await, because the pod may be released during each await below.
        was_admitted = pod.uid in self._admitted
        await self._after_restart.verify_start(pod, container)
        start = ContainerStart(pod, named, self.inventory, self.pod_devices, self._endpoints.find)
        if start.lacks_devices and pod.uid in self._admitted:
            await self.allocate(pod)
        await start.call_plugins()
        if was_admitted and pod.uid not in self._admitted:
            why = f'the pod was released while its container "{container}" was being started'
            raise AdmissionRejected(UNEXPECTED, why)
        return start.options()

    # ------------------------------------------------------------ the kubelet's other questions

    def get_topology_hints(self, pod: Pod, container: Container) -> Mapping[str, Hints]:
        """Return the hints of `container` by resource: which NUMA nodes could serve the request."""
        return self._topology.get_topology_hints(pod, container)

    def get_pod_topology_hints(self, pod: Pod) -> Mapping[str, Hints]:
        """Return the hints of the pod by resource: which NUMA nodes could serve the request."""
        return self._topology.get_pod_topology_hints(pod)

    def get_watcher_handler(self) -> EndpointTable:
        """Return the table that connects and disconnects plugins, for a `PluginWatcher`."""
        return self._endpoints

    def get_health_checker(self) -> tuple[str, Callable[[], None]]:
        """Return the name of a health check and a function that raises `RegistrationServerFailed`.

        A stopped device manager is healthy. A Registration service that ended by itself is not.
        """
        return HEALTH_CHECK, self._check_health

    def _check_health(self) -> None:
        if self._is_running and not self._registration.is_serving:
            raise RegistrationServerFailed
