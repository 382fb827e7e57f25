"""After a restart of the node: waits for plugins that are late, and lets no container start before
its devices were vouched for.

The rule is in `RestartGate`. `AfterRestart` asks the container runtime, waits for lists, and is
asked by the device manager around every admission and container start. After that check was made
for a pod, nothing here concerns it any more.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import NamedTuple

from kubedevices.errors import DevicesNoLongerHealthy, KubedevicesError, PluginNotBack
from kubedevices.node.events import EventSource
from kubedevices.node.inventory.inventory import Inventory
from kubedevices.node.pods.pod import Pod
from kubedevices.node.pods.pod_devices import ContainerResource, PodDevices
from kubedevices.node.pods.pod_devices_store import AdmittedPod

logger = logging.getLogger(__name__)

START_WAIT = 30.0
"""Seconds a container's start waits for its plugin before the caller is told to try later."""

Running = Collection[tuple[str, str]]
"""Pod uid and container name of everything that runs."""

RunningContainers = Callable[[], Running | Awaitable[Running]]
"""Says which containers run now, as pairs of pod uid and container name; any instance counts.

Called on the event loop for pods from before our start; what must ask over a socket is `async`.
"""

# Seconds. A runtime that hangs must not hold up a pod that runs.
_RUNTIME_TIMEOUT = 10.0


class AfterRestart:
    """Everything about pods from before our start; `confirm` stores that a pod was checked."""

    def __init__(
        self,
        inventory: Inventory,
        pod_devices: PodDevices,
        events: EventSource,
        confirm: Callable[[str], Awaitable[None]],
        *,
        running_containers: RunningContainers | None = None,
        admission_wait: float = 0,
        start_wait: float = START_WAIT,
    ) -> None:
        self._inventory, self._pod_devices, self._events = inventory, pod_devices, events
        self._confirm, self._running_containers = confirm, running_containers
        self._admission_wait, self._start_wait = admission_wait, start_wait
        self._gate = RestartGate()

    def __repr__(self) -> str:
        return f"<AfterRestart with {self._gate}>"

    def restore(self, admitted: AdmittedPod) -> None:
        """Take in a pod from before our start."""
        parts = [(holding.container, holding.resource) for holding in admitted.holdings]
        self._gate.restore(admitted.pod.uid, parts, is_of_this_boot=admitted.is_of_this_boot)

    def concerns(self, pod_uid: str) -> bool:
        """Whether the pod is from before our start and something of it was not checked yet."""
        return pod_uid in self._gate

    def is_of_this_boot(self, pod_uid: str) -> bool:
        """Whether a container of the pod may be running: not if all is from before the boot."""
        return self._gate.is_of_this_boot(pod_uid)

    def forget(self, pod_uid: str) -> None:
        """Take note that a pod was released."""
        self._gate.forget(pod_uid)

    # ------------------------------------------------------------ admission

    async def settled(self, pod: Pod) -> frozenset[ContainerResource]:
        """Return what an admission of `pod` must leave as it is."""
        if not self.concerns(pod.uid):
            return frozenset()
        # A kubelet looks once, at its start, and may find nothing because the runtime is not up
        # yet: then it turns running pods down (kubernetes#118559). So the runtime is asked per
        # admission.
        running = await self._who_runs()
        return frozenset(
            (container.name, resource)
            for container in pod
            for resource in container.limits
            if self._gate.is_settled(pod, container.name, resource, running)
        )

    async def wait_for_plugins(self, pod: Pod, settled: frozenset[ContainerResource]) -> None:
        """Wait until the plugins `pod` needs are back, for as long as an admission may wait.

        Only for those that have not reported since our start. Says nothing about the outcome: the
        admission looks at what is there then.
        """
        if not self._admission_wait:
            return
        late = [
            (container.name, resource)
            for container in pod
            for resource, count in container.limits.items()
            if count and (container.name, resource) not in settled
            if self._is_late(pod.uid, container.name, resource)
        ]
        if late:
            names = sorted({resource for _, resource in late})
            logger.info("pod %s waits for %s", pod.full_name, ", ".join(names))
            await self._wait(
                lambda: all(self._may_be_planned(pod.uid, *part) for part in late),
                self._admission_wait,
            )

    def _is_late(self, pod_uid: str, container: str, resource: str) -> bool:
        if (container, resource) in self._gate.parts(pod_uid):
            return not self._may_be_planned(pod_uid, container, resource)
        record = self._inventory.record(resource)
        if record is None or not self._inventory.is_known(resource):
            return False
        # A plugin that restarts is late too, until its new instance has sent a list.
        return record.serving is None or not record.serving.is_live

    def _may_be_planned(self, pod_uid: str, container: str, resource: str) -> bool:
        """Whether the plugin has listed devices; an empty first list does not count.

        Devices that are held already need no plugin, unless it is back and does not list them.
        """
        if not self._inventory.has_reported(resource):
            return (container, resource) in self._gate.parts(pod_uid)
        held = self._pod_devices.device_ids(pod_uid, container, resource)
        healthy = self._inventory.healthy(resource)
        return set(held).issubset(healthy) if held else bool(healthy)

    async def note_admitted(self, pod: Pod) -> None:
        """Take note that an admission of `pod` found what it holds in order."""
        for container, resource in self._gate.parts(pod.uid):
            if self._is_vouched_for(pod.uid, container, resource):
                await self._verify(pod.uid, container, resource)

    # ------------------------------------------------------------ start

    async def verify_start(self, pod: Pod, container: str) -> None:
        """Return once the container's devices were vouched for since our start.

        Returns at once for a running container, and for a pod admitted since. Raises
        `PluginNotBack`, or `DevicesNoLongerHealthy` when the plugin is back without them,
        both after the longest wait: some plugins begin with an empty list.
        """
        if not self.concerns(pod.uid):
            return
        for resource in self._gate.to_verify(pod.uid, container, await self._who_runs()):
            part = (container, resource)
            await self._wait(
                # A default argument, because a lambda would see the last `part` of the loop.
                lambda part=part: self._is_vouched_for(pod.uid, *part),  # type: ignore[misc]
                self._start_wait,
            )
            if self._is_vouched_for(pod.uid, *part):
                await self._verify(pod.uid, *part)
            elif self._inventory.has_reported(resource):
                raise DevicesNoLongerHealthy(resource)
            else:
                raise PluginNotBack(resource, self._start_wait)

    def _is_vouched_for(self, pod_uid: str, container: str, resource: str) -> bool:
        """Whether the devices are there and healthy, or there is nothing to be checked any more."""
        held = self._pod_devices.device_ids(pod_uid, container, resource)
        if not held or (container, resource) not in self._gate.parts(pod_uid):
            return True
        healthy = self._inventory.healthy(resource)
        return self._inventory.has_reported(resource) and set(held).issubset(healthy)

    async def _verify(self, pod_uid: str, container: str, resource: str) -> None:
        if self._gate.verify(pod_uid, container, resource):
            try:
                await self._confirm(pod_uid)
            except KubedevicesError as error:  # it would only be checked once more
                logger.warning("pod %s: %s", pod_uid, error)

    # ------------------------------------------------------------ asking and waiting

    async def _who_runs(self) -> Running | None:
        if self._running_containers is None:
            return None
        try:
            answer = self._running_containers()
            if inspect.isawaitable(answer):
                async with asyncio.timeout(_RUNTIME_TIMEOUT):
                    answer = await answer
            return frozenset(answer)
        except Exception as error:  # foreign code, and no reason to turn a running pod down
            logger.warning(
                "the runtime does not say what runs, so what was admitted in this boot counts as "
                "running: %s",
                str(error) or type(error).__name__,
            )
            return None

    async def _wait(self, is_so: Callable[[], bool], timeout: float) -> None:
        """Return when `is_so`, after `timeout` seconds, or when the node stops."""
        # One event is enough: it only means to look again, and what is there then counts.
        with self._events.subscribe(backlog=1) as changes:
            try:
                async with asyncio.timeout(timeout):
                    while not is_so():
                        await anext(changes)
            except (TimeoutError, StopAsyncIteration):
                return


