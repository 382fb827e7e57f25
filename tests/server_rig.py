"""A plugin server without socket and registration, and a reader of its lists."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from typing import Any, cast

import kubedevices as kd
from kubedevices.kubelet_api.device_lists import device_list_from_wire
from kubedevices.plugin.device_list import DeviceListBuilder
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.options import Settings
from kubedevices.plugin.server import EnsureCdi, PluginServer

RESOURCE = "example.com/widget"
HEALTHY, UNHEALTHY = kd.Health.HEALTHY, kd.Health.UNHEALTHY


def widgets(*ids: str, health: kd.Health = HEALTHY) -> list[kd.Device]:
    return [kd.Device(name, health=health, paths=[f"/dev/{name}"]) for name in ids]


class Served:
    """A server with the builder of its device lists."""

    def __init__(
        self,
        plugin: object = None,
        devices: Iterable[kd.Device] = (),
        ensure_cdi: EnsureCdi | None = None,
        **options: Any,
    ):
        self._builder = DeviceListBuilder(RESOURCE)
        self.server = PluginServer(
            RESOURCE,
            Hooks(plugin),
            self._builder.build({each.id: each for each in devices}),
            Settings(**options),
            ensure_cdi,
        )

    def publish(self, *devices: kd.Device) -> None:
        self.server.publish(self._builder.build({each.id: each for each in devices}))


class Reader:
    """One ListAndWatch stream, read by a task; `seen` has a dict of ID to health for every list."""

    def __init__(self, server: PluginServer) -> None:
        self.seen: list[dict[str, str]] = []
        self._task = asyncio.create_task(self._read(server.list_and_watch()), name="reader")

    async def _read(self, stream: AsyncIterator[bytes]) -> None:
        async with contextlib.aclosing(cast("AsyncGenerator[bytes]", stream)) as lists:
            async for item in lists:
                self.seen.append({d.id: d.health for d in device_list_from_wire(item)})

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})


@contextlib.asynccontextmanager
async def reading(server: PluginServer) -> AsyncIterator[Reader]:
    reader = Reader(server)
    try:
        yield reader
    finally:
        await reader.close()
