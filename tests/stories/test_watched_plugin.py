"""A plugin with `registration="watch"`, which the node's plugin watcher finds."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.errors import DialPluginFailed, RegistrationRefused, UsageError
from kubedevices.kubelet_api.clients import DevicePluginClient
from kubedevices.node.arrival.plugin_watcher import PluginWatcher, WatcherTiming, device_plugins
from kubedevices.plugin.options import Settings
from kubedevices.plugin.timing import Timing
from kubedevices.values.socket_paths import PLUGIN_REGISTRY_DIR
from kubedevices.wire.unix_grpc import GrpcChannel
from kubedevices.wire.unix_socket import FileIdentity
from tests.waiting import until

QUICK = WatcherTiming(interval=0.02, dial=1, get_info=1, notify=1)


class Widgets(kd.Scanner):
    async def scan(self, notifier: kd.Notifier) -> None:
        notifier.notify(kd.DeviceTree({"widget": [kd.Device("w0", numa_nodes=())]}))
        await notifier.wait_stopped()


class Kubelet:
    """A plugin watcher that tries each socket once, as before 1.36, and its streams."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.channels: list[GrpcChannel] = []
        self.lists: list[int] = []
        self.errors: list[DialPluginFailed] = []
        self.failed: list[FileIdentity | None] = []
        self._streams = contextlib.AsyncExitStack()

    @contextlib.asynccontextmanager
    async def running(self, connect: Callable[[str, Path], Awaitable[None]] | None = None,
                      ) -> AsyncIterator[None]:  # fmt: skip
        watcher = PluginWatcher(
            self.directory,
            device_plugins(connect or self.connect, lambda *_: None),
            timing=QUICK,
        )
        await watcher.start()
        try:
            yield
        finally:
            await watcher.stop()
            await self.hang_up()

    async def connect(self, resource: str, socket: Path) -> None:
        file = FileIdentity.of(socket)
        if file in self.failed:
            raise DialPluginFailed("tried once")
        if self.errors:
            self.failed.append(file)
            raise self.errors.pop()
        channel = await GrpcChannel.dial(socket, timeout=5)
        stream = DevicePluginClient(channel).list_and_watch()
        self._streams.push_async_callback(channel.close)
        self._streams.push_async_callback(stream.aclose)
        self.lists.append(len(await anext(stream)))

    def has_found(self) -> bool:
        return bool(self.lists)

    async def hang_up(self) -> None:
        """Close all streams and connections, as a kubelet does when it stops."""
        await self._streams.aclose()


RESTLESS = Timing(again_soon=0.05, rebind_first=0.02, rebind_last=0.1, look_interval=0.05)


def served(
    directory: Path, timing: Timing = RESTLESS
) -> contextlib.AbstractAsyncContextManager[kd.PluginRunner]:
    return kd.serve(
        Widgets(), domain="a.b", socket_dir=directory, registration="watch", timing=timing
    )


async def test_a_plugin_is_found_and_learns_the_result(short_dir: Path) -> None:
    """The kubelet connects to the socket in its registry directory, and notifies the plugin."""
    kubelet = Kubelet(short_dir)
    async with served(short_dir) as plugin, kubelet.running():
        await until(lambda: plugin.is_registered("widget"))
        assert kubelet.lists == [1]


async def test_a_kubelet_that_restarts_finds_the_plugin_again(short_dir: Path) -> None:
    """No file is deleted here, and the plugin is registered at every start of a kubelet."""
    async with served(short_dir):
        for kubelet in [Kubelet(short_dir) for _ in range(3)]:
            async with kubelet.running():
                await until(kubelet.has_found)


async def test_a_plugin_whose_kubelet_has_ended_is_not_registered(short_dir: Path) -> None:
    """Until another kubelet starts; so the plugin's state does not say that all is well."""
    kubelet = Kubelet(short_dir)
    async with served(short_dir) as plugin:
        async with kubelet.running():
            await until(lambda: plugin.is_registered("widget"))
        await until(lambda: not plugin.is_registered("widget"))
        async with kubelet.running():
            await until(lambda: plugin.is_registered("widget"))