class _Restored(NamedTuple):
    """A pod from before our start, and which of its parts no plugin has vouched for."""

    is_of_this_boot: bool
    unverified: set[ContainerResource]


class RestartGate:
    """The rule for pods from before our start. Keeps the pods that are not verified yet.

    A pod from before holds its devices, but nobody has vouched for them since. Its running
    containers are left alone whatever their plugins do. A container that is to start gets its
    devices only when its plugin has listed them healthy since our start: that check, which
    admission skipped, is made then. Once made, the pod is like any other.

    Touches no clock and no file. `running` is None when nobody can tell who runs; then what was
    admitted in this boot counts as running.
    """

    def __init__(self) -> None:
        self._restored: dict[str, _Restored] = {}

    def __repr__(self) -> str:
        return f"<RestartGate of {len(self._restored)} unverified pods>"

    def __contains__(self, pod_uid: object) -> bool:
        return pod_uid in self._restored

    def restore(
        self, pod_uid: str, parts: Iterable[ContainerResource], *, is_of_this_boot: bool
    ) -> None:
        """Take in a pod from before our start and what its containers hold."""
        if unverified := set(parts):
            self._restored[pod_uid] = _Restored(is_of_this_boot, unverified)

    def forget(self, pod_uid: str) -> None:
        """Take note that a pod was released."""
        self._restored.pop(pod_uid, None)

    def is_of_this_boot(self, pod_uid: str) -> bool:
        """Whether a container of the pod may be running: not if all is from before the boot."""
        restored = self._restored.get(pod_uid)
        return restored is None or restored.is_of_this_boot

    def is_settled(self, pod: Pod, container: str, resource: str, running: Running | None) -> bool:
        """Whether an admission must leave this part as it is.

        True for all that a started pod holds: a finished init container, or one that is about to
        be restarted, is no reason to turn down a pod whose other containers run.
        """
        restored = self._restored.get(pod.uid)
        if restored is None:
            return False
        is_held = (container, resource) in restored.unverified
        if running is None:
            # Within one boot a container may have run on while the node was away; after a boot
            # nothing runs.
            return is_held and restored.is_of_this_boot
        if (pod.uid, container) in running:
            return True
        return is_held and any((pod.uid, each.name) in running for each in pod)

    def to_verify(self, pod_uid: str, container: str, running: Running | None) -> tuple[str, ...]:
        """Return the resources whose devices must be vouched for before the container starts."""
        restored = self._restored.get(pod_uid)
        if restored is None:
            return ()
        if running is None:
            is_running = restored.is_of_this_boot
        else:
            is_running = (pod_uid, container) in running
        if is_running:
            return ()
        return tuple(sorted(name for owner, name in restored.unverified if owner == container))

    def parts(self, pod_uid: str) -> frozenset[ContainerResource]:
        """Return what is unverified of a pod."""
        restored = self._restored.get(pod_uid)
        return frozenset(restored.unverified if restored else ())

    def verify(self, pod_uid: str, container: str, resource: str) -> bool:
        """Take note that the plugin vouches for this part; say whether that was the pod's last."""
        restored = self._restored.get(pod_uid)
        if restored is None:
            return False
        restored.unverified.discard((container, resource))
        if restored.unverified:
            return False
        del self._restored[pod_uid]
        return True
