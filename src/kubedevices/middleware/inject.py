"""Adds to every answer of Allocate: `Injected`. What it adds is decided in `additions`."""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kubedevices.allocation import AllocateRequest, AllocateResponse, ContainerAllocateResponse
from kubedevices.device_tree import DeviceTree
from kubedevices.errors import UsageError
from kubedevices.host.sysfs import DEV_ROOT
from kubedevices.middleware.additions import InjectRule, Known, add, additions
from kubedevices.middleware.device_facts import DeviceFacts
from kubedevices.middleware.middleware import Relay, RuledMiddleware, layers
from kubedevices.plugin import hook_threads
from kubedevices.plugin.capabilities import Allocator, PostAllocator
from kubedevices.plugin.cdi_files import CDI_DIR
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.scanner import Scanner
from kubedevices.words import some_of

if TYPE_CHECKING:
    from kubedevices.device import Device
    from kubedevices.middleware.answer_cdi import AnswerCdi

_log = logging.getLogger(__name__)


class Injected(RuledMiddleware[InjectRule]):
    """Adds variables, mounts, device files, annotations and CDI names to every answer.

    `Injected(scanner, InjectRule(env={"GPU_IDS": "{id}"}))`. What a rule says replaces what the
    plugin says of the same name or place. A rule with `cdi` needs the `domain` of the resources,
    and writes into `cdi_dir`. Events: `injected`, `replaced` (of an answer of the plugin's).
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
        self._told: set[str] = set()
        self._check_domain(rules)

    def use(self, rules: InjectRule | Mapping[str, InjectRule]) -> None:
        """Add other things to the answers from now on."""
        self._check_domain(rules)
        super().use(rules)

    def _check_domain(self, rules: InjectRule | Mapping[str, InjectRule]) -> None:
        each = rules.values() if isinstance(rules, Mapping) else (rules,)
        if any(rule.cdi for rule in each) and not self._domain:
            raise UsageError("inject with cdi: give Injected the domain of the resources")

    def line(self) -> str:
        """Return what is added."""
        lines = [f"{name} {_said(rule)}" for name, rule in self.named_rules()]
        return f"adds to answers for {'; '.join(lines)}" if lines else ""

    async def scan(self, notifier: Notifier) -> None:
        """Scan, and give up the CDI files at the end; they stay."""
        try:
            await super().scan(notifier)
        finally:
            if self._cdi is not None:
                self._cdi.close()
                self._cdi = None

    def change(self, tree: DeviceTree, now: float) -> DeviceTree:
        """Look up the NUMA nodes that a rule asks for; the devices stay as they are.

        The CDI files of an earlier life are taken over before the first devices are known.
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
        """Return what adds to the answers of a type."""
        return _InjectingRelay(self, inner, device_type)

    # ------------------------------------------------------------ for the relay

    def known(self, device_type: str, ids: Iterable[str]) -> list[Known]:
        """Return what is known of devices: a replica counts as its device."""
        devices = self._numa.get(device_type, {})
        known = []
        for device_id in ids:
            nodes = devices[device_id].numa_nodes if device_id in devices else ()
            known.append(Known(self._plugins_id(device_type, device_id), _joined(nodes or ())))
        return known

    def _plugins_id(self, device_type: str, device_id: str) -> str:
        # From the outermost layer to the plugin: each translates its own IDs.
        for layer in layers(self.scanner):
            device_id = layer.inner_id(device_type, device_id)
            device_type = layer.inner_type(device_type)
        return device_id

    def tell_of_replaced(self, device_type: str, names: list[str]) -> None:
        """Count what a rule took the place of, and log it once."""
        self.count("replaced", device_type, len(names))
        new = [name for name in names if name not in self._told]
        self._told.update(new)
        if new:
            _log.warning("%s: inject replaces %s of the plugin", device_type, some_of(new))

    async def to_cdi(self, device_type: str, container: ContainerAllocateResponse) -> None:
        """Let a CDI device give what the container's device files and mounts give."""
        if container.devices or container.mounts:
            name = await hook_threads.call(self._name_for, device_type, container)
            # The CDI device gives them now: the answer must not give them a second time.
            container.devices, container.mounts = [], []
            container.cdi_devices = [*container.cdi_devices, name]

    def _name_for(self, device_type: str, container: ContainerAllocateResponse) -> str:
        cdi = self._cdi or self._begin_cdi()
        return cdi.name_for(device_type, container.devices, container.mounts)

    def _begin_cdi(self) -> "AnswerCdi":
        from kubedevices.middleware.answer_cdi import AnswerCdi  # noqa: PLC0415 - few use CDI

        if self._cdi is None:
            self._cdi = AnswerCdi(self._domain, self._cdi_dir, dev_root=self._dev_root)
        return self._cdi


class _InjectingRelay(Relay):
    adds = frozenset({Allocator, PostAllocator})

    def __init__(self, injected: Injected, inner: Hooks, device_type: str) -> None:
        super().__init__(inner, device_type, device_type)
        self._injected = injected

    async def edit(self, response: AllocateResponse, request: AllocateRequest) -> None:
        """Add what the rule says to each container. Raises `ConflictingDevices`, `RpcError`."""
        injected, rule = self._injected, self._injected.rule_of(self.device_type)
        if rule is None:
            return
        for container, asked in zip(response.containers, request.containers, strict=False):
            devices = injected.known(self.device_type, asked.device_ids)
            replaced = add(container, additions(rule, devices))
            if replaced:
                injected.tell_of_replaced(self.device_type, replaced)
            if rule.cdi:
                await injected.to_cdi(self.device_type, container)
            injected.count("injected", self.device_type)


def _joined(nodes: Iterable[int]) -> str:
    return ",".join(map(str, nodes))


def _said(rule: InjectRule) -> str:
    words = [*rule.env, *(f"annotation {name}" for name in rule.annotations)]
    words += [part.container_path for part in rule.mounts]
    words += [part.container_path for part in rule.devices]
    words += rule.cdi_devices
    return ", ".join([*words, *(["as CDI devices"] if rule.cdi else [])])
