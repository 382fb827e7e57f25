"""DeviceManager: the node's half of the device plugin API, and the only stateful way into it.

Wires registration, endpoints, inventory, admission and container start together. Its methods follow
the kubelet's own device manager; who wants it over a socket uses `control`. Decisions are made by
pure modules; nothing is locked while a plugin is awaited.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Self

from kubedevices.allocation import ContainerOptions, RegisterRequest
from kubedevices.device import ReportedDevice
from kubedevices.errors import (
    AdmissionRejected,
    KubedevicesError,
    NodeError,
    NotInTime,
    RegistrationError,
)
from kubedevices.host.boot_id import BOOT_ID_FILE
from kubedevices.node.admission import UNEXPECTED, Admission, rejected
from kubedevices.node.admitted_pods import AdmittedPods
from kubedevices.node.after_restart import START_WAIT, AfterRestart, RunningContainers
from kubedevices.node.checkpoint_writer import CheckpointWriter
from kubedevices.node.container_start import ContainerStart
from kubedevices.node.endpoint import RECEIVE_LIMIT, PluginTimeouts
from kubedevices.node.endpoint_table import EndpointTable
from kubedevices.node.events import BACKLOG, EventKind, EventSource, EventStream, NodeEvent
from kubedevices.node.inventory import GRACE_PERIOD, Capacity, Inventory
from kubedevices.node.ledger import Ledger
from kubedevices.node.plugin_directory import (
    StateLock,
    make_directory,
    prepare_plugin_directory,
)
from kubedevices.node.pod import Pod
from kubedevices.node.pod_devices import PodDevices
from kubedevices.node.pod_devices_store import PodDevicesStore
from kubedevices.node.registration import RegistrationServer
from kubedevices.node.turns import Turns
from kubedevices.socket_paths import CHECKPOINT_NAME, default_state_dir

logger = logging.getLogger(__name__)

Allocation = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Container name → resource → device IDs."""


