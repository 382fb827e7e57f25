"""kubedevices.node.arrival.plugin_watcher, over sockets"""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import pytest

from kubedevices.allocation import PluginInfo
from kubedevices.bench.loop_thread import ShiftedLoop
from kubedevices.errors import DialPluginFailed, RpcError, StatusCode
from kubedevices.kubelet_api.services import plugin_registration_methods
from kubedevices.node.arrival.plugin_watcher import (
    PluginWatcher,
    WatcherTiming,
    device_plugins,
    find_sockets,
)
from kubedevices.wire.unix_grpc import GrpcServer
from tests.waiting import until

RESOURCE = "example.com/widget"
QUICK = WatcherTiming(interval=0.02, dial=0.5, get_info=0.5, notify=0.5)


class WatchedPlugin:
    """A socket in the registry directory; notes what it is told."""

    def __init__(self, path: Path, **said: object) -> None:
        self.path = path
        info: dict[str, object] = {"type": "DevicePlugin", "name": RESOURCE, "endpoint": ""}
        info |= {"supported_versions": ("v1beta1",), **said}
        self.info = PluginInfo(**info)  # type: ignore[arg-type]
        self.told: list[tuple[bool, str]] = []
        self.asked = 0
        self.get_info_error: RpcError | None = None
        self.get_info_gate = asyncio.Event()
        self.get_info_gate.set()
        self.notify_error: RpcError | None = None
        self.server = GrpcServer(plugin_registration_methods(self), name="plugin")

    async def __aenter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        await self.server.start(self.path)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop()

    async def get_info(self) -> PluginInfo:
        self.asked += 1
        await self.get_info_gate.wait()
        if self.get_info_error:
            raise self.get_info_error
        return self.info

    async def notify_registration_status(self, registered: bool, error: str) -> None:
        self.told.append((registered, error))
        if self.notify_error:
            raise self.notify_error


class Table:
    """Stands for the endpoint table: notes what is connected, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Path]] = []
        self.error: Exception | None = None

    async def connect(self, resource: str, socket: Path) -> None:
        if self.error:
            raise self.error
        self.calls.append(("connect", resource, socket))

    def disconnect(self, resource: str, socket: Path) -> None:
        self.calls.append(("disconnect", resource, socket))

    @property
    def verbs(self) -> list[str]:
        return [verb for verb, _, _ in self.calls]


@contextlib.asynccontextmanager
async def watching(
    directory: Path, table: Table, *, timing: WatcherTiming = QUICK
) -> AsyncIterator[PluginWatcher]:
    watcher = PluginWatcher(
        directory, device_plugins(table.connect, table.disconnect), timing=timing
    )
    await watcher.start()
    try:
        yield watcher
    finally:
        await watcher.stop()


async def test_a_plugin_that_is_there_and_one_that_comes_are_registered(short_dir: Path) -> None:
    """Each is asked what it is, connected to at its own socket, and told that it is registered."""
    table = Table()
    async with WatchedPlugin(short_dir / "old.sock") as old, watching(short_dir, table):
        await until(lambda: old.told)
        async with WatchedPlugin(short_dir / "deep/er/new.sock", name="a.b/new") as new:
            await until(lambda: new.told)
            connected = [("connect", RESOURCE, old.path), ("connect", "a.b/new", new.path)]
            assert table.calls == connected
    assert old.told == new.told == [(True, "")]


async def test_an_endpoint_that_is_named_is_used_as_it_is(short_dir: Path) -> None:
    """The device plugin service may be on another socket, given by its whole path."""
    table = Table()
    async with (
        WatchedPlugin(short_dir / "p.sock", endpoint="/elsewhere/plugin.sock") as plugin,
        watching(short_dir, table),
    ):
        await until(lambda: plugin.told)
    assert table.calls == [("connect", RESOURCE, Path("/elsewhere/plugin.sock"))]


async def test_a_socket_that_goes_disconnects_its_plugin(short_dir: Path) -> None:
    """And one that is re-created comes back after that."""
    table = Table()
    async with watching(short_dir, table):
        async with WatchedPlugin(short_dir / "p.sock") as plugin:
            await until(lambda: plugin.told)
        await until(lambda: table.verbs == ["connect", "disconnect"])
        async with WatchedPlugin(short_dir / "p.sock") as plugin:
            await until(lambda: plugin.told)
    assert table.verbs == ["connect", "disconnect", "connect"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            {"type": "CSIPlugin"},
            (
                "RegisterPlugin error -- no handler registered for plugin type: "
                "CSIPlugin at socket {path}"
            ),
        ),
        (
            {"supported_versions": ("v1alpha", "v2")},
            (
                "RegisterPlugin error -- plugin validation failed with err: "
                "manager version, v1beta1, is not among plugin supported versions [v1alpha v2]"
            ),
        ),
        (
            {"endpoint": "/tmp/p\0.sock"},
            (
                "RegisterPlugin error -- plugin validation failed with err: "
                'the endpoint "/tmp/p\0.sock" is invalid: no path holds a NUL character'
            ),
        ),
        (
            {"name": "bad"},
            (
                "RegisterPlugin error -- plugin validation failed with err: "
                'invalid name of device plugin socket: the ResourceName "bad" is invalid'
            ),
        ),
    ],
)
async def test_a_plugin_is_told_why_it_is_not_accepted(
    said: dict[str, object], told: str, short_dir: Path
) -> None:
    """The kubelet's words, again after each pause; nothing is connected."""
    table = Table()
    async with (
        WatchedPlugin(short_dir / "p.sock", **said) as plugin,
        watching(short_dir, table),
    ):
        await until(lambda: len(plugin.told) >= 2)
    assert plugin.told[:2] == [(False, told.format(path=plugin.path))] * 2
    assert not table.calls


