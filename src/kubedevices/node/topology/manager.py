"""TopologyManager: which NUMA nodes each container of a pod gets.

`hints` and `policy` make the decisions. This module collects the hints, per container or once per
pod, and remembers the decisions. The admission is the caller.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Protocol

from kubedevices.node.inventory.inventory import Inventory
from kubedevices.node.pods.pod import Container, Pod, pod_device_request
from kubedevices.node.pods.pod_devices import PodDevices
from kubedevices.node.topology.hints import Hints, TopologyHint, resource_hints
from kubedevices.node.topology.options import TopologySettings
from kubedevices.node.topology.policy import ProviderHints, TopologyAffinityError, decide
from kubedevices.pages.metrics import (
    ALIGNED_CONTAINERS,
    NO_METRICS,
    TOPOLOGY_ERRORS,
    TOPOLOGY_REQUESTS,
    Metrics,
)
from kubedevices.values.numa import NumaNodes

NO_AFFINITY = TopologyHint(None, False)

Reusable = Callable[[str], Collection[str]]


class HintProvider(Protocol):
    """A provider of NUMA hints for other resources, for example CPUs."""

    def container_hints(self, pod: Pod, container: Container) -> ProviderHints:
        """Return hints by resource for one container."""

    def pod_hints(self, pod: Pod) -> ProviderHints:
        """Return hints by resource for the whole pod."""


class TopologyManager:
    """The policy and the scope of one node, and the decisions for its pods."""

    def __init__(
        self,
        settings: TopologySettings,
        inventory: Inventory,
        pod_devices: PodDevices,
        *,
        providers: Sequence[HintProvider] = (),
        metrics: Metrics = NO_METRICS,
    ) -> None:
        self.settings = settings
        self._inventory, self._pod_devices = inventory, pod_devices
        self._providers, self._metrics = providers, metrics
        # By pod uid and container.
        self._decided: dict[str, dict[str, TopologyHint]] = {}

    @property
    def is_strict(self) -> bool:
        """Whether the policy rejects a pod whose devices cannot be aligned."""
        return self.settings.policy in {"restricted", "single-numa-node"}

    # ------------------------------------------------------------ hints

    def get_topology_hints(
        self, pod: Pod, container: Container, reusable: Reusable = lambda _: ()
    ) -> dict[str, Hints]:
        """Return the hints for the devices that `container` requests, by resource.

        `reusable` returns the devices of a resource that the pod's init containers leave to it.
        """
        return {
            resource: resource_hints(
                self._inventory,
                resource,
                count,
                held=self._pod_devices.device_ids(pod.uid, container.name, resource),
                reusable=reusable(resource),
                numa_nodes=self.settings.numa_nodes,
            )
            for resource, count in container.limits.items()
            if self._inventory.is_known(resource) and count
        }

    def get_pod_topology_hints(self, pod: Pod) -> dict[str, Hints]:
        """Return the hints for the devices that the whole pod requests, by resource."""
        return {
            resource: resource_hints(
                self._inventory,
                resource,
                count,
                held=self._pod_devices.of_pod(pod.uid, resource),
                numa_nodes=self.settings.numa_nodes,
            )
            for resource, count in pod_device_request(pod, self._inventory.is_known).items()
        }

    # ------------------------------------------------------------ decisions

    def begin(self) -> None:
        """Count an admission."""
        self._metrics.count(TOPOLOGY_REQUESTS)

    def new_decision(self, pod: Pod) -> Callable[[Container, Reusable], NumaNodes | None]:
        """Discard the decisions for `pod`; return `align`, which decides with the current state."""
        self._decided.pop(pod.uid, None)
        return partial(self.align, pod)

    def align(self, pod: Pod, container: Container, reusable: Reusable) -> NumaNodes | None:
        """Return the NUMA nodes that `container` gets, None if NUMA nodes do not matter.

        Raises `TopologyAffinityError`. A container that has all its devices keeps its decision.
        """
        if self.settings.policy == "none":
            return None
        # A new decision could name other nodes than the nodes of the devices that it has.
        if self._has_everything(pod, container):
            return self.get_affinity(pod.uid, container.name).numa_nodes
        decided = self._decided.setdefault(pod.uid, {})
        if container.name not in decided:
            if self.settings.scope == "pod":
                others = [each.pod_hints(pod) for each in self._providers]
                hint = self._decide(self.get_pod_topology_hints(pod), others)
                decided.update({each.name: hint for each in pod})
            else:
                hints = self.get_topology_hints(pod, container, reusable)
                others = [each.container_hints(pod, container) for each in self._providers]
                decided[container.name] = self._decide(hints, others)
        return decided[container.name].numa_nodes

    def _decide(self, devices: ProviderHints, others: Sequence[ProviderHints]) -> TopologyHint:
        decision = decide(self.settings, [devices, *others])
        if not decision.admit:
            raise TopologyAffinityError
        return decision.hint

    def _has_everything(self, pod: Pod, container: Container) -> bool:
        wanted = [name for name, count in container.limits.items() if count]
        return bool(wanted) and all(
            self._pod_devices.device_ids(pod.uid, container.name, resource) for resource in wanted
        )

    # ------------------------------------------------------------ memory

    def get_affinity(self, pod_uid: str, container: str) -> TopologyHint:
        """Return the decision for a container; without a decision: no nodes and not preferred."""
        return self._decided.get(pod_uid, {}).get(container, NO_AFFINITY)

    def note_admitted(self, pod_uid: str) -> None:
        """Count the decisions for an admitted pod. In scope `pod` a pod has one decision."""
        if self.settings.policy == "single-numa-node":
            decided = self._decided.get(pod_uid, {})
            for _ in list(decided)[: 1 if self.settings.scope == "pod" else None]:
                self._metrics.count(ALIGNED_CONTAINERS, self.settings.scope, "numa_node")

    def note_refused(self) -> None:
        """Count a pod that could not be aligned."""
        self._metrics.count(TOPOLOGY_ERRORS)

    def forget(self, pod_uid: str) -> None:
        """Discard the decisions for a pod that was released or rejected."""
        self._decided.pop(pod_uid, None)
