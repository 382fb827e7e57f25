"""A proxy between a fake kubelet and fake plugins, with real sockets, on one loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from kubedevices.kubelet_api import services
from kubedevices.proxy.live_rules import LiveRules
from kubedevices.proxy.proxy import Proxy
from kubedevices.proxy.proxy_config import ProxyConfig, ProxyRule
from kubedevices.values.device import ReportedDevice
from tests.fake_kubelet import Connected, FakeKubelet
from tests.fake_plugin import RESOURCE, FakePlugin
from tests.waiting import until
from tests.widgets import QUICK


def ruled(**rule: Any) -> LiveRules:
    """Return one rule for every resource."""
    return LiveRules(ProxyConfig(resources={"*/*": ProxyRule(**rule)}))


class ProxyRig:
    """A proxy with its kubelet; `directory` gets an inside, an outside and a state directory."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.inside, self.outside = directory / "in", directory / "out"
        self.state = directory / "state"
        self.outside.mkdir(exist_ok=True)
        self.options = {"timing": QUICK, **options}
        self.kubelet = FakeKubelet(self.outside)
        self.proxy = self._make_proxy()
        self._task: asyncio.Task[None] | None = None
        self._stack = contextlib.AsyncExitStack()

    def _make_proxy(self) -> Proxy:
        return Proxy(
            socket_dir=self.outside,
            plugin_dir=self.inside,
            state_dir=self.state,
            **self.options,
        )

    async def start_proxy(self) -> None:
        """Start a new instance of the proxy, as a new process would."""
        self.proxy = self._make_proxy()
        self._task = asyncio.create_task(self.proxy.run(), name="proxy under test")
        task = self._task
        await until(lambda: task.done() or self.proxy.has_started)
        if task.done():
            task.result()

    async def stop_proxy(self) -> None:
        """Stop the proxy as SIGTERM does."""
        assert self._task is not None
        self.proxy.stop()
        await asyncio.wait({self._task}, timeout=20)
        self._task.result()

    async def plugin(self, *devices: ReportedDevice, **options: Any) -> FakePlugin:
        """Start a plugin in the inside directory and register it."""
        plugin = FakePlugin(self.inside, devices=devices, **options)
        await self._stack.enter_async_context(plugin)
        await plugin.register()
        return plugin

    async def served(self, count: int, resource: str = RESOURCE) -> Connected:
        """Wait until the kubelet has `count` devices."""
        return await self.kubelet.wait_for(resource, count)


@contextlib.asynccontextmanager
async def proxied(directory: Path, **options: Any) -> AsyncIterator[ProxyRig]:
    """Run a proxy and a kubelet; at the end, no socket of the proxy may be left."""
    rig = ProxyRig(directory, **options)
    async with rig.kubelet, rig._stack:
        await rig.start_proxy()
        try:
            yield rig
        finally:
            await rig.stop_proxy()
            assert [path.name for path in rig.outside.iterdir()] == ["kubelet.sock"]


async def ask(served: Connected, method: str, payload: bytes = b"") -> bytes:
    """Call a method with bytes and return bytes; raises `RpcError`."""
    return await served.channel.unary(method, payload, timeout=20)


async def first_list(served: Connected) -> bytes:
    """Return the bytes of the first list of a new stream."""
    async with contextlib.aclosing(served.channel.stream(services.LIST_AND_WATCH)) as lists:
        return await anext(lists)