async def test_a_registration_that_failed_is_tried_again(short_dir: Path) -> None:
    """Kubelets before 1.36 wait for the socket's re-creation."""
    table = Table()
    table.error = DialPluginFailed("context deadline exceeded")
    async with (
        WatchedPlugin(short_dir / "p.sock") as plugin,
        watching(short_dir, table),
    ):
        await until(lambda: plugin.told)
        table.error = None
        await until(lambda: (True, "") in plugin.told)
    assert plugin.told[0] == (
        False,
        (
            "RegisterPlugin error -- plugin registration failed with err: "
            "failed to dial device plugin: context deadline exceeded"
        ),
    )
    assert table.verbs == ["connect"]


async def test_a_failed_notification_undoes_the_registration_and_is_tried_again(
    short_dir: Path,
) -> None:
    """A failing NotifyRegistrationStatus undoes the registration."""
    table = Table()
    async with WatchedPlugin(short_dir / "p.sock") as plugin:
        plugin.notify_error = RpcError(StatusCode.INTERNAL, "no")
        async with watching(short_dir, table):
            await until(lambda: table.verbs == ["connect", "disconnect"])
            plugin.notify_error = None
            await until(lambda: table.verbs == ["connect", "disconnect", "connect"])


def test_get_info_may_take_longer_than_a_kubelet_waits(short_dir: Path) -> None:
    """Three seconds, on a busy node: the answer still counts."""

    async def story(loop: ShiftedLoop) -> None:
        async with WatchedPlugin(short_dir / "p.sock") as plugin:
            plugin.get_info_gate.clear()
            async with watching(short_dir, Table(), timing=WatcherTiming()):
                await until(lambda: plugin.asked)
                loop.shift += 3
                for _ in range(20):  # every timer that is due by then goes off
                    await asyncio.sleep(0)
                plugin.get_info_gate.set()
                await until(lambda: plugin.told)
            assert plugin.asked == 1

    with asyncio.Runner(loop_factory=ShiftedLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, ShiftedLoop)
        runner.run(story(loop))


async def test_a_silent_socket_is_asked_again_and_delays_no_other(short_dir: Path) -> None:
    """GetInfo that fails is retried; another plugin is registered meanwhile."""
    table = Table()
    async with WatchedPlugin(short_dir / "bad.sock", name="a.b/bad") as bad:
        bad.get_info_error = RpcError(StatusCode.UNAVAILABLE, "not yet")
        async with watching(short_dir, table), WatchedPlugin(short_dir / "good.sock") as good:
            await until(lambda: good.told)
            await until(lambda: bad.asked >= 2)
            bad.get_info_error = None
            await until(lambda: bad.told == [(True, "")])


async def test_a_bug_of_ours_does_not_leave_a_plugin_behind(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever goes wrong is logged, and the plugin is tried again."""
    table = Table()
    table.error = ValueError("surprise")
    async with WatchedPlugin(short_dir / "p.sock") as plugin, watching(short_dir, table):
        await until(lambda: "surprise" in caplog.text)
        table.error = None
        await until(lambda: plugin.told == [(True, "")])


async def test_a_dead_socket_file_is_no_plugin_and_is_left_alone(short_dir: Path) -> None:
    """Nothing is removed from the directory; a plugin that binds there later is found."""
    table = Table()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(short_dir / "p.sock"))
    async with watching(short_dir, table) as watcher:
        await until(lambda: watcher.counts() == {short_dir / "p.sock": (1, 0)})
        async with WatchedPlugin(short_dir / "p.sock") as plugin:
            await until(lambda: plugin.told)


async def test_a_directory_that_cannot_be_read_now_says_nothing_about_plugins(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No file is left to open, for example: nobody is disconnected, and looking goes on."""
    table = Table()
    scandir = os.scandir

    def refuse(_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async with WatchedPlugin(short_dir / "p.sock") as plugin, watching(short_dir, table):
        await until(lambda: plugin.told)
        monkeypatch.setattr(os, "scandir", refuse)
        await until(lambda: "Too many open files" in caplog.text)
        monkeypatch.setattr(os, "scandir", scandir)
        async with WatchedPlugin(short_dir / "q.sock", name="a.b/new") as new:
            await until(lambda: new.told)
        assert "disconnect" not in table.verbs[:2]


def test_only_sockets_without_a_dot_are_found(short_dir: Path) -> None:
    """Files, links, and whatever begins with a dot are passed over; folders are walked."""
    (short_dir / "file").touch()
    (short_dir / ".hidden").mkdir()
    (short_dir / "link").symlink_to("nowhere")
    assert find_sockets(short_dir) == {}
    assert find_sockets(short_dir / "missing") == {}
