"""One inside resource as the kubelet sees it: a chain of middleware over its plugin, and a runner.

Each resource has a task of its own, so that each fails alone: what ends a runner is logged, and the
runner made anew after a pause.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from kubedevices.errors import KubedevicesError
from kubedevices.middleware.faults import Faulty
from kubedevices.plugin.options import RunnerOptions
from kubedevices.plugin.runner import PluginRunner
from kubedevices.plugin.served_type import run_together
from kubedevices.plugin.timing import back_off
from kubedevices.proxy.chain import Chain
from kubedevices.proxy.plugin_scanner import PluginScanner
from kubedevices.proxy.proxy_config import ProxyRule

if TYPE_CHECKING:
    from kubedevices.proxy.bridge import Bridge

_FIRST_PAUSE, _LAST_PAUSE = 1.0, 60.0

_log = logging.getLogger(__name__)


MakeChain = Callable[[PluginScanner], Chain | None]
"""Makes a new chain by the rules of now; None where the resource is not to be served."""


class ProxiedResource:
    """Serves `plugin` by the chain that `make_chain` returns, until `run` is cancelled."""

    def __init__(
        self,
        plugin: PluginScanner,
        make_chain: MakeChain,
        options: RunnerOptions,
        bridge: "Bridge | None" = None,
    ) -> None:
        self.plugin = plugin
        self.runner: PluginRunner | None = None
        self.chain: Chain | None = None
        self._make_chain, self._options, self._bridge = make_chain, options, bridge
        self._again = asyncio.Event()
        plugin.options_changed = self.make_again

    def make_again(self) -> None:
        """Serve by the rules of now: the resource registers again."""
        self._again.set()

    def use(self, rule: ProxyRule | None) -> None:
        """Go on with another rule, None to stop serving; an equal rule changes nothing."""
        before = self.chain.rule if self.chain is not None else None
        # Layers that can take a new rule do so: a new chain means new sockets and a new
        # registration.
        if rule != before and (self.chain is None or rule is None or not self.chain.use(rule)):
            self.make_again()

    async def run(self) -> NoReturn:
        """Serve; raises nothing but what is a bug."""
        failures = 0
        while True:
            self._again.clear()
            try:
                await self._serve()
                failures = 0
            except KubedevicesError as error:
                pause = back_off(_FIRST_PAUSE, _LAST_PAUSE, failures)
                failures += 1
                _log.error(  # a message for the operator
                    "%s: not served: %s (again in %g s)", self.plugin.resource, error, pause
                )
                await self._wait_again(pause)

    async def _serve(self) -> None:
        """Serve until something about it changes."""
        self.chain = self._make_chain(self.plugin)
        if self.chain is None:
            await self._again.wait()
            return
        if self._bridge is not None:
            await self._serve_by(self._bridge, self.chain)
            return
        options: RunnerOptions = {**self._options}
        if isinstance(faulty := self.chain.layers.get("faults"), Faulty):
            options["wrap_lists"] = faulty.wrap_lists
        runner = PluginRunner(self.chain.scanner, domain=self.chain.domain, **options)
        again = asyncio.create_task(self._again.wait(), name=f"{self.plugin.resource} again")
        running = asyncio.create_task(runner.run(), name=f"runner of {self.plugin.resource}")
        self.runner = runner
        try:
            await asyncio.wait({again, running}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Stopped, not cancelled: the runner removes its sockets and ends calls in its own
            # order.
            runner.stop()
            again.cancel()
            await asyncio.wait({again, running})
            self.runner = None
            error = None if running.cancelled() else running.exception()
        if error is not None:
            raise error

    async def _serve_by(self, bridge: "Bridge", chain: Chain) -> None:
        """Let a DRA driver have the devices until something about the resource changes."""
        await run_together(
            ("bridge", bridge.serve(chain.domain, chain.scanner)), ("again", self._again.wait())
        )

    async def _wait_again(self, pause: float) -> None:
        try:
            async with asyncio.timeout(pause):
                await self._again.wait()
        except TimeoutError:
            return
