"""A device manager, and a plugin whose list it has."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from kubedevices.node.device_manager import DeviceManager
from kubedevices.values.device import ReportedDevice
from tests.fake_plugin import FakePlugin


@asynccontextmanager
async def listed(
    manager: DeviceManager, devices: Collection[ReportedDevice], *, socket_name: str = "widget.sock"
) -> AsyncIterator[FakePlugin]:
    """Run a plugin that has registered at `manager` and listed `devices`."""
    directory = manager._registration.socket.parent
    async with FakePlugin(directory, devices=devices, socket_name=socket_name) as plugin:
        await plugin.register()
        healthy = [each for each in devices if each.health == "Healthy"]
        await manager.wait_for(plugin.resource, capacity=len(devices), allocatable=len(healthy))
        yield plugin
