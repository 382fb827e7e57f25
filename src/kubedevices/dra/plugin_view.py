"""Which devices belong to the device plugin API now, as the kubelet of the node tells. Pure.

The scheduler accounts the two device APIs separately, so a device that both offer is handed out
twice. A kubelet tells who holds a device (podresources `List`), and which devices it would hand out
(`GetAllocatableResources`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kubedevices.dra.names import DeviceKey


@dataclass(frozen=True)
class PluginView:
    """What a kubelet said at the loop's time `at`, about the device types of one domain.

    `held` has the pod of each device that a pod holds.
    """

    at: float
    held: Mapping[DeviceKey, str] = field(default_factory=dict)
    allocatable: Collection[DeviceKey] = frozenset()

    def reason(self, key: DeviceKey) -> str:
        """Return why a driver must not offer a device; empty if it may."""
        if pod := self.held.get(key):
            return f"the pod {pod} holds it as a device of a device plugin"
        if key in self.allocatable:
            return "a device plugin offers it"
        return ""

    def with_pods_of(self, before: "PluginView") -> "PluginView":
        """Return this view, and the pods of `before`: for a kubelet that may not know all yet."""
        return PluginView(self.at, {**before.held, **self.held}, self.allocatable)
