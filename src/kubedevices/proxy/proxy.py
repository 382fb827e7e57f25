"""The whole proxy: takes plugins in, and serves their devices to the kubelet by the rules."""

import logging
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kubedevices.errors import DeviceListTooLarge, needs_h11
from kubedevices.kubelet_api.kubelet_devices import ask_held
from kubedevices.plugin.config_follower import ConfigFollower
from kubedevices.plugin.options import RunnerOptions, Settings
from kubedevices.plugin.runner import PluginRunner
from kubedevices.plugin.scanner import Scanner
from kubedevices.plugin.server import PluginServer
from kubedevices.plugin.stoppable import Stoppable
from kubedevices.plugin.supervised_tasks import SupervisedTasks
from kubedevices.plugin.timing import Timing
from kubedevices.proxy.inside_directory import InsideDirectory
from kubedevices.proxy.live_rules import LiveRules
from kubedevices.proxy.middleware_chain import MiddlewareChain, make_chain
from kubedevices.proxy.plugin_calls import CallLimits
from kubedevices.proxy.plugin_scanner import PluginScanner
from kubedevices.proxy.proxied_resource import ProxiedResource
from kubedevices.proxy.proxy_config import ProxyConfig, ProxyRule
from kubedevices.proxy.saved_list import SavedLists
from kubedevices.proxy.state_service import serving_state
from kubedevices.rules.hold import Holders
from kubedevices.values.socket_paths import INSIDE_DIR, POD_RESOURCES, STATE_DIR

if TYPE_CHECKING:
    from kubedevices.dra.options import DraOptions
    from kubedevices.proxy.dra_bridge import DraBridge

_log = logging.getLogger(__name__)


