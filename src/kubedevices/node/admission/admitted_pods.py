"""The admitted pods, in memory and in the store; both always have the same pods.

The device manager decides; a `PodDevicesStore` stores the pods. A write that has begun is finished
even if the caller is cancelled. Otherwise the memory and the disk could differ.
"""

from collections.abc import Iterator, Mapping, Sequence

from kubedevices.node.admission.concurrency import to_its_end
from kubedevices.node.events import EventKind, EventSource, NodeEvent
from kubedevices.node.pods.pod import Pod
from kubedevices.node.pods.pod_devices import Holding, PodDevices
from kubedevices.node.pods.pod_devices_store import PodDevicesStore, StoredState


class AdmittedPods:
    """Each pod from its admission to its release, with the devices it holds."""

    def __init__(
        self, pod_devices: PodDevices, store: PodDevicesStore, events: EventSource
    ) -> None:
        self._pod_devices, self._store, self._events = pod_devices, store, events
        self._pods: dict[str, Pod] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[Pod]:
        """Iterate over the pods in the order of their admissions."""
        return iter([*self._pods.values()])

    def __contains__(self, pod_uid: object) -> bool:
        return pod_uid in self._pods

    def get(self, pod_uid: str) -> Pod | None:
        """Return the pod with this uid."""
        return self._pods.get(pod_uid)

    async def load(self) -> StoredState:
        """Load the pods that the store has from before the start of the node, and return them."""
        kept = await self._store.load()
        for pod, holdings, _ in kept.pods:
            self._pods[pod.uid] = pod
            for holding in holdings:
                self._pod_devices.insert(*holding)
        return kept

    async def add(self, pod: Pod, holdings: Sequence[Holding]) -> None:
        """Write a pod to the store. `holdings` are already in memory and leave it if this fails.

        Raises the error of the store.
        """
        # No transaction for a pod that is admitted again and gets no new devices.
        if holdings or self._pods.get(pod.uid) != pod:
            try:
                await to_its_end(self._store.commit(pod, holdings))
            except BaseException:
                for pod_uid, container, resource, _ in holdings:
                    self._pod_devices.remove(pod_uid, container, resource)
                raise
        self._pods[pod.uid] = pod
        containers: dict[str, dict[str, list[str]]] = {}
        for _, container, resource, held in holdings:
            containers.setdefault(container, {})[resource] = [*held.device_ids]
        if containers:
            self._publish(EventKind.ALLOCATED, pod, containers=containers)

    async def remove(self, pod_uid: str) -> Mapping[str, tuple[str, ...]]:
        """Remove a pod; return the devices it held, by resource. If this fails, nothing changes."""
        pod = self._pods.get(pod_uid)
        if pod is None:
            return {}
        # The store first: if it fails, the pod still has its devices in memory and in the store.
        await to_its_end(self._store.release([pod_uid]))
        del self._pods[pod_uid]
        released: dict[str, dict[str, None]] = {}
        for _, _, resource, held in self._pod_devices.remove_pod(pod_uid):
            released.setdefault(resource, {}).update(dict.fromkeys(held.device_ids))
        devices = {resource: tuple(ids) for resource, ids in released.items()}
        if devices:
            listed = {resource: [*ids] for resource, ids in devices.items()}
            self._publish(EventKind.RELEASED, pod, devices=listed)
        return devices

    def _publish(self, kind: EventKind, pod: Pod, **details: object) -> None:
        self._events.publish(NodeEvent(kind, pod=pod.full_name, details=details))
