"""Pods from before a restart of the node: which of their containers wait for their plugin.

A part is one resource of one container. A part is *unverified* from the start of the node until the
plugin has listed all devices of the part as healthy; then the part is *verified*. A part is *fixed*
while its devices must stay with the container, because the pod runs.

`RestartGate` is the rule. `AfterRestart` asks the container runtime and waits for device lists. The
device manager calls `AfterRestart` in every admission and before every start of a container. A pod
without unverified parts passes at once.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import NamedTuple

from kubedevices.errors import DevicesNoLongerHealthy, KubedevicesError, PluginNotBack
from kubedevices.host import deadlines
from kubedevices.node.events import EventSource
from kubedevices.node.inventory.inventory import Inventory
from kubedevices.node.pods.pod import Pod
from kubedevices.node.pods.pod_devices import ContainerResource, PodDevices
from kubedevices.node.pods.pod_devices_store import AdmittedPod

logger = logging.getLogger(__name__)

START_WAIT = 30.0
"""Seconds that the start of a container waits for its plugin. Then the start fails."""

Running = Collection[tuple[str, str]]
"""The pod uid and the name of each container that runs."""

RunningContainers = Callable[[], Running | Awaitable[Running]]
"""Returns the containers that run now, as pairs of pod uid and container name.

A container counts if any instance of it runs. The function is called on the event loop, and only
for pods from before the start of the node. A function that asks over a socket has to be `async`.
"""

# Seconds. A container runtime that hangs must not delay a pod that runs.
_RUNTIME_TIMEOUT = 10.0


class _Restored(NamedTuple):
    """A pod from before the start of the node, with its unverified parts."""

    is_of_this_boot: bool
    unverified: set[ContainerResource]


class RestartGate:
    """The rule for pods from before the start of the node. Holds the pods with unverified parts.

    Such a pod holds devices that no plugin has listed since the start of the node. Its running
    containers keep their devices, whatever the plugins list. A container that starts waits until
    its plugin has listed the devices as healthy. This is the check that the admission of a new pod
    makes. A pod whose parts are all verified is treated as any other pod.

    No clock and no file is used. `running` is None if the container runtime gives no answer: then
    the containers that were admitted in this boot of the machine count as running.
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
        """Add a pod from before the start of the node, with what its containers hold."""
        if unverified := set(parts):
            self._restored[pod_uid] = _Restored(is_of_this_boot, unverified)

    def forget(self, pod_uid: str) -> None:
        """Remove a pod that was released."""
        self._restored.pop(pod_uid, None)

    def is_of_this_boot(self, pod_uid: str) -> bool:
        """Whether the pod was admitted or verified in this boot; if not, no container runs."""
        restored = self._restored.get(pod_uid)
        return restored is None or restored.is_of_this_boot

    def is_fixed(self, pod: Pod, container: str, resource: str, running: Running | None) -> bool:
        """Whether an admission must leave the devices of this part with the container.

        This is true for all parts that a running pod holds. A pod with a running container must not
        be rejected because another of its containers has finished or is about to restart.
        """
        restored = self._restored.get(pod.uid)
        if restored is None:
            return False
        is_held = (container, resource) in restored.unverified
        if running is None:
            # A container may have continued to run while the node process was down. After a boot of
            # the machine no container runs.
            return is_held and restored.is_of_this_boot
        if (pod.uid, container) in running:
            return True
        return is_held and any((pod.uid, each.name) in running for each in pod)

    def to_verify(self, pod_uid: str, container: str, running: Running | None) -> tuple[str, ...]:
        """Return the resources that must be verified before the container may start."""
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

    def unverified(self, pod_uid: str) -> frozenset[ContainerResource]:
        """Return the unverified parts of a pod."""
        restored = self._restored.get(pod_uid)
        return frozenset(restored.unverified if restored else ())

    def verify(self, pod_uid: str, container: str, resource: str) -> bool:
        """Mark this part as verified; return whether it was the last unverified part of the pod."""
        restored = self._restored.get(pod_uid)
        if restored is None:
            return False
        restored.unverified.discard((container, resource))
        if restored.unverified:
            return False
        del self._restored[pod_uid]
        return True


