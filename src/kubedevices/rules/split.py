"""Lists one resource as several: `Split`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from kubedevices.config.keys import Declared, key, varied_key
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.scanner import Scanner
from kubedevices.rules.device_facts import DeviceFacts
from kubedevices.rules.device_selector import (
    FindPci,
    PciRule,
    is_on_nodes,
    selector_text,
)
from kubedevices.rules.filter import FilterRule
from kubedevices.rules.middleware import OwnedRelay, Relay, RuledMiddleware
from kubedevices.rules.rename import TypeNames, type_problem
from kubedevices.values.device import Device
from kubedevices.values.device_tree import DeviceTree
from kubedevices.values.wildcards import fits


@dataclass(frozen=True, kw_only=True)
class SplitPart(Declared):
    """Devices that become another resource; all given values must match.

    A device is on `numa` nodes if it has NUMA nodes and all of them are among `numa`.
    """

    HINT: ClassVar[str] = "write '{to: gpu-a100, ids: [\"GPU-a*\"]}'"
    ANY_OF: ClassVar[tuple[str, ...]] = ("ids", "numa", "pci")

    to: str = key("the resource's name after the slash", check=type_problem)
    ids: tuple[str, ...] = varied_key(FilterRule, "ids")
    numa: tuple[int, ...] = varied_key(FilterRule, "numa")
    pci: PciRule | None = key("what the PCI function of the device is", default=None)

    def fits(self, device: Device, find_pci: FindPci) -> bool:
        """Whether `device` fits; `find_pci` is called only if the answer depends on it."""
        return (
            (not self.ids or fits(device.id, self.ids))
            and (not self.numa or is_on_nodes(device, self.numa))
            and (self.pci is None or self.pci.fits(find_pci(device)))
        )


@dataclass(frozen=True, kw_only=True)
class SplitRule(Declared):
    """Several resources from the devices of one."""

    HINT: ClassVar[str] = "write 'split: {rules: [{to: gpu-a100, ids: [\"GPU-a*\"]}]}'"

    rules: tuple[SplitPart, ...] = key(
        "the first rule that matches a device says its resource", not_empty=True
    )
    rest: Literal["keep", "drop"] = key(
        "whether devices that match no rule stay in the resource or are left out", default="keep"
    )


class Split(RuledMiddleware[SplitRule]):
    """Lists one type as several: `Split(scanner, SplitRule(rules=(SplitPart(to="a100", …),)))`.

    A device is in one type only. If no device fits a type, the type has zero devices. The kubelet
    asks each type for its own devices; the plugin gets the calls of all types as one type. Events:
    `moved` (a device came to another type; counted at the new type), `dropped`.
    """

    def __init__(
        self,
        scanner: Scanner,
        rules: SplitRule | Mapping[str, SplitRule],
        *,
        facts: DeviceFacts | None = None,
    ) -> None:
        super().__init__(scanner, rules)
        self._facts = facts or DeviceFacts()
        self._names = TypeNames("split")
        self._types: Mapping[str, Mapping[str, str]] = {}
        self.served: Counter[str] = Counter()
        """By inner type: the number of its types that are served now."""

    def line(self) -> str:
        """Return the rules in one line."""
        return self.rules_line("splits", _rule_text)

    def inner_type(self, device_type: str) -> str:
        """Return the inner type of a served type."""
        return self._names.inner(device_type)

    def change(self, tree: DeviceTree, now: float) -> DeviceTree:
        """Return the tree with every device in its new type."""
        changed, types = DeviceTree(), dict[str, Mapping[str, str]]()
        names = self._names.begin()
        for inner_type in tree:
            devices, rule = tree.devices(inner_type), self.rule_of(inner_type)
            if rule is None:
                if names.claim(inner_type, inner_type):
                    changed.put_list(inner_type, dict(devices), tree.sent(inner_type))
                continue
            parts = types[inner_type] = self._parts(inner_type, rule, devices)
            wanted = [part.to for part in rule.rules]
            wanted += [inner_type] if rule.rest == "keep" else []
            for device_type in dict.fromkeys(wanted):
                if names.claim(device_type, inner_type):
                    members = {
                        name: each for name, each in devices.items() if parts[name] == device_type
                    }
                    changed.put_list(device_type, members)
            self._count(inner_type, parts)
            globs = [glob for part in rule.rules for glob in part.ids]
            self.warn_of_unused_globs(inner_type, globs, devices, now)
        self._types = types
        self._facts.keep_only(tree)
        names.end()
        return changed if types else tree

    def _parts(
        self, inner_type: str, rule: SplitRule, devices: Mapping[str, Device]
    ) -> dict[str, str]:
        """Return the type of each device by ID; "" for a device that is not listed."""
        known = devices
        if any(part.numa for part in rule.rules):
            known = self._facts.with_numa_nodes(inner_type, devices)
        find_pci = self._facts.pci_function
        rest = inner_type if rule.rest == "keep" else ""
        return {
            name: next((part.to for part in rule.rules if part.fits(device, find_pci)), rest)
            for name, device in known.items()
        }

    def _count(self, inner_type: str, parts: Mapping[str, str]) -> None:
        before = self._types.get(inner_type, {})
        came = Counter(to for name, to in parts.items() if before.get(name, inner_type) != to)
        for device_type, number in came.items():
            event = "moved" if device_type else "dropped"
            self.count(event, device_type or inner_type, number)

    def relay(self, inner: Hooks, device_type: str, inner_type: str) -> Relay:
        """Return the relay that starts and stops the inner type with its first and last part."""
        return _PartRelay(self, inner, device_type, inner_type)


class _PartRelay(OwnedRelay[Split]):
    async def on_type_added(self, device_type: str) -> None:
        """Call the inner type for its first part; for the next part if that call failed."""
        if self.owner.served[self.inner_type] == 0:
            await super().on_type_added(device_type)
        self.owner.served[self.inner_type] += 1

    async def on_type_removed(self, device_type: str) -> None:
        """Call the inner type when its last part is gone."""
        self.owner.served[self.inner_type] -= 1
        if self.owner.served[self.inner_type] <= 0:
            self.owner.served[self.inner_type] = 0
            await super().on_type_removed(device_type)


def _rule_text(rule: SplitRule) -> str:
    parts: Sequence[str] = [
        f"{part.to} ({selector_text(part.ids, part.numa, part.pci)})" for part in rule.rules
    ]
    rest = "the rest stays" if rule.rest == "keep" else "the rest is dropped"
    return f"into {', '.join([*parts, rest])}"
