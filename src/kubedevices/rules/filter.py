"""Leaves devices out: `Filtered`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from kubedevices.config.checks import numa_node
from kubedevices.config.keys import Declared, key
from kubedevices.errors import AllocationRefused, StatusCode
from kubedevices.plugin.capabilities import AllocateAnswer
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.scanner import Scanner
from kubedevices.rules.device_facts import DeviceFacts
from kubedevices.rules.device_selector import is_on_nodes, selector_text
from kubedevices.rules.middleware import OwnedRelay, Relay, RuledMiddleware
from kubedevices.values.allocation import AllocateRequest
from kubedevices.values.device import Device
from kubedevices.values.device_tree import DeviceTree
from kubedevices.values.wildcards import fits


@dataclass(frozen=True, kw_only=True)
class FilterRule(Declared):
    """Devices that the kubelet does not get."""

    HINT: ClassVar[str] = "write 'filter: {ids: [\"GPU-bad*\"]}'"
    ANY_OF: ClassVar[tuple[str, ...]] = ("ids", "numa")

    ids: tuple[str, ...] = key("globs of device IDs", default=())
    numa: tuple[int, ...] = key("NUMA nodes", default=(), check=numa_node)

    def fits(self, device: Device) -> bool:
        """Whether `device`, whose NUMA nodes are known, is left out."""
        return fits(device.id, self.ids) or is_on_nodes(device, self.numa)


class Filtered(RuledMiddleware[FilterRule]):
    """Never lists some devices: `Filtered(scanner, ids=["GPU-bad*"])`, or with `FilterRule`s.

    Events: `left_out` (a device that was listed before, or is new), `refused` (an Allocate call
    for such a device).
    """

    def __init__(
        self,
        scanner: Scanner,
        rules: FilterRule | Mapping[str, FilterRule] | None = None,
        *,
        ids: tuple[str, ...] | list[str] = (),
        numa: tuple[int, ...] | list[int] = (),
        facts: DeviceFacts | None = None,
    ) -> None:
        if rules is None:
            rules = FilterRule(ids=tuple(ids), numa=tuple(numa))
        super().__init__(scanner, rules)
        self._facts = facts or DeviceFacts()
        self._left_out: Mapping[str, frozenset[str]] = {}

    def line(self) -> str:
        """Return the rules in one line."""
        return self.rules_line("leaves out", lambda rule: selector_text(rule.ids, rule.numa))

    def left_out(self, device_type: str) -> frozenset[str]:
        """Return the IDs of the devices that are left out now."""
        return self._left_out.get(device_type, frozenset())

    def change(self, tree: DeviceTree, now: float) -> DeviceTree:
        """Return `tree` without some devices, in the same order."""
        left_out: dict[str, frozenset[str]] = {}
        changed = DeviceTree()
        for device_type in tree:
            devices, rule = tree.devices(device_type), self.rule_of(device_type)
            out: frozenset[str] = frozenset()
            if rule is not None:
                known = devices
                if rule.numa:
                    known = self._facts.with_numa_nodes(device_type, devices)
                out = frozenset(each.id for each in known.values() if rule.fits(each))
                self.warn_of_unused_globs(device_type, rule.ids, devices, now)
            if out:
                left_out[device_type] = out
                self.count("left_out", device_type, len(out - self.left_out(device_type)))
                kept = {name: each for name, each in devices.items() if name not in out}
                changed.put_list(device_type, kept)
            else:
                changed.put_list(device_type, dict(devices), tree.sent(device_type))
        self._left_out = left_out
        return changed if left_out else tree

    def relay(self, inner: Hooks, device_type: str, inner_type: str) -> Relay:
        """Return the relay that refuses the devices that are left out."""
        return _FilteringRelay(self, inner, device_type, inner_type)


class _FilteringRelay(OwnedRelay[Filtered]):
    """Refuses devices that are left out.

    The framework itself does so for unlisted devices, but the plugin knows these devices.
    """

    async def allocate(self, request: AllocateRequest) -> AllocateAnswer:
        """Refuse devices that are left out: a kubelet may just have chosen one."""
        out = self.owner.left_out(self.device_type)
        for container in request.containers:
            for device_id in container.device_ids:
                if device_id in out:
                    self.owner.count("refused", self.device_type)
                    raise AllocationRefused(device_id, StatusCode.NOT_FOUND)
        return await super().allocate(request)