class AfterRestart:
    """Applies the restart gate; `mark_verified` writes to the store that a pod is verified."""

    def __init__(
        self,
        inventory: Inventory,
        pod_devices: PodDevices,
        events: EventSource,
        mark_verified: Callable[[str], Awaitable[None]],
        *,
        running_containers: RunningContainers | None = None,
        admission_wait: float = 0,
        start_wait: float = START_WAIT,
    ) -> None:
        self._inventory, self._pod_devices, self._events = inventory, pod_devices, events
        self._mark_verified, self._running_containers = mark_verified, running_containers
        self._admission_wait, self._start_wait = admission_wait, start_wait
        self._gate = RestartGate()

    def __repr__(self) -> str:
        return f"<AfterRestart with {self._gate}>"

    def restore(self, admitted: AdmittedPod) -> None:
        """Add a pod from before the start of the node."""
        parts = [(holding.container, holding.resource) for holding in admitted.holdings]
        self._gate.restore(admitted.pod.uid, parts, is_of_this_boot=admitted.is_of_this_boot)

    def has_unverified(self, pod_uid: str) -> bool:
        """Whether the pod is from before the start of the node and has an unverified part."""
        return pod_uid in self._gate

    def is_of_this_boot(self, pod_uid: str) -> bool:
        """Whether the pod was admitted or verified in this boot; if not, no container runs."""
        return self._gate.is_of_this_boot(pod_uid)

    def forget(self, pod_uid: str) -> None:
        """Remove a pod that was released."""
        self._gate.forget(pod_uid)

    # ------------------------------------------------------------ admission

    async def fixed_parts(self, pod: Pod) -> frozenset[ContainerResource]:
        """Return the parts whose devices an admission of `pod` must not change."""
        if not self.has_unverified(pod.uid):
            return frozenset()
        # The kubelet asks the container runtime once, at its start. If the runtime is not up yet,
        # the kubelet rejects running pods (kubernetes#118559). So we ask in each admission.
        running = await self._ask_runtime()
        return frozenset(
            (container.name, resource)
            for container in pod
            for resource in container.limits
            if self._gate.is_fixed(pod, container.name, resource, running)
        )

    async def wait_for_plugins(self, pod: Pod, fixed: frozenset[ContainerResource]) -> None:
        """Wait until the plugins of `pod` have listed devices, for `admission_wait` seconds at
        most.

        Only plugins that have not listed devices since the start of the node are waited for. The
        caller is not told whether they came: the admission uses the devices that are listed then.
        """
        if not self._admission_wait:
            return
        late = [
            (container.name, resource)
            for container in pod
            for resource, count in container.limits.items()
            if count and (container.name, resource) not in fixed
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
        if (container, resource) in self._gate.unverified(pod_uid):
            return not self._may_be_planned(pod_uid, container, resource)
        record = self._inventory.record(resource)
        if record is None or not self._inventory.is_known(resource):
            return False
        # A plugin that restarts is late until its new instance has sent a list.
        return record.serving is None or not record.serving.is_live

    def _may_be_planned(self, pod_uid: str, container: str, resource: str) -> bool:
        """Whether the part needs no further wait: its plugin has listed usable devices.

        An empty first list does not count. For devices that the container holds, no plugin has to
        be connected; but a plugin that is connected has to list these devices as healthy.
        """
        if not self._inventory.has_reported(resource):
            return (container, resource) in self._gate.unverified(pod_uid)
        held = self._pod_devices.device_ids(pod_uid, container, resource)
        healthy = self._inventory.healthy(resource)
        return set(held).issubset(healthy) if held else bool(healthy)

    async def note_admitted(self, pod: Pod) -> None:
        """Verify the parts of an admitted pod whose devices are listed as healthy."""
        for container, resource in self._gate.unverified(pod.uid):
            if self._can_verify(pod.uid, container, resource):
                await self._verify(pod.uid, container, resource)

    # ------------------------------------------------------------ start

    async def verify_start(self, pod: Pod, container: str) -> None:
        """Return when the parts of the container are verified, after `start_wait` seconds at most.

        Returns at once for a running container, and for a pod that was admitted since the start of
        the node. Raises `PluginNotBack` if the plugin has not listed devices, and
        `DevicesNoLongerHealthy` if its list lacks the container's devices. Both are raised only
        after the whole wait, because the first list of some plugins is empty.
        """
        if not self.has_unverified(pod.uid):
            return
        for resource in self._gate.to_verify(pod.uid, container, await self._ask_runtime()):
            part = (container, resource)
            await self._wait(
                # A default argument: without it the lambda would see the last `part` of the loop.
                lambda part=part: self._can_verify(pod.uid, *part),  # type: ignore[misc]
                self._start_wait,
            )
            if self._can_verify(pod.uid, *part):
                await self._verify(pod.uid, *part)
            elif self._inventory.has_reported(resource):
                raise DevicesNoLongerHealthy(resource)
            else:
                raise PluginNotBack(resource, self._start_wait)

    def _can_verify(self, pod_uid: str, container: str, resource: str) -> bool:
        """Whether the plugin lists the part's devices as healthy, or nothing is left to check."""
        held = self._pod_devices.device_ids(pod_uid, container, resource)
        if not held or (container, resource) not in self._gate.unverified(pod_uid):
            return True
        healthy = self._inventory.healthy(resource)
        return self._inventory.has_reported(resource) and set(held).issubset(healthy)

    async def _verify(self, pod_uid: str, container: str, resource: str) -> None:
        if self._gate.verify(pod_uid, container, resource):
            try:
                await self._mark_verified(pod_uid)
            except KubedevicesError as error:  # the next start of the node checks the pod again
                logger.warning("pod %s: %s", pod_uid, error)

    # ------------------------------------------------------------ asking and waiting

    async def _ask_runtime(self) -> Running | None:
        if self._running_containers is None:
            return None
        try:
            answer = self._running_containers()
            if inspect.isawaitable(answer):
                async with deadlines.timeout(_RUNTIME_TIMEOUT):
                    answer = await answer
            return frozenset(answer)
        except Exception as error:  # the function is not ours; a running pod must not be rejected
            logger.warning(
                "the container runtime does not answer, so every container admitted in this boot "
                "counts as running: %s",
                str(error) or type(error).__name__,
            )
            return None

    async def _wait(self, is_so: Callable[[], bool], timeout: float) -> None:
        """Return when `is_so` is true, after `timeout` seconds, or when the node stops."""
        # A backlog of one event is enough: each event only causes another look.
        with self._events.subscribe(backlog=1) as changes:
            try:
                async with deadlines.timeout(timeout):
                    while not is_so():
                        await anext(changes)
            except (TimeoutError, StopAsyncIteration):
                return
