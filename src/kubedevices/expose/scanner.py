"""Serves this host's devices by a YAML file: `kubedevices expose`.

It looks at the host every `scanInterval` and follows devices that appear and disappear.
`expose_host` finds the devices of the host; `expose_tree` decides which devices to serve and how.
"""

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Self

from kubedevices.config.yaml_source import SourceProblems
from kubedevices.errors import CannotRead, ConfigError, UsageError
from kubedevices.errors.words import counted
from kubedevices.expose.abilities import ExposedResource, abilities_for, has_preference
from kubedevices.expose.checks import cdi_kind
from kubedevices.expose.config import ExposeConfig, ResourceRule, load_expose_config
from kubedevices.expose.host import HostDevices
from kubedevices.expose.names_file import KeptNames, KeptResource
from kubedevices.expose.recognition import DeviceMemory, Naming
from kubedevices.expose.tree import Exposed, Names, expand, make_tree, survey
from kubedevices.expose.witnesses import Witnesses
from kubedevices.host.sysfs import DEV_ROOT, SYSFS_ROOT
from kubedevices.plugin.allocate_response import Inject
from kubedevices.plugin.config_follower import ConfigFollower
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.polled_scanner import PolledScanner
from kubedevices.rules.health_checks import DeviceCheck, HealthChecks
from kubedevices.values.device import Health, natural_key
from kubedevices.values.device_tree import DeviceTree

_MANY = 10
"""With more devices than this, one line is logged for all of them together."""

_log = logging.getLogger(__name__)