class Proxy(Stoppable):
    """Serves every plugin that registers in `plugin_dir` at the kubelet of `socket_dir`.

    Call `run` once; call `stop` at any time, from any thread.
    """

    def __init__(
        self,
        *,
        socket_dir: Path,
        plugin_dir: Path = INSIDE_DIR,
        state_dir: Path = STATE_DIR,
        registry_dir: Path | None = None,
        rules: LiveRules | None = None,
        on_allocated: Callable[[str, float], None] | None = None,
        limits: CallLimits = CallLimits(),  # noqa: B008 - a frozen value
        timing: Timing | None = None,
        dra: "DraOptions | None" = None,
        pod_resources: Path | None = None,
    ) -> None:
        """With `dra`, the plugins become DRA drivers, and the proxy registers no device plugin.

        `pod_resources` is the kubelet's podresources socket, which says which devices pods hold; by
        default the socket that belongs to `socket_dir`. Raises `UsageError`: with `dra` also for a
        rule that DRA cannot follow.
        """
        super().__init__()
        self.rules = rules or LiveRules()
        if dra is not None:
            self.rules.use_in_dra()
        self.rules.changed = self._use
        self._state_dir = state_dir
        self._saved = SavedLists(state_dir, self.rules.of)
        self._pod_resources = pod_resources or socket_dir.parent / POD_RESOURCES
        self._options: RunnerOptions = {
            "socket_dir": socket_dir,
            "on_server_error": "isolate",
            "relay": True,
            "preferred_errors": "fail",
            "allocate_timeout": math.inf,  # `limits` already limit the calls inside
            "preferred_timeout": math.inf,
            "pre_start_timeout": math.inf,
            "on_allocated": on_allocated,
            "timing": timing or Timing(),
        }
        self.settings = Settings(**self._options)
        self.bridge = None if dra is None else make_bridge(dra, state_dir, limits)
        self.inside = InsideDirectory(
            plugin_dir,
            state_dir,
            self._add,
            registry_dir=registry_dir,
            limits=limits,
            is_repaired=self._is_mended,
            vanished=self._remove,
        )
        self.resources: dict[str, ProxiedResource] = {}
        self._tasks = SupervisedTasks()
        self.has_started = False

    # ------------------------------------------------------------ for the HTTP pages

    domain = ""
    """Empty: each resource has a domain of its own."""

    @property
    def scanners(self) -> list[Scanner]:
        """The scanner of each resource, with its middleware."""
        return [each.chain.scanner for each in self.resources.values() if each.chain is not None]

    @property
    def follower(self) -> ConfigFollower[ProxyConfig] | None:
        """The follower of the configuration file, if there is a file."""
        return self.rules.follower

    @property
    def runners(self) -> dict[str, PluginRunner]:
        """The runner of each inside resource that is served now."""
        return {
            name: each.runner for name, each in self.resources.items() if each.runner is not None
        }

    @property
    def servers(self) -> dict[str, PluginServer]:
        """The plugin server of each resource outside."""
        return {
            server.resource: server
            for runner in self.runners.values()
            for server in runner.servers.values()
        }

    @property
    def too_large(self) -> dict[str, DeviceListTooLarge]:
        """The resources whose device list is too large to be offered as a whole."""
        found = [each for runner in self.runners.values() for each in runner.too_large.values()]
        return {error.resource: error for error in found}

    @property
    def has_scanned(self) -> bool:
        """Whether plugins can register."""
        return self.has_started

    @property
    def connected(self) -> dict[str, bool]:
        """Whether the plugin is here, of each resource that registered or that the file names.

        Resources that the rules hide are left out.
        """
        scanners = self.inside.scanners
        return {
            name: (scanner := scanners.get(name)) is not None and scanner.is_here
            for name in sorted({*scanners, *self.rules.named()})
            if self.rules.of(name) is not None
        }

    @property
    def problems(self) -> list[str]:
        """What keeps the process from being ready, beside the resources of `servers`."""
        connected = self.connected
        found = [
            f"{name}: its plugin is away" for name in self.rules.named() if not connected[name]
        ]
        failed = {**self.inside.tasks.failed, **self._tasks.failed}
        found += [f"{name}: {error}" for name, error in failed.items()]
        return [*found, *(self.bridge.problems if self.bridge is not None else ())]

    @property
    def is_ready(self) -> bool:
        """Whether kubelets watch all resources, plugins list all of the file, and no part fails."""
        return (
            self.has_started
            and not self.problems
            and all(runner.is_ready for runner in self.runners.values())
        )

    def is_registered(self, resource: str) -> bool:
        """Whether the proxy has registered `resource` at a kubelet."""
        return any(runner.is_registered(name) for runner, name in self._runners_of(resource))

    def is_serving(self, resource: str) -> bool:
        """Whether the socket of `resource` is bound and accepts calls."""
        return any(runner.is_serving(name) for runner, name in self._runners_of(resource))

    def _runners_of(self, resource: str) -> list[tuple[PluginRunner, str]]:
        domain, _, device_type = resource.partition("/")
        return [(each, device_type) for each in self.runners.values() if each.domain == domain]

    # ------------------------------------------------------------ start to stop

    def unlink_sockets(self) -> None:
        """Remove the socket files outside at once: for an exit that cannot wait for `run`."""
        for resource in self.resources.values():
            if resource.runner is not None:
                resource.runner.unlink_sockets()
        if self.bridge is not None:
            self.bridge.unlink_sockets()

    async def run(self) -> None:
        """Serve until `stop` is called; raises `CannotAsk` if plugins cannot register."""
        if not self._begin():
            return
        try:
            async with (
                self.inside.serving(),
                serving_state(self._state_dir, self.resources, self.rules.of),
            ):
                for name, saved in self._saved.load().items():
                    self.inside.expect(name, saved)
                self._tasks.start("saved lists", partial(self._saved.keep, self.inside.scanners))
                if self.bridge is not None:
                    self._tasks.start("bridge", self.bridge.run)
                self._tasks.start("unused rules", partial(self.rules.watch, self.resources))
                if self.rules.follower is not None:
                    self._tasks.start("configuration file", self.rules.follower.run)
                self.has_started = True
                _log.info("plugins can register in %s", self.inside.plugin_dir)
                await self._stopped.wait()
                # Before the plugins inside are disconnected: otherwise the kubelet would see their
                # devices disappear.
                await self._tasks.stop()
        finally:
            await self._tasks.stop()

    def _add(self, plugin: PluginScanner) -> None:
        name = str(plugin.resource)
        plugin.list_changed = self._saved.look_again
        resource = ProxiedResource(plugin, self._make_chain, self._options, self.bridge)
        self.resources[name] = resource
        self._tasks.start(name, resource.run, hurry=resource.must_rebuild)

    def _remove(self, plugin: PluginScanner) -> None:
        """Forget a resource without a plugin."""
        name = str(plugin.resource)
        del self.resources[name]
        self._tasks.end(name)
        self.rules.release_names(name)

    def _make_chain(self, plugin: PluginScanner) -> MiddlewareChain | None:
        name = str(plugin.resource)
        rule = self.rules.of(name)
        if rule is None:
            return None
        with_place = partial(self.rules.with_place, name)
        chain = make_chain(
            plugin, plugin.resource, rule, self._state_dir, with_place, holders=self._holders
        )
        self.rules.reserve_names(name, rule)
        return chain

    def _holders(self, domain: str) -> Holders:
        """Return the question which devices of `domain` pods hold: asked of the kubelet's side."""
        if self.bridge is not None:
            return self.bridge.holders(domain)

        async def ask() -> set[tuple[str, str]]:
            held, prefix = await ask_held(self._pod_resources), f"{domain}/"
            return {
                (resource.removeprefix(prefix), device)
                for resource, device in held
                if resource.startswith(prefix)
            }

        return ask

    def _is_mended(self, resource: str) -> bool:
        return (self.rules.of(resource) or ProxyRule()).repair

    def _use(self) -> None:
        """Apply the rules in force to every resource."""
        self._saved.look_again()
        for name, resource in self.resources.items():
            resource.use(self.rules.of(name))


def make_bridge(options: "DraOptions", state_dir: Path, limits: CallLimits) -> "DraBridge":
    """Return the bridge that serves plugins as DRA drivers. Raises `UsageError`."""
    with needs_h11("mode dra"):
        from kubedevices.proxy.dra_bridge import DraBridge  # noqa: PLC0415 - half of the memory
    options.setdefault("allocate_timeout", limits.allocate)
    options.setdefault("pre_start_timeout", limits.pre_start)
    return DraBridge(options, state_dir)
