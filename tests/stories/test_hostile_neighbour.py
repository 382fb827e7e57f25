"""Every plugin pod may write to the plugin directory: how a node treats foreign files there."""

import asyncio
import contextlib
import json
import os
from pathlib import Path

import pytest

from kubedevices.errors import CannotAsk, RegistrationServerFailed
from kubedevices.kubelet_api.services import plugin_registration_methods
from kubedevices.node.arrival.plugin_watcher import PluginWatcher, WatcherTiming, device_plugins
from kubedevices.node.device_manager import DeviceManager
from kubedevices.values.allocation import PluginInfo
from kubedevices.wire.unix_grpc import GrpcServer
from tests.fake_kubelet import FakeKubelet
from tests.fake_plugin import RESOURCE, FakePlugin, healthy
from tests.planted import PLANTS, Outside, clear, plant
from tests.registrar_rig import NAME, registrar
from tests.restart_rig import pod
from tests.waiting import until

NO_HANG = 60
"""Seconds; far more than a start, an admission and a stop take while others write to the disk."""

CHECKPOINT = "kubelet_internal_checkpoint"
UNFINISHED = (f".{CHECKPOINT}.new", f"{CHECKPOINT}.x.tmp", ".kubelet.new")
"""Names that are, or could be taken for, those of files before their rename."""

OTHER = "example.com/other"
PLACES = {
    "socket": ("kubelet.sock",),
    "checkpoint": (CHECKPOINT,),
    "others": (*UNFINISHED, "widget.sock", "sub"),
}
"""Where files are planted: those of a place all at once."""


@pytest.fixture
def outside(short_dir: Path) -> Outside:
    return Outside(short_dir / "outside")


@pytest.fixture
def sockets(short_dir: Path) -> Path:
    directory = short_dir / "p"
    directory.mkdir()
    return directory


async def served(manager: DeviceManager, sockets: Path) -> None:
    """A plugin registers and a pod gets its device."""
    async with FakePlugin(sockets, socket_name="own.sock", devices=healthy("a")) as plugin:
        await plugin.register()
        await manager.wait_for(RESOURCE, allocatable=1)
        await manager.allocate(pod("one"))


def assert_written(path: Path) -> None:
    """The checkpoint is a file of ours."""
    assert RESOURCE in json.loads(path.read_text())["Data"]["RegisteredDevices"]
    assert not path.is_symlink()


