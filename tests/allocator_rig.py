"""One resource, the pods that hold some of its devices, and the plan of the allocator for a
request.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubedevices.node.admission.device_choice import AskPlugin, Chosen, DeviceRequest, Plan, plan
from kubedevices.node.inventory.inventory import Inventory
from kubedevices.node.pods.pod_devices import HeldDevices, PodDevices
from kubedevices.values.allocation import (
    ContainerAllocateResponse,
    ContainerPreferredRequest,
    PluginOptions,
)
from kubedevices.values.device import ReportedDevice

R = "v.example/r"

Nodes = tuple[int, ...] | None


class Node:
    """One resource with its devices, and the pods that hold some of them."""

    def __init__(
        self, devices: Mapping[str, Nodes] | Iterable[str] = (), *, prefers: bool = False
    ) -> None:
        self.inventory = Inventory()
        self.pod_devices = PodDevices(self.inventory)
        options = PluginOptions(get_preferred_allocation_available=prefers)
        self.generation = self.inventory.connect(R, options).generation
        if devices:
            self.list(devices)

    def list(self, devices: Mapping[str, Nodes] | Iterable[str]) -> None:
        nodes = devices if isinstance(devices, Mapping) else dict.fromkeys(devices)
        self.inventory.report(
            R,
            self.generation,
            tuple(
                ReportedDevice(name.lstrip("!"), "Unhealthy" if "!" in name else "Healthy", on)
                for name, on in nodes.items()
            ),
        )

    def hold(self, *ids: str, pod: str = "another", container: str = "c") -> None:
        held = HeldDevices(self.inventory.per_numa(R, ids), ContainerAllocateResponse())
        self.pod_devices.insert(pod, container, R, held)

    def plan(
        self,
        count: int,
        *,
        answer: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> Plan:
        request = DeviceRequest("p", "c", R, count, **kwargs)
        return plan(request, self.inventory, self.pod_devices, answer=answer)

    def choose(self, count: int, **kwargs: Any) -> tuple[str, ...]:
        chosen = self.plan(count, **kwargs)
        assert isinstance(chosen, Chosen)
        return chosen.device_ids

    def ask(self, count: int, **kwargs: Any) -> ContainerPreferredRequest:
        asked = self.plan(count, **kwargs)
        assert isinstance(asked, AskPlugin)
        return asked.request


THREE_EACH: Mapping[str, Nodes] = {f"d{n}": (0 if n < 3 else 1,) for n in range(6)}
