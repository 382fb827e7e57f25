"""A scanner behind middleware, scanned and called without a socket."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import kubedevices as kd
from kubedevices.plugin.device_list import DeviceListBuilder
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.options import Settings
from kubedevices.plugin.scan_task import TreeUpdates
from kubedevices.plugin.server import PluginServer


class Scanned:
    """The state of a runner for `scanner`: the last tree, and a server for each device type."""

    def __init__(self, scanner: kd.Scanner) -> None:
        self.scanner, self.updates = scanner, TreeUpdates()
        self.tree = kd.DeviceTree()

    async def next_tree(self) -> kd.DeviceTree:
        """Wait for the next tree that differs from the last."""
        async with asyncio.timeout(30):
            self.tree, _ = await self.updates.next()
        return self.tree

    def ids(self, device_type: str = "widget") -> list[str]:
        """Return the IDs of the last tree, in its order."""
        return [*self.tree.devices(device_type)]

    def server(self, device_type: str = "widget", **options: Any) -> PluginServer:
        """Return a server for `device_type` with the devices of the last tree."""
        name = f"example.com/{device_type}"
        devices = DeviceListBuilder(name).build(self.tree.devices(device_type))
        hooks = Hooks(self.scanner.abilities_of(device_type))
        return PluginServer(name, hooks, devices, Settings(**options))

    async def allocate(
        self, *ids: str, device_type: str = "widget"
    ) -> kd.ContainerAllocateResponse:
        """Return the answer for one container with these devices."""
        request = kd.AllocateRequest((kd.ContainerAllocateRequest(ids),))
        return (await self.server(device_type).allocate(request)).containers[0]

    async def prefer(
        self, available: str, size: int, must: str = "", device_type: str = "widget"
    ) -> list[str]:
        """Return the preferred IDs; `available` and `must` are IDs in a text with spaces."""
        asked = kd.ContainerPreferredRequest((*available.split(),), (*must.split(),), size)
        request = kd.PreferredAllocationRequest((asked,))
        answer = await self.server(device_type, preferred_errors="fail").get_preferred_allocation(
            request
        )
        return [*answer.containers[0]]


@contextlib.asynccontextmanager
async def scanned(scanner: kd.Scanner) -> AsyncIterator[Scanned]:
    """Run the scanner; the first tree is there when the context begins."""
    made = Scanned(scanner)
    task = asyncio.create_task(scanner.scan(made.updates.notifier), name="scan")
    try:
        await made.next_tree()
        yield made
    finally:
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.result()
