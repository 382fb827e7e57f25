"""An inventory with plugin instances that list devices, end and register again."""

from typing import Any

from kubedevices.node.inventory.inventory import Inventory
from kubedevices.values.allocation import PluginOptions
from kubedevices.values.device import ReportedDevice

R, S = "v.example/r", "v.example/s"
OPTIONS = PluginOptions()


def listed(*texts: str) -> tuple[ReportedDevice, ...]:
    """`"a"` is healthy, `"!a"` is not."""
    return tuple(
        ReportedDevice(text.lstrip("!"), "Unhealthy" if text.startswith("!") else "Healthy")
        for text in texts
    )


class Plugin:
    """One plugin instance, registered in the inventory."""

    def __init__(self, inventory: Inventory, resource: str = R, socket: str = "") -> None:
        self.inventory, self.resource = inventory, resource
        self.generation = inventory.connect(resource, OPTIONS, socket).generation

    def list(self, *texts: str) -> Any:
        return self.inventory.report(self.resource, self.generation, listed(*texts))

    def end(self, now: float) -> Any:
        return self.inventory.disconnect(self.resource, self.generation, now)


def numbers(inventory: Inventory, now: float = 0, resource: str = R) -> tuple[Any, Any]:
    found = inventory.get_capacity(now)
    return found.capacity.get(resource), found.allocatable.get(resource)


def serving(inventory: Inventory) -> int | None:
    """Return the generation of the instance that gets the calls for R."""
    endpoint = inventory.endpoint(R)
    return endpoint.generation if endpoint is not None else None
