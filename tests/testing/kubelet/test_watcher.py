"""The probe as plugin watcher: it calls GetInfo on sockets in the registry directory."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubedevices.errors import RpcError, StatusCode
from kubedevices.kubelet_api.services import device_plugin_methods, plugin_registration_methods
from kubedevices.testing.kubelet.arrival import RegisterBehavior
from kubedevices.testing.kubelet.kubelet import Probe
from kubedevices.values.allocation import PluginInfo
from kubedevices.wire.unix_grpc import GrpcServer
from tests.fake_plugin import RESOURCE, FakePlugin, healthy
from tests.waiting import until


class Watched(FakePlugin):
    """A plugin that serves both services on one socket in the registry directory."""

    def __init__(self, registry: Path) -> None:
        super().__init__(registry, devices=healthy("a"))
        self.endpoint = ""
        self.told: list[str] = []
        self.deaf = False
        methods = {**device_plugin_methods(self), **plugin_registration_methods(self)}
        self._server = GrpcServer(methods, name="watched")

    async def get_info(self) -> PluginInfo:
        return PluginInfo("DevicePlugin", self.resource, self.endpoint, ("v1beta1",))

    async def notify_registration_status(self, registered: bool, error: str) -> None:
        if self.deaf:
            raise RpcError(StatusCode.UNIMPLEMENTED, "no")
        self.told.append(error or "registered")


@pytest.fixture
async def probe(short_dir: Path) -> AsyncIterator[Probe]:
    for name in ("plugins", "registry"):
        (short_dir / name).mkdir()
    async with Probe(short_dir / "plugins", short_dir / "registry", dial_limit=2) as probe:
        await probe.start()
        yield probe


async def test_a_socket_is_found_and_notified(probe: Probe, short_dir: Path) -> None:
    """The plugin is admitted and notified; without an endpoint its registry socket is used."""
    async with Watched(short_dir / "registry") as plugin:
        await until(lambda: plugin.told, what="a notification")
        assert plugin.told == ["registered"]
        (arrival,) = probe.arrivals
        assert arrival.info
        assert arrival.info.type == "DevicePlugin"
        assert probe.plugins[RESOURCE].socket == plugin.socket
        assert await probe.change_signal.until(lambda: probe.plugins[RESOURCE].latest, 5)


async def test_after_a_restart_it_is_found_again(probe: Probe, short_dir: Path) -> None:
    """A restart removes nothing there, and the plugin need not do anything."""
    async with Watched(short_dir / "registry") as plugin:
        await until(lambda: plugin.told, what="a notification")
        await probe.restart()
        await until(lambda: len(plugin.told) == 2, what="another one")
        assert probe.plugins[RESOURCE].is_alive


async def test_a_refusal_is_notified(probe: Probe, short_dir: Path) -> None:
    """NotifyRegistrationStatus has the error."""
    probe.behavior = RegisterBehavior(refusal="not today")
    async with Watched(short_dir / "registry") as plugin:
        await until(lambda: plugin.told, what="a notification")
        assert plugin.told == ["not today"]
        assert not probe.plugins


async def test_an_error_of_the_notification_is_recorded(probe: Probe, short_dir: Path) -> None:
    """The arrival has the error of NotifyRegistrationStatus."""
    plugin = Watched(short_dir / "registry")
    plugin.deaf = True
    async with plugin:
        await until(lambda: probe.arrivals and probe.arrivals[0].notify_problem, what="a note")


async def test_an_endpoint_is_a_path_that_the_plugin_sees(short_dir: Path) -> None:
    """The probe maps the path; if the file does not exist, it uses the registry socket."""
    for name in ("plugins", "registry"):
        (short_dir / name).mkdir()

    def outside(path: str) -> Path:
        return Path(path.replace("/inside", str(short_dir)))

    plugin = Watched(short_dir / "registry")
    plugin.endpoint = "/inside/registry/widget.sock"
    probe = Probe(short_dir / "plugins", short_dir / "registry", outside=outside)
    async with plugin, probe:
        await probe.start()
        await until(lambda: plugin.told == ["registered"], what="a notification")
        assert probe.plugins[RESOURCE].socket == plugin.socket
