"""kubedevices.node.arrival.plugin_watcher, over sockets."""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubedevices.errors import DialPluginFailed, RpcError, StatusCode
from kubedevices.node.arrival.plugin_watcher import (
    PluginWatcher,
    WatcherTiming,
    device_plugins,
    serving_socket,
)
from kubedevices.node.arrival.registry_scan import find_sockets
from kubedevices.testing.workbench.loop_thread import ShiftedLoop
from tests.waiting import until
from tests.watched_plugin import RESOURCE, WatchedPlugin

QUICK = WatcherTiming(interval=0.02, dial=0.5, get_info=0.5, notify=0.5)


class FakeTable:
    """Replaces the endpoint table; records connections and disconnections in order."""

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


@pytest.fixture
def table() -> FakeTable:
    return FakeTable()


@contextlib.asynccontextmanager
async def watching(
    directory: Path, table: FakeTable, *, timing: WatcherTiming = QUICK
) -> AsyncIterator[PluginWatcher]:
    watcher = PluginWatcher(
        directory, device_plugins(table.connect, table.disconnect), timing=timing
    )
    await watcher.start()
    try:
        yield watcher
    finally:
        await watcher.stop()


async def test_present_and_new_plugins_are_registered(short_dir: Path, table: FakeTable) -> None:
    """The watcher asks each plugin for its info, connects to its socket, and notifies it."""
    async with WatchedPlugin(short_dir / "old.sock") as old, watching(short_dir, table):
        await until(lambda: old.told)
        async with WatchedPlugin(short_dir / "deep/er/new.sock", name="a.b/new") as new:
            await until(lambda: new.told)
            connected = [("connect", RESOURCE, old.path), ("connect", "a.b/new", new.path)]
            assert table.calls == connected
    assert old.told == new.told == [(True, "")]


async def test_the_endpoint_in_the_info_is_the_socket_of_the_plugin(
    short_dir: Path, table: FakeTable
) -> None:
    """The device plugin service may be on another socket, named by its absolute path."""
    async with (
        WatchedPlugin(short_dir / "p.sock", endpoint="/elsewhere/plugin.sock") as plugin,
        watching(short_dir, table),
    ):
        await until(lambda: plugin.told)
    assert table.calls == [("connect", RESOURCE, Path("/elsewhere/plugin.sock"))]


@pytest.mark.parametrize("place", ["plugin.sock", "deep/plugin.sock"])
async def test_a_path_of_another_mount_is_found_by_its_name(short_dir: Path, place: str) -> None:
    """A plugin in a container announces the path in its own mount of the registry directory. This
    path does not exist here, so the socket of the same name in the registry directory counts.
    """
    table, theirs = FakeTable(), "/var/lib/kubelet/nowhere/plugin.sock"
    async with (
        WatchedPlugin(short_dir / place, endpoint=theirs) as plugin,
        watching(short_dir, table),
    ):
        await until(lambda: plugin.told)
        assert table.calls == [("connect", RESOURCE, short_dir / place)]
    assert serving_socket("/gone/x.sock", short_dir / "a.sock", short_dir) == Path("/gone/x.sock")


def test_an_announced_path_that_exists_is_never_replaced(short_dir: Path) -> None:
    """Also if the registry directory has a file of the same name."""
    elsewhere = short_dir / "elsewhere"
    elsewhere.mkdir()
    for directory in (elsewhere, short_dir):
        (directory / "plugin.sock").touch()
    announced = elsewhere / "plugin.sock"
    assert serving_socket(str(announced), short_dir / "plugin.sock", short_dir) == announced


async def test_a_deleted_socket_disconnects_its_plugin(short_dir: Path, table: FakeTable) -> None:
    """A socket created again at this path is registered again."""
    async with watching(short_dir, table):
        async with WatchedPlugin(short_dir / "p.sock") as plugin:
            await until(lambda: plugin.told)
        await until(lambda: table.verbs == ["connect", "disconnect"])
        async with WatchedPlugin(short_dir / "p.sock") as plugin:
            await until(lambda: plugin.told)
    assert table.verbs == ["connect", "disconnect", "connect"]


INVALID = "plugin validation failed with err: "


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            {"type": "CSIPlugin"},
            "no handler registered for plugin type: CSIPlugin at socket {path}",
        ),
        (
            {"supported_versions": ("v1alpha", "v2")},
            INVALID
            + "manager version, v1beta1, is not among plugin supported versions [v1alpha v2]",
        ),
        (
            {"endpoint": "/tmp/p\0.sock"},
            INVALID + 'the endpoint "/tmp/p\0.sock" is invalid: no path holds a NUL character',
        ),
        (
            {"name": "bad"},
            INVALID + 'invalid name of device plugin socket: the ResourceName "bad" is invalid',
        ),
    ],
)
async def test_a_refused_plugin_gets_the_reason(
    said: dict[str, object], table: FakeTable, told: str, short_dir: Path
) -> None:
    """The kubelet's words, repeated after each pause. No connection is opened."""
    async with (
        WatchedPlugin(short_dir / "p.sock", **said) as plugin,
        watching(short_dir, table),
    ):
        await until(lambda: len(plugin.told) >= 2)
    reason = f"RegisterPlugin error -- {told.format(path=plugin.path)}"
    assert plugin.told[:2] == [(False, reason)] * 2
    assert not table.calls


