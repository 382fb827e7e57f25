"""Adds to every answer to Allocate: `Injected`. `inject_rule` has the rule and the decisions."""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kubedevices.errors import UsageError
from kubedevices.errors.words import some_of
from kubedevices.host.sysfs import DEV_ROOT
from kubedevices.plugin import hook_threads
from kubedevices.plugin.capabilities import Allocator, PostAllocator
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.options import CDI_DIR
from kubedevices.plugin.scanner import Scanner
from kubedevices.rules.device_facts import DeviceFacts
from kubedevices.rules.inject_rule import InjectRule, PlaceholderValues, add, additions
from kubedevices.rules.middleware import OwnedRelay, Relay, RuledMiddleware, layers
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateResponse,
)
from kubedevices.values.device_tree import DeviceTree

if TYPE_CHECKING:
    from kubedevices.rules.answer_cdi import AnswerCdi
    from kubedevices.values.device import Device

_log = logging.getLogger(__name__)


class Injected(RuledMiddleware[InjectRule]):
    """Adds variables, mounts, device files, annotations and CDI names to every answer.

    `Injected(scanner, InjectRule(env={"GPU_IDS": "{id}"}))`. An addition replaces an entry of the
    plugin with the same name or container path. A rule with `cdi` needs the `domain` of the
    resources, and writes into `cdi_dir`. Events: `injected`, `replaced` (an entry of the plugin).
    """

    def __init__(
        self,
        scanner: Scanner,
        rules: InjectRule | Mapping[str, InjectRule],
        *,
        domain: str = "",
        cdi_dir: Path = CDI_DIR,
        dev_root: Path = DEV_ROOT,
        facts: DeviceFacts | None = None,
    ) -> None:
        super().__init__(scanner, rules)
        self._domain, self._cdi_dir, self._dev_root = domain, cdi_dir, dev_root
        self._facts = facts or DeviceFacts(dev_root=dev_root)
        self._cdi: AnswerCdi | None = None
        self._numa: Mapping[str, Mapping[str, Device]] = {}
        self._logged: set[str] = set()
        self._check_domain(rules)

    def use(self, rules: InjectRule | Mapping[str, InjectRule]) -> None:
        """Go on with other rules. From any thread; raises `UsageError`."""
        self._check_domain(rules)
        super().use(rules)

    def _check_domain(self, rules: InjectRule | Mapping[str, InjectRule]) -> None:
        each = rules.values() if isinstance(rules, Mapping) else (rules,)
        if any(rule.cdi for rule in each) and not self._domain:
            raise UsageError("inject with cdi: give Injected the domain of the resources")

    def line(self) -> str:
        """Return the rules in one line."""
        return self.rules_line("adds to answers for", _rule_text)

    async def scan(self, notifier: Notifier) -> None:
        """Scan; at the end release the locks on the CDI files, which stay."""
        try:
            await super().scan(notifier)
        finally:
            if self._cdi is not None:
                self._cdi.close()
                self._cdi = None

    def change(self, tree: DeviceTree, now: float) -> DeviceTree:
        """Look up the NUMA nodes that a rule needs; the tree stays unchanged.

        Also take over the CDI files of an earlier process, before the first list is sent.
        """
        del now
        for name in tree:
            if (rule := self.rule_of(name)) and rule.cdi:
                self._begin_cdi().begin(name)
        wanted = [name for name in tree if (rule := self.rule_of(name)) and rule.needs("numa")]
        self._numa = {
            name: self._facts.with_numa_nodes(name, tree.devices(name)) for name in wanted
        }
        return tree

    def relay(self, inner: Hooks, device_type: str, inner_type: str) -> Relay:
        """Return the relay that adds to the answers of a type."""
        return _InjectingRelay(self, inner, device_type, inner_type)

    # ------------------------------------------------------------ for the relay

    def known(self, device_type: str, ids: Iterable[str]) -> list[PlaceholderValues]:
        """Return the values of placeholders for these devices; a replica counts as its device."""
        devices = self._numa.get(device_type, {})
        known = []
        for device_id in ids:
            nodes = devices[device_id].numa_nodes if device_id in devices else ()
            numa = ",".join(map(str, nodes or ()))
            known.append(PlaceholderValues(self._plugins_id(device_type, device_id), numa))
        return known

    def _plugins_id(self, device_type: str, device_id: str) -> str:
        # From the outermost layer to the plugin: each layer translates its IDs and types.
        for layer in layers(self.scanner):
            device_id = layer.inner_id(device_type, device_id)
            device_type = layer.inner_type(device_type)
        return device_id

    def note_replaced(self, device_type: str, names: list[str]) -> None:
        """Count the replaced entries of the plugin, and log each name once."""
        self.count("replaced", device_type, len(names))
        new = [name for name in names if name not in self._logged]
        self._logged.update(new)
        if new:
            _log.warning("%s: inject replaces %s of the plugin", device_type, some_of(new))

    async def to_cdi(self, device_type: str, container: ContainerAllocateResponse) -> None:
        """Replace the container's device files and mounts by one CDI device."""
        if container.devices or container.mounts:
            name = await hook_threads.call(self._name_for, device_type, container)
            container.devices, container.mounts = [], []
            container.cdi_devices = [*container.cdi_devices, name]

    def _name_for(self, device_type: str, container: ContainerAllocateResponse) -> str:
        return self._begin_cdi().name_for(device_type, container.devices, container.mounts)

    def _begin_cdi(self) -> "AnswerCdi":
        if self._cdi is None:
            from kubedevices.rules.answer_cdi import AnswerCdi  # noqa: PLC0415 - few use CDI

            self._cdi = AnswerCdi(self._domain, self._cdi_dir, dev_root=self._dev_root)
        return self._cdi


class _InjectingRelay(OwnedRelay[Injected]):
    adds = frozenset({Allocator, PostAllocator})

    async def edit(self, response: AllocateResponse, request: AllocateRequest) -> None:
        """Add to the answer for each container. Raises `ConflictingDevices`, `RpcError`."""
        injected, rule = self.owner, self.owner.rule_of(self.device_type)
        if rule is None:
            return
        for container, asked in zip(response.containers, request.containers, strict=False):
            devices = injected.known(self.device_type, asked.device_ids)
            replaced = add(container, additions(rule, devices))
            if replaced:
                injected.note_replaced(self.device_type, replaced)
            if rule.cdi:
                await injected.to_cdi(self.device_type, container)
            injected.count("injected", self.device_type)


def _rule_text(rule: InjectRule) -> str:
    words = [*rule.env, *(f"annotation {name}" for name in rule.annotations)]
    words += [part.container_path for part in rule.mounts]
    words += [part.container_path for part in rule.devices]
    words += rule.cdi_devices
    return ", ".join([*words, *(["as CDI devices"] if rule.cdi else [])])
