"""The devices that the device plugin API has now, from the kubelet's answers. Pure.

The scheduler counts the two device APIs separately. So a device that is in both would be allocated
twice. The kubelet answers which pods hold devices (podresources `List`), and which devices it can
allocate (`GetAllocatableResources`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kubedevices.dra.names import DeviceKey


@dataclass(frozen=True)
class PluginView:
    """The kubelet's answers about the device types of one domain.

    `at` is the time of the question, from the clock of the event loop. `held` has the pod of each
    held device. `claims` has the namespace and the name of each ResourceClaim that a container of
    a pod has; None if the kubelet may not know all its pods.
    """

    at: float
    held: Mapping[DeviceKey, str] = field(default_factory=dict)
    allocatable: Collection[DeviceKey] = frozenset()
    claims: Collection[tuple[str, str]] | None = None

    def reason(self, key: DeviceKey) -> str:
        """Return why a DRA driver must not offer a device; empty if it may."""
        if pod := self.held.get(key):
            return f"the pod {pod} holds it as a device of a device plugin"
        if key in self.allocatable:
            return "a device plugin offers it"
        return ""

    def with_pods_of(self, before: "PluginView") -> "PluginView":
        """Return this view plus the pods of `before`: a new kubelet may not know all pods yet."""
        return PluginView(self.at, {**before.held, **self.held}, self.allocatable)