async def test_a_failed_registration_is_repeated(short_dir: Path, table: FakeTable) -> None:
    """Kubelets before 1.36 wait until the socket is created again."""
    table.error = DialPluginFailed("context deadline exceeded")
    async with (
        WatchedPlugin(short_dir / "p.sock") as plugin,
        watching(short_dir, table),
    ):
        await until(lambda: plugin.told)
        table.error = None
        await until(lambda: (True, "") in plugin.told)
    reason = "failed to dial device plugin: context deadline exceeded"
    words = f"RegisterPlugin error -- plugin registration failed with err: {reason}"
    assert plugin.told[0] == (False, words)
    assert table.verbs == ["connect"]


async def test_a_failed_notification_undoes_the_registration(
    short_dir: Path, table: FakeTable
) -> None:
    """Then the registration is repeated."""
    async with WatchedPlugin(short_dir / "p.sock") as plugin:
        plugin.notify_error = RpcError(StatusCode.INTERNAL, "no")
        async with watching(short_dir, table):
            await until(lambda: table.verbs == ["connect", "disconnect"])
            plugin.notify_error = None
            await until(lambda: table.verbs == ["connect", "disconnect", "connect"])


def test_the_deadline_of_get_info_is_longer_than_that_of_a_kubelet(short_dir: Path) -> None:
    """An answer after three seconds, on a busy node, still counts."""

    async def story(loop: ShiftedLoop) -> None:
        async with WatchedPlugin(short_dir / "p.sock") as plugin:
            plugin.get_info_gate.clear()
            async with watching(short_dir, FakeTable(), timing=WatcherTiming()):
                await until(lambda: plugin.asked)
                loop.shift += 3
                for _ in range(20):  # run every timer that is due
                    await asyncio.sleep(0)
                plugin.get_info_gate.set()
                await until(lambda: plugin.told)
            assert plugin.asked == 1

    with asyncio.Runner(loop_factory=ShiftedLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, ShiftedLoop)
        runner.run(story(loop))


async def test_a_socket_that_does_not_answer_is_asked_again_and_delays_no_other(
    short_dir: Path, table: FakeTable
) -> None:
    """A failed GetInfo call is repeated. Another plugin is registered meanwhile."""
    async with WatchedPlugin(short_dir / "bad.sock", name="a.b/bad") as bad:
        bad.get_info_error = RpcError(StatusCode.UNAVAILABLE, "not yet")
        async with watching(short_dir, table), WatchedPlugin(short_dir / "good.sock") as good:
            await until(lambda: good.told)
            await until(lambda: bad.asked >= 2)
            bad.get_info_error = None
            await until(lambda: bad.told == [(True, "")])


async def test_an_unexpected_error_is_logged_and_the_plugin_is_tried_again(
    short_dir: Path, table: FakeTable, caplog: pytest.LogCaptureFixture
) -> None:
    """An error in our own code."""
    table.error = ValueError("surprise")
    async with WatchedPlugin(short_dir / "p.sock") as plugin, watching(short_dir, table):
        await until(lambda: "surprise" in caplog.text)
        table.error = None
        await until(lambda: plugin.told == [(True, "")])


async def test_a_socket_file_without_a_listener_is_ignored_and_not_deleted(
    short_dir: Path, table: FakeTable
) -> None:
    """A plugin that binds there later is found."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(short_dir / "p.sock"))
    async with watching(short_dir, table) as watcher:
        await until(lambda: watcher.counts() == {short_dir / "p.sock": (1, 0)})
        async with WatchedPlugin(short_dir / "p.sock") as plugin:
            await until(lambda: plugin.told)


async def test_an_unreadable_directory_disconnects_no_plugin(
    short_dir: Path,
    table: FakeTable,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """For example, if no more files can be opened: the watcher tries again later."""
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


def test_only_sockets_without_a_leading_dot_are_found(short_dir: Path) -> None:
    """Files, links and names with a leading dot are ignored. Folders are searched."""
    (short_dir / "file").touch()
    (short_dir / ".hidden").mkdir()
    (short_dir / "link").symlink_to("nowhere")
    assert find_sockets(short_dir) == {}
    assert find_sockets(short_dir / "missing") == {}