async def test_a_plugin_creates_a_new_socket_when_its_stream_ends(
    short_dir: Path,
) -> None:
    """A running kubelet never opens a stream again, but it connects to a re-created socket."""
    kubelet = Kubelet(short_dir)
    async with served(short_dir), kubelet.running():
        await until(lambda: len(kubelet.lists) == 1)
        await kubelet.hang_up()
        await until(lambda: len(kubelet.lists) == 2)


async def test_a_kubelet_may_open_the_stream_after_it_accepted_the_plugin(short_dir: Path) -> None:
    """It does both at once; the plugin is registered in either order, also after a restart."""
    kubelet = Kubelet(short_dir)
    late: list[asyncio.Task[None]] = []

    async def connect_late(resource: str, socket: Path) -> None:
        async def connect() -> None:
            await asyncio.sleep(0.1)
            await kubelet.connect(resource, socket)

        late.append(asyncio.create_task(connect(), name="late"))

    async with served(short_dir, Timing(again_soon=60, again_first=60)) as plugin:
        for count in (1, 2):
            async with kubelet.running(connect_late):
                await until(lambda n=count: len(kubelet.lists) == n)  # type: ignore[misc]
                await until(lambda: plugin.is_registered("widget"))
            await until(lambda: not plugin.is_registered("widget"))
    await asyncio.gather(*late)


async def test_a_plugin_without_a_stream_creates_a_new_socket(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The kubelet registered the plugin but opened no stream: only a new socket helps."""
    met: list[str] = []
    kubelet = Kubelet(short_dir)

    async def forget_first(resource: str, socket: Path) -> None:
        met.append(resource)
        if len(met) > 1:
            await kubelet.connect(resource, socket)

    timing = Timing(again_first=0.1, look_interval=60)
    async with served(short_dir, timing) as plugin, kubelet.running(forget_first):
        await until(lambda: plugin.is_registered("widget") and kubelet.lists == [1])
        assert met == ["a.b/widget"] * 2
    assert "does not ask for the devices" in caplog.text


async def test_new_sockets_after_ended_streams_have_pauses(
    short_dir: Path,
) -> None:
    """After the first end the socket is created at once, then only after a pause."""
    kubelet = Kubelet(short_dir)
    timing = Timing(again_soon=0.02, again_first=60, look_interval=0.05)
    async with served(short_dir, timing), kubelet.running():
        for count in (1, 2):
            await until(lambda n=count: len(kubelet.lists) == n)  # type: ignore[misc]
            await kubelet.hang_up()
        await asyncio.sleep(10 * timing.again_soon)
        assert len(kubelet.lists) == 2


async def test_a_failed_registration_is_offered_again(short_dir: Path) -> None:
    """An error that may pass leads to a new socket, for kubelets that try each socket once."""
    kubelet = Kubelet(short_dir)
    kubelet.errors = [DialPluginFailed("not now"), DialPluginFailed("not now")]
    async with served(short_dir) as plugin, kubelet.running():
        await until(lambda: plugin.is_registered("widget"))
        assert kubelet.lists == [1]


async def test_a_plugin_that_is_refused_finally_ends_with_the_reason(short_dir: Path) -> None:
    """A kubelet of another API version refuses the plugin; the error has the kubelet's text."""

    class Other(PluginWatcher):
        async def _accept(self, *_: object) -> None:
            raise DialPluginFailed("plugin validation failed with err: manager version, v9")

    async def never(resource: str, socket: Path) -> None:
        raise AssertionError("connected")

    watcher = Other(short_dir, device_plugins(never, lambda *_: None), timing=QUICK)
    await watcher.start()
    try:
        with pytest.raises(RegistrationRefused, match="manager version, v9"):
            async with served(short_dir) as plugin:
                await until(lambda: plugin.is_registered("widget"))
    finally:
        await watcher.stop()


def test_the_default_directory_is_the_kubelets_registry(tmp_path: Path) -> None:
    """An option can name the directory as the kubelet sees it, for a plugin in a container."""
    assert Settings(registration="watch").directory == PLUGIN_REGISTRY_DIR
    settings = Settings(registration="watch", socket_dir=tmp_path, host_plugin_dir=Path("/host"))
    assert settings.directory == tmp_path
    assert settings.endpoint_of(tmp_path / "x.sock") == Path("/host/x.sock")
    assert Settings(registration="watch").endpoint_of(tmp_path / "x.sock") is None
    with pytest.raises(UsageError, match="needs registration='watch'"):
        Settings(host_plugin_dir=Path("/host"))