class ExposeScanner(PolledScanner):
    """Finds the devices that `config` names. If `from_file` created it, it follows the file.

    `inject` says how containers get the devices of a resource for which `config` does not say it.
    The runner itself must have its default, "both", with which each device decides. `served` is
    `config` with the resources that the last look named after their matches.
    """

    follower: ConfigFollower[ExposeConfig] | None = None

    def __init__(
        self,
        config: ExposeConfig,
        *,
        dev_root: Path = DEV_ROOT,
        sysfs_root: Path = SYSFS_ROOT,
        inject: Inject = "nodes",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inject = inject
        self._check_cdi_kinds(config)
        self.config = self.served = config
        self._names: Names = {}
        self.interval = config.scan_interval
        self._clock = clock
        self._host = HostDevices(dev_root, sysfs_root)
        self._memory = DeviceMemory()
        self._kept, self._witnesses = KeptNames(), Witnesses()
        self._health = HealthChecks(self.trigger, here=self._host.here, clock=clock)
        self._last = DeviceTree()
        self._warned: set[str] = set()
        self._left_out: frozenset[str] = frozenset()

    @classmethod
    def from_file(cls, file: Path, *, dev_root: Path = DEV_ROOT, inject: Inject = "nodes") -> Self:
        """Read `file`; raises `CannotRead` and `ConfigError`.

        A `dev_root` that is not a directory is an error too: no device would ever be found.
        """
        check_dev_root(dev_root)
        # The follower comes first, so that it notices a change during the first reading.
        follower = ConfigFollower(file, load_expose_config)
        scanner = cls(load_expose_config(file)[0], dev_root=dev_root, inject=inject)
        follower.apply = scanner.use
        scanner.follower = follower
        return scanner

    def remember(self, kept: KeptNames, witnesses: Witnesses) -> None:
        """Give devices the IDs of an earlier process; call this before the first look."""
        self._kept, self._witnesses = kept, witnesses

    def reload(self) -> None:
        """Have the file read again. May be called from any thread or signal handler."""
        if self.follower is not None:
            self.follower.request()

    def use(self, config: ExposeConfig, report: SourceProblems) -> None:
        """Serve by `config` from now on; unchanged resources are not disturbed."""
        if config.namespace != self.config.namespace:
            change = f"a change from {self.config.namespace} to {config.namespace} needs a restart"
            raise ConfigError([report.place(("namespace",))._replace(problem=change)])
        self._check_cdi_kinds(config)
        self._warn_of_late_preferences(config)
        self._warn_of_fewer_replicas(config)
        self.config = config
        self.interval = config.scan_interval
        self.trigger()

    def _warn_of_late_preferences(self, config: ExposeConfig) -> None:
        """Warn of new preferences: a kubelet asks for the plugin's options only at registration."""
        silent = {rule.device_type for rule in self.config.resources if not has_preference(rule)}
        for rule in config.resources:
            if has_preference(rule) and rule.device_type in silent:
                _log.warning(
                    "%s: `replicas` and `allocation` decide which devices are allocated first only "
                    "after a restart of this plugin",
                    rule.device_type,
                )

    def _warn_of_fewer_replicas(self, config: ExposeConfig) -> None:
        """Warn that a container may still hold a replica that is no longer listed."""
        before = {rule.name: rule.replicas for rule in self.config.resources}
        for rule in config.resources:
            if rule.replicas < before.get(rule.name, 0):
                _log.warning(
                    "%s: %s instead of %d: a container that holds one of the others keeps the "
                    "device beside the next holder until it ends",
                    rule.device_type, counted(rule.replicas, "replica"), before[rule.name],
                )  # fmt: skip

    async def scan(self, notifier: Notifier) -> None:
        """Look at the host until stopped, and follow the file."""
        await self._witnesses.ask()
        if self.follower is None:
            await super().scan(notifier)
            return
        follower = asyncio.create_task(self.follower.run(), name="configuration file")
        try:
            await super().scan(notifier)
        finally:
            follower.cancel()
            await asyncio.wait({follower})

    async def _pause(self, wake: asyncio.Event) -> None:
        """Run health checks when they are due, until the next look at the host."""
        checking = asyncio.create_task(self._run_checks(), name="health checks")
        try:
            await super()._pause(wake)
        finally:
            checking.cancel()
            await asyncio.wait({checking})

    async def _run_checks(self) -> None:
        # A new set of checks comes only with the next look.
        while (pause := self._health.pause()) is not None:
            await asyncio.sleep(pause)
            self._health.run_due()

    def list_devices(self) -> DeviceTree:
        """Look once."""
        self._host.look_again()
        # Stored once: a reload may replace the configuration at any time.
        config = self.served = expand(self.config, self._host, self._names)
        exposed = self._survey(config)
        self._health.update(
            {
                _key(each): DeviceCheck(each.rule.health, each.values)
                for each in exposed
                if each.is_there and each.rule.health
            }
        )
        tree, problems = make_tree(config, exposed, self._health_of, self._inject, self._reason_of)
        self._warn_of_left_out(config, problems)
        self._log_changes(config, tree)
        self._warn_of_files_in_two_resources(exposed)
        self._last = tree
        return tree

    def warn_of_shared_files(self) -> None:
        """Warn of a device that the configuration exposes twice on this host."""
        config = expand(self.config, self._host, {})
        self._warn_of_files_in_two_resources(survey(config, self._host, DeviceMemory()))

    def _survey(self, config: ExposeConfig) -> list[Exposed]:
        """Return the devices with the IDs that pods know; write them for the next process."""
        rules = config.resources
        # The witnesses are asked at most once in a look, and mostly not at all.
        naming = Naming(
            self._clock(),
            functools.cache(self._witnesses.holds),
            functools.cache(lambda: tuple(self._kept.former(rules))),
        )
        for rule in rules:
            if (rule.device_type, rule.id) not in self._memory:
                restored = self._kept.restored(rule, naming)
                self._memory.restore((rule.device_type, rule.id), restored)
        exposed = [*survey(config, self._host, self._memory, naming)]
        self._witnesses.forget()
        for rule in rules:
            known = self._memory.known((rule.device_type, rule.id))
            self._kept.keep(rule.device_type, KeptResource(rule.id, known))
        self._kept.save([rule.device_type for rule in rules])
        return exposed

    def _health_of(self, exposed: Exposed) -> Health:
        """Return the health of a device; Unhealthy until its first check has ended."""
        if exposed.part.found.problem:
            return Health.UNHEALTHY
        if exposed.rule.health is None:
            return Health.HEALTHY
        return self._health.health(_key(exposed)) or Health.UNHEALTHY

    def _reason_of(self, exposed: Exposed) -> str:
        """Return why a device that is there is Unhealthy."""
        if problem := exposed.part.found.problem:
            return problem
        return self._health.reason(_key(exposed)) or "its first check has not ended"

    def abilities_of(self, device_type: str) -> ExposedResource:
        """Return the abilities of one resource; they follow changes of the configuration."""

        def get_rule() -> ResourceRule | None:
            rules = self.served.resources
            return next((rule for rule in rules if rule.device_type == device_type), None)

        return abilities_for(get_rule, lambda: [*self._last.devices(device_type)])

    def _log_changes(self, config: ExposeConfig, tree: DeviceTree) -> None:
        for resource in tree:
            before, now = self._last.devices(resource), tree.devices(resource)
            if resource not in self._last:
                _log.info("%s/%s: %s", config.namespace, resource, counted(len(now), "device"))
                continue
            name = f"{config.namespace}/{resource}"
            _log_events(name, "appeared", now.keys() - before.keys())
            _log_events(name, "vanished", before.keys() - now.keys())
            for health in Health:
                turned = {
                    device_id
                    for device_id in now.keys() & before.keys()
                    if now[device_id].health is health is not before[device_id].health
                }
                _log_events(name, f"is now {health}", turned)

    def _warn_of_files_in_two_resources(self, exposed: Iterable[Exposed]) -> None:
        """Warn of a device in two resources: two containers could get it at the same time."""
        owner: dict[str, str] = {}
        for each in exposed:
            path, resource = each.part.found.file.real_path, each.rule.device_type
            first = owner.setdefault(path, resource)
            if first != resource and path not in self._warned:
                self._warned.add(path)
                _log.warning(
                    "%s is exposed as %s and as %s: two containers may get it at the same time",
                    path, first, resource,
                )  # fmt: skip

    def _warn_of_left_out(self, config: ExposeConfig, problems: Collection[str]) -> None:
        """Warn once for each problem, not at every look; again if it disappeared in between."""
        for problem in problems:
            if problem not in self._left_out:
                _log.warning("%s/%s; the device is left out", config.namespace, problem)
        self._left_out = frozenset(problems)

    def _check_cdi_kinds(self, config: ExposeConfig) -> None:
        """Raise `UsageError` if the default `inject` needs a CDI kind that a resource cannot have.

        Resources with their own key `inject` are checked when the file is read.
        """
        if self._inject == "nodes":
            return
        for rule in config.resources:
            problem = cdi_kind(f"{config.namespace}/{rule.device_type}")
            if rule.inject is None and problem:
                raise UsageError(f"{rule.name}: {problem} (give it the key 'inject: nodes')")


def check_dev_root(directory: Path) -> None:
    """Raise `CannotRead` for a path that is not a directory."""
    if not directory.is_dir():
        raise CannotRead(str(directory), "this is not a directory with devices")


def _key(exposed: Exposed) -> tuple[str, ...]:
    return exposed.rule.name, exposed.id


def _log_events(resource: str, what: str, device_ids: Collection[str]) -> None:
    """Log a line for each device; if there are many, one line, and their list at level debug."""
    in_order = sorted(device_ids, key=natural_key)
    if len(in_order) <= _MANY:
        for device_id in in_order:
            _log.info("%s: %s %s", resource, device_id, what)
        return
    _log.info("%s: %s … (%d in all) %s", resource, in_order[0], len(in_order), what)
    _log.debug("%s: %s: %s", resource, what, ", ".join(in_order))