class DeviceManager:
    """Accepts plugins in `socket_dir` and gives their devices to pods."""

    def __init__(
        self,
        socket_dir: Path,
        *,
        state_dir: Path | None = None,
        grace_period: float = GRACE_PERIOD,
        timeouts: PluginTimeouts | None = None,
        receive_limit: int = RECEIVE_LIMIT,
        store: PodDevicesStore | None = None,
        active_pods: Callable[[], Collection[str]] | None = None,
        running_containers: RunningContainers | None = None,
        admission_wait: float = 0,
        start_wait: float = START_WAIT,
        boot_id_file: Path = BOOT_ID_FILE,
        compat: bool = False,
    ) -> None:
        """`active_pods` gives the uids of the pods that live; without it, those not released.

        `running_containers` asks the container runtime, if there is one. After a restart an
        admission waits `admission_wait` seconds for plugins that have not come back, a container's
        start `start_wait` seconds. `store` replaces the ledger in `state_dir`.
        """
        self.state_dir = state_dir or default_state_dir(socket_dir)
        self.inventory = Inventory(grace_period=grace_period, compat=compat)
        self.pod_devices = PodDevices(self.inventory)
        self._compat = compat
        self._events = EventSource()
        self._endpoints = EndpointTable(
            self.inventory,
            self._events,
            expire=self.get_capacity,
            timeouts=timeouts,
            receive_limit=receive_limit,
            reopen_streams=not compat,
        )
        self._registration = RegistrationServer(
            socket_dir, self._endpoints.connect, refused=self._tell_refused, compat=compat
        )
        self._lock = StateLock(self.state_dir)
        checkpoint = socket_dir / CHECKPOINT_NAME
        self._store = store or Ledger(self.state_dir, checkpoint, boot_id_file)
        self._admitted = AdmittedPods(self.pod_devices, self._store, self._events)
        self._checkpoint = CheckpointWriter(
            checkpoint, self.inventory, self.pod_devices, self._events, self._store.keep_resources
        )
        self._after_restart = AfterRestart(
            self.inventory,
            self.pod_devices,
            self._events,
            self._store.confirm,
            running_containers=running_containers,
            admission_wait=admission_wait,
            start_wait=start_wait,
            compat=compat,
        )
        self._active_pods = active_pods
        self._turns = Turns()
        self._is_running = False

    def __repr__(self) -> str:
        """Say where it is and how much it has, in one line."""
        return (
            f"<DeviceManager {self._registration.socket.parent}: {len(self._endpoints)} plugins, "
            f"{len(self._admitted)} pods>"
        )

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Take the directories over and accept plugins; raises `CannotAsk`."""
        make_directory(self.state_dir, 0o700)
        self._lock.acquire()
        try:
            prepare_plugin_directory(self._registration.socket, compat=self._compat)
            resources = await self._load()
            await self._registration.start()
        except BaseException:
            await self._store.close()
            self._lock.release()
            raise
        self._checkpoint.start(resources)
        self._is_running = True

    async def _load(self) -> Collection[str]:
        """Take over the pods from before; return the resources that are known from then."""
        kept = await self._admitted.load()
        resources = set(kept.resources)
        for admitted in kept.pods:
            self._after_restart.restore(admitted)
            resources.update(holding.resource for holding in admitted.holdings)
        for resource in resources:
            self._endpoints.expect(resource)
        for damage in kept.damage:
            self._events.publish(NodeEvent(EventKind.DAMAGED, details=damage.as_dict()))
        return kept.resources

    async def stop(self) -> None:
        """Disconnect every plugin and remove kubelet.sock; harmless when repeated."""
        if not self._is_running:
            return
        self._is_running = False
        await self._registration.stop()
        await self._turns.cancel_all()
        await self._checkpoint.stop()
        await self._endpoints.close()
        self._events.close()
        await self._store.close()
        self._lock.release()

    async def __aenter__(self) -> Self:
        """Start; the end of the block stops."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _tell_refused(self, request: RegisterRequest, error: RegistrationError) -> None:
        details = {"socket": request.endpoint, "reason": str(error)}
        self._events.publish(NodeEvent(EventKind.REFUSED, request.resource_name, details=details))

    # ------------------------------------------------------------ pods

    async def allocate(self, pod: Pod) -> Allocation:
        """Give every container of `pod` its devices, or nothing: raises `AdmissionRejected`.

        A pod that has its devices gets the same ones, without a call to a plugin.
        """
        try:
            await self._turns.take(pod.uid, lambda: self._admit(pod), gives_way=True)
        except AdmissionRejected as error:
            self._tell_rejected(pod, error)
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            why = "the pod was released" if self._is_running else "the node was stopped"
            given_up = AdmissionRejected(UNEXPECTED, f"{why} while the pod was being admitted")
            self._tell_rejected(pod, given_up)
            raise given_up from None
        return self.get_allocation(pod.uid)

    async def _admit(self, pod: Pod) -> None:
        await self.update_allocated_devices(besides=pod.uid)
        settled = await self._after_restart.settled(pod)
        await self._after_restart.wait_for_plugins(pod, settled)
        admission = Admission(
            pod,
            self.inventory,
            self.pod_devices,
            self._endpoints.find,
            settled=settled,
            compat=self._compat,
        )
        responses = await admission.prepare()
        try:
            await self._admitted.add(pod, admission.reservation.commit(responses))
        except KubedevicesError as error:
            raise rejected(error) from error
        await self._after_restart.note_admitted(pod)

    def _tell_rejected(self, pod: Pod, error: AdmissionRejected) -> None:
        details = {"reason": error.reason, "message": error.message}
        self._events.publish(NodeEvent(EventKind.REJECTED, pod=pod.full_name, details=details))

    async def release(self, pod_uid: str) -> Mapping[str, tuple[str, ...]]:
        """Take back what the pod holds, by resource; an admission under way is given up."""
        self._turns.make_way(pod_uid)
        released = await self._turns.take(pod_uid, lambda: self._admitted.remove(pod_uid))
        self._after_restart.forget(pod_uid)
        return released

    async def update_allocated_devices(self, *, besides: str = "") -> None:
        """Release every pod that `active_pods` no longer names, except the pod `besides`."""
        if self._active_pods is None:
            return
        active = {*self._active_pods(), besides}
        for pod_uid in [pod.uid for pod in self._admitted if pod.uid not in active]:
            if not self._turns.is_taken(pod_uid):
                try:
                    await self.release(pod_uid)
                except KubedevicesError as error:
                    logger.warning("pod %s is gone and keeps its devices: %s", pod_uid, error)

    def pods(self) -> Collection[Pod]:
        """Return the pods that were admitted and not released."""
        return [*self._admitted]

    def get_pod(self, pod_uid: str) -> Pod | None:
        """Return the admitted pod with this uid."""
        return self._admitted.get(pod_uid)

    def get_allocation(self, pod_uid: str) -> Allocation:
        """Return what each container of the pod holds."""
        containers: dict[str, dict[str, tuple[str, ...]]] = {}
        for _, container, resource, held in self.pod_devices.holdings(pod_uid):
            containers.setdefault(container, {})[resource] = held.device_ids
        return containers

    async def get_device_run_container_options(
        self, pod: Pod, container: str
    ) -> ContainerOptions | None:
        """Return what a container is to be started with now, None when no device is involved.

        Calls PreStartContainer where the plugin wants it; raises `AllocationError`. An admitted pod
        whose resource became known only later gets its devices now. After a restart of the node a
        container that does not run waits until its plugin has vouched for its devices.
        """
        named = next((each for each in pod if each.name == container), None)
        if named is None:
            raise NodeError(f'pod "{pod.full_name}" has no container "{container}"')
        await self._after_restart.verify_start(pod, container)
        start = ContainerStart(pod, named, self.inventory, self.pod_devices, self._endpoints.find)
        await start.call_plugins()
        if start.lacks_devices and pod.uid in self._admitted:
            await self.allocate(pod)
        return start.options()

    # ------------------------------------------------------------ devices

    def get_capacity(self) -> Capacity:
        """Return capacity and allocatable per resource; `removed` is told once."""
        capacity = self.inventory.get_capacity(asyncio.get_running_loop().time())
        for resource in capacity.removed:
            logger.info("%s: removed, its plugin did not come back", resource)
            self._events.publish(NodeEvent(EventKind.REMOVED, resource))
        return capacity

    def get_devices(
        self, pod_uid: str, container: str
    ) -> Mapping[str, Mapping[int, tuple[str, ...]]]:
        """Return what a container holds: resource → NUMA node (-1 for none) → device IDs."""
        return {
            resource: {node: tuple(ids) for node, ids in held.devices_per_numa.items()}
            for resource, held in self.pod_devices.of_container(pod_uid, container).items()
        }

    def get_allocatable_devices(self) -> Mapping[str, Mapping[str, ReportedDevice]]:
        """Return the healthy devices per resource, held or not."""
        return {
            resource: {
                each: device
                for each, device in self.inventory.devices(resource).items()
                if each in self.inventory.healthy(resource)
            }
            for resource in self.inventory
        }

    # ------------------------------------------------------------ listening

    def subscribe(self, backlog: int = BACKLOG) -> EventStream:
        """Return a stream of everything that happens from now on; close it, or use `with`."""
        return self._events.subscribe(backlog)

    async def wait_for(
        self,
        resource: str,
        *,
        capacity: int | None = None,
        allocatable: int | None = None,
        timeout: float = 10,
    ) -> None:
        """Return once `resource` is listed and has these numbers; raises `NotInTime`."""
        with self.subscribe(backlog=1) as changes:
            try:
                async with asyncio.timeout(timeout):
                    while not self._has(resource, capacity, allocatable):
                        await anext(changes)
            except (TimeoutError, StopAsyncIteration):
                wanted = [
                    f"{name} {number}"
                    for name, number in (("capacity", capacity), ("allocatable", allocatable))
                    if number is not None
                ]
                raise NotInTime(
                    resource, " and ".join(wanted) or "listed", timeout, self._seen()
                ) from None

    def _has(self, resource: str, capacity: int | None, allocatable: int | None) -> bool:
        now = self.get_capacity()
        return (
            resource in now.capacity
            and capacity in (None, now.capacity[resource])
            and allocatable in (None, now.allocatable.get(resource))
        )

    def _seen(self) -> str:
        """Return all resources with their numbers, for a message."""
        now = self.get_capacity()
        return (
            "; ".join(
                f"{name} capacity {number} allocatable {now.allocatable.get(name)}"
                for name, number in now.capacity.items()
            )
            or "no resource is registered"
        )
