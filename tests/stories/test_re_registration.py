"""A plugin is replaced by a second plugin, and the second by a third: by Register and by socket.

The reference calls these DevicePluginReRegistration and DevicePluginReRegistrationProbeMode.
"""

from pathlib import Path

import pytest

from kubedevices.kubelet_api.services import device_plugin_methods, plugin_registration_methods
from kubedevices.node.arrival.plugin_watcher import PluginWatcher, WatcherTiming, device_plugins
from kubedevices.node.device_manager import DeviceManager
from kubedevices.values.allocation import PluginInfo
from kubedevices.values.device import ReportedDevice
from kubedevices.wire.unix_grpc import GrpcServer
from tests.fake_plugin import RESOURCE, FakePlugin, healthy
from tests.waiting import until

QUICK = WatcherTiming(interval=0.02, dial=5, get_info=5, notify=5)


@pytest.mark.parametrize("pre_start", [False, True])
@pytest.mark.parametrize("prefers", [False, True])
async def test_each_registration_brings_its_own_devices(
    pre_start: bool, prefers: bool, short_dir: Path
) -> None:
    """Two devices, the same two from another socket, then one other: no old device is left."""

    def plugin(name: str, *ids: str) -> FakePlugin:
        return FakePlugin(
            short_dir,
            socket_name=f"{name}.sock",
            devices=healthy(*ids),
            pre_start=pre_start,
            preferred=(lambda request: request.available) if prefers else None,
        )

    async with (
        DeviceManager(short_dir) as manager,
        plugin("first", "a", "b") as first,
        plugin("second", "a", "b") as second,
        plugin("third", "c") as third,
    ):
        for each, count in ((first, 2), (second, 2), (third, 1)):
            await each.register()
            await until(lambda each=each: each.lists_sent)  # type: ignore[misc]
            await manager.wait_for(RESOURCE, capacity=count, allocatable=count)
        assert set(manager.get_allocatable_devices()[RESOURCE]) == {"c"}


class FoundPlugin(FakePlugin):
    """A plugin with the Registration service on the same socket; records the kubelet's calls."""

    def __init__(self, socket_dir: Path, name: str, devices: list[ReportedDevice]) -> None:
        super().__init__(socket_dir, socket_name=f"{name}.sock", devices=devices)
        self.told: list[tuple[bool, str]] = []
        methods = {**device_plugin_methods(self), **plugin_registration_methods(self)}
        self._server = GrpcServer(methods, name=f"found {name}")

    async def get_info(self) -> PluginInfo:
        return PluginInfo("DevicePlugin", RESOURCE, "", ("v1beta1",))

    async def notify_registration_status(self, registered: bool, error: str) -> None:
        self.told.append((registered, error))


async def test_each_socket_in_the_registry_directory_brings_its_own_devices(
    short_dir: Path,
) -> None:
    """The same three plugins, found in the plugin registry directory one after the other."""
    registry = short_dir / "registry"
    async with DeviceManager(short_dir / "plugins") as manager:
        handler = manager.get_watcher_handler()
        watcher = PluginWatcher(
            registry, device_plugins(handler.connect, handler.disconnect), timing=QUICK
        )
        await watcher.start()
        first = FoundPlugin(registry, "first", healthy("a", "b"))
        second = FoundPlugin(registry, "second", healthy("a", "b"))
        third = FoundPlugin(registry, "third", healthy("c"))
        for plugin, count in ((first, 2), (second, 2), (third, 1)):
            await plugin.start()
            await until(lambda plugin=plugin: plugin.told and plugin.lists_sent)  # type: ignore[misc]
            await manager.wait_for(RESOURCE, capacity=count, allocatable=count)
            assert plugin.told == [(True, "")]
        assert set(manager.get_allocatable_devices()[RESOURCE]) == {"c"}
        await watcher.stop()
        for plugin in (first, second, third):
            await plugin.stop()
