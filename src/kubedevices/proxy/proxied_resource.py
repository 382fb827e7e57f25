"""One inside resource on its way to the kubelet: a middleware chain over its plugin, and a runner.

Each resource has a supervised task of its own, so that no resource stops another: the error that
ends a runner is logged, and the runner is created again after a pause.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from kubedevices.plugin.options import RunnerOptions
from kubedevices.plugin.runner import PluginRunner
from kubedevices.plugin.served_type import run_together
from kubedevices.proxy.middleware_chain import MiddlewareChain
from kubedevices.proxy.plugin_scanner import PluginScanner
from kubedevices.proxy.proxy_config import ProxyRule
from kubedevices.rules.faults import Faulty

if TYPE_CHECKING:
    from kubedevices.proxy.dra_bridge import DraBridge


MakeChain = Callable[[PluginScanner], MiddlewareChain | None]
"""Creates a chain by the rules in force; returns None if the resource is not to be served."""


class ProxiedResource:
    """Serves `plugin` by the chain that `make_chain` returns, until `run` is cancelled."""

    def __init__(
        self,
        plugin: PluginScanner,
        make_chain: MakeChain,
        options: RunnerOptions,
        bridge: "DraBridge | None" = None,
    ) -> None:
        self.plugin = plugin
        self.runner: PluginRunner | None = None
        self.chain: MiddlewareChain | None = None
        self._make_chain, self._options, self._bridge = make_chain, options, bridge
        self.must_rebuild = asyncio.Event()
        """Set when the rules in force need a new chain."""

        plugin.options_changed = self.must_rebuild.set

    def use(self, rule: ProxyRule | None) -> None:
        """Serve by another rule, None to stop serving; an equal rule changes nothing."""
        before = self.chain.rule if self.chain is not None else None
        # If possible the existing layers get the new rule: a new chain needs new sockets and a new
        # registration.
        if rule != before and (self.chain is None or rule is None or not self.chain.use(rule)):
            self.must_rebuild.set()

    async def run(self) -> NoReturn:
        """Serve until cancelled, with a new chain whenever the rules need one. May raise."""
        try:
            while True:
                self.must_rebuild.clear()
                await self._serve()
        finally:
            self._forget()

    def _forget(self) -> None:
        """Take the devices out of DRA: without a chain nothing serves them."""
        if self._bridge is not None:
            self._bridge.forget(self.plugin)

    async def _serve(self) -> None:
        """Serve until the chain has to be created again."""
        self.chain = self._make_chain(self.plugin)
        if self.chain is None:
            self._forget()
            await self.must_rebuild.wait()
            return
        if self._bridge is not None:
            await run_together(
                ("bridge", self._bridge.serve(self.chain.domain, self.chain.scanner, self.plugin)),
                ("again", self.must_rebuild.wait()),
            )
            return
        options: RunnerOptions = {**self._options}
        if isinstance(faulty := self.chain.layers.get("faults"), Faulty):
            options["wrap_lists"] = faulty.wrap_lists
        runner = PluginRunner(self.chain.scanner, domain=self.chain.domain, **options)
        rebuild = asyncio.create_task(
            self.must_rebuild.wait(), name=f"{self.plugin.resource} again"
        )
        running = asyncio.create_task(runner.run(), name=f"runner of {self.plugin.resource}")
        self.runner = runner
        try:
            await asyncio.wait({rebuild, running}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # `stop`, not a cancellation: the runner removes its sockets and ends calls in its own
            # order.
            runner.stop()
            rebuild.cancel()
            await asyncio.wait({rebuild, running})
            self.runner = None
            error = None if running.cancelled() else running.exception()
        if error is not None:
            raise error