@pytest.mark.parametrize("kind", PLANTS)
@pytest.mark.parametrize("place", ["checkpoint", "others"])
async def test_a_node_starts_beside_each_planted_file(
    sockets: Path, outside: Outside, place: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever kind of file has the name, the node starts, serves and stops."""
    for name in PLACES[place]:
        plant(kind, sockets / name, outside)
    async with asyncio.timeout(NO_HANG), DeviceManager(sockets) as manager:
        await served(manager, sockets)
    if place == "checkpoint":
        assert f"{sockets / CHECKPOINT} is damaged, kept as" in caplog.text
    assert_written(sockets / CHECKPOINT)
    outside.assert_untouched()


@pytest.mark.parametrize("kind", PLANTS)
async def test_a_start_with_a_foreign_file_at_the_name_of_our_socket(
    sockets: Path, outside: Outside, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The node starts. A dead socket is replaced; another file gets another name, which is told."""
    path = sockets / "kubelet.sock"
    plant(kind, path, outside)
    async with asyncio.timeout(NO_HANG), DeviceManager(sockets) as manager:
        await served(manager, sockets)
    is_foreign = kind != "dead socket"
    kept = [each.name for each in sockets.iterdir() if each.name.startswith("kubelet.sock.foreign")]
    assert len(kept) == is_foreign
    assert not is_foreign or f"{path} was not a socket: it is kept as {kept[0]}" in caplog.text
    assert not os.path.lexists(path)
    outside.assert_untouched()


@pytest.mark.parametrize("kind", PLANTS)
@pytest.mark.parametrize("place", PLACES)
async def test_planted_files_stop_neither_admissions_nor_the_shutdown(
    sockets: Path, outside: Outside, place: str, kind: str
) -> None:
    """Pods are admitted, the checkpoint is written, the node stops; a lost socket is told."""
    checkpoint = sockets / CHECKPOINT
    one, two = pod("one"), pod("two")

    def plant_all() -> None:
        for name in PLACES[place]:
            clear(sockets / name)
            plant(kind, sockets / name, outside)

    def is_written() -> bool:
        return checkpoint.is_file() and not checkpoint.is_symlink() and one.uid in read(checkpoint)

    async with (
        asyncio.timeout(NO_HANG),
        DeviceManager(sockets) as manager,
        FakePlugin(sockets, devices=healthy("a", "b")) as plugin,
    ):
        await plugin.register()
        await manager.wait_for(RESOURCE, allocatable=2)
        plant_all()
        await manager.allocate(one)
        await until(is_written, NO_HANG)
        _, check = manager.get_health_checker()
        if place == "socket":
            with pytest.raises(RegistrationServerFailed):
                check()
        else:
            check()
        plant_all()
        await manager.allocate(two)  # which the stop has to write
    assert_written(checkpoint)
    assert two.uid in read(checkpoint)
    outside.assert_untouched()


async def test_hundreds_of_idle_connections_do_not_block_plugins(sockets: Path) -> None:
    """A client opens 600 connections and sends nothing; plugins before and after it are served."""
    async with (
        asyncio.timeout(2 * NO_HANG),
        DeviceManager(sockets) as manager,
        FakePlugin(sockets, devices=healthy("a")) as before,
        FakePlugin(sockets, OTHER, socket_name="other.sock", devices=healthy("b")) as after,
        contextlib.AsyncExitStack() as stranger,
    ):
        await before.register()
        for _ in range(600):
            connection = await asyncio.open_unix_connection(sockets / "kubelet.sock")
            stranger.callback(connection[1].close)
        await after.register()
        await manager.wait_for(RESOURCE, allocatable=1)
        await manager.wait_for(OTHER, allocatable=1)
        await before.register()


@pytest.mark.parametrize("kind", PLANTS)
async def test_a_foreign_link_in_the_plugin_registry_is_ignored(
    short_dir: Path, outside: Outside, kind: str
) -> None:
    """A plugin beside it and one in a folder are found; a link to a plugin elsewhere is not."""
    registry = short_dir / "r"
    (registry / "folder").mkdir(parents=True)
    plant(kind, registry / "planted", outside)
    plant(kind, registry / "folder/planted.sock", outside)
    good, hidden = Found("example.com/good"), Found("example.com/hidden")
    async with asyncio.timeout(NO_HANG), DeviceManager(short_dir / "p") as manager:
        handler = manager.get_watcher_handler()
        watcher = PluginWatcher(
            registry,
            device_plugins(handler.connect, handler.disconnect),
            timing=WatcherTiming(interval=0.02),
        )
        await hidden.server.start(short_dir / "hidden.sock")
        (registry / "link.sock").symlink_to(short_dir / "hidden.sock")
        await watcher.start()
        await good.server.start(registry / "folder/good.sock")
        await until(lambda: good.told)
        await watcher.stop()
        await good.server.stop()
        await hidden.server.stop()
    assert not hidden.asked
    outside.assert_untouched()


@pytest.mark.parametrize("kind", [kind for kind in PLANTS if kind != "dead socket"])
async def test_a_plugin_reports_a_foreign_file_at_its_socket_name(
    sockets: Path, outside: Outside, kind: str
) -> None:
    """It logs the path, and does not change the file."""
    plant(kind, sockets / NAME, outside)
    async with registrar(sockets) as rig:
        with pytest.raises(CannotAsk, match=f"{NAME}: a file that is not a socket is in the way"):
            await rig.ended(NO_HANG)
    assert (sockets / NAME).lstat()
    outside.assert_untouched()


@pytest.mark.parametrize("kind", PLANTS)
async def test_a_plugin_waits_while_kubelet_sock_is_no_socket(
    sockets: Path, outside: Outside, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It logs this, and registers when a kubelet listens there."""
    plant(kind, sockets / "kubelet.sock", outside)
    async with registrar(sockets) as rig:
        await until(lambda: "waiting for the kubelet" in caplog.text, NO_HANG)
        clear(sockets / "kubelet.sock")
        async with FakeKubelet(sockets) as kubelet:
            await kubelet.wait_for(RESOURCE, 1, NO_HANG)
            assert rig.registrar.is_serving
    outside.assert_untouched()


class Found:
    """A plugin in the registry directory; records the kubelet's calls."""

    def __init__(self, resource: str) -> None:
        self.resource, self.asked, self.told = resource, 0, list[str]()
        self.server = GrpcServer(plugin_registration_methods(self), name=resource)

    async def get_info(self) -> PluginInfo:
        self.asked += 1
        return PluginInfo("DevicePlugin", self.resource, "", ("v1beta1",))

    async def notify_registration_status(self, registered: bool, error: str) -> None:
        self.told.append(error)


def read(path: Path) -> str:
    return path.read_text()
