"""What the requests of a claim wish for, and which devices fit to one wish alone. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kubedevices.errors import BadSelector
from kubedevices.values.scheduling.capacities import Key
from kubedevices.values.scheduling.kinds import Object
from kubedevices.values.scheduling.pools import PoolDevice
from kubedevices.values.selectors import Selector


class NotAllocatable(Exception):
    """A claim has to wait; the text has the reason."""


class ChosenDevice(NamedTuple):
    """A device for a request; `consumed` are its consumed capacities if it is shared."""

    wish: "Wish"
    offered: PoolDevice
    consumed: Mapping[str, str] | None


@dataclass(eq=False)
class Wish:
    """A request, or one alternative of `firstAvailable`; `every` are its devices for mode All."""

    name: str
    spec: Object
    found_class: Object
    every: list[PoolDevice] | None = None
    is_selected: dict[Key, bool] = field(default_factory=dict)

    @property
    def is_admin(self) -> bool:
        """Whether it is for devices that others hold."""
        return bool(self.spec.get("adminAccess"))

    @property
    def count(self) -> int:
        """The number of devices."""
        return len(self.every) if self.every is not None else self.spec.get("count", 1)

    def selects(self, offered: PoolDevice, node: Object) -> bool:
        """Return whether the selectors and the node fit; raises `NotAllocatable`."""
        known = self.is_selected.get(offered.key)
        if known is None:
            known = self._selects(offered) and offered.is_on(node)
            self.is_selected[offered.key] = known
        return known

    def _selects(self, offered: PoolDevice) -> bool:
        both = (self.found_class.get("spec") or {}, self.spec)
        try:
            return all(
                Selector.compiled(each["cel"]["expression"]).selects(offered.driver, offered.device)
                for spec in both
                for each in spec.get("selectors") or ()
            )
        except BadSelector as error:
            raise NotAllocatable(f"request {self.name}: {error}") from error

    def tolerates(self, offered: PoolDevice) -> bool:
        """Return whether no taint of a device stops the request."""
        return all(
            taint["effect"] == "None"
            or any(is_tolerated(each, taint) for each in self.spec.get("tolerations") or ())
            for taint in offered.device.get("taints") or ()
        )


def is_tolerated(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Return whether a toleration is for a taint, of a device or of a node."""
    if toleration.get("effect", "") not in ("", taint["effect"]):
        return False
    if toleration.get("key", "") not in ("", taint["key"]):
        return False
    exists = toleration.get("operator", "Equal") == "Exists"
    return bool(exists or toleration.get("value", "") == taint.get("value", ""))
