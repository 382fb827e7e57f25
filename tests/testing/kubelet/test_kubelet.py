"""`Probe`: its effect on the plugin directory and on plugins, fault by fault."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kubedevices.errors import DialError, RpcError, SocketInUse, StatusCode
from kubedevices.host.inotify import Inotify
from kubedevices.testing.kubelet import kubelet
from kubedevices.testing.kubelet.arrival import RegisterBehavior
from kubedevices.testing.kubelet.kubelet import Probe, Wipe
from kubedevices.values.socket_paths import KUBELET_SOCKET_NAME
from kubedevices.wire.unix_grpc import FileIdentity, GrpcChannel
from tests.fake_plugin import RESOURCE, FakePlugin, healthy
from tests.waiting import until

IN_CREATE = 0x100


@pytest.fixture
async def probe(short_dir: Path) -> AsyncIterator[Probe]:
    async with Probe(short_dir, dial_limit=2) as probe:
        await probe.start()
        yield probe


async def registered(probe: Probe, plugin: FakePlugin) -> None:
    await plugin.register()
    assert await probe.change_signal.until(lambda: probe.plugins[RESOURCE].latest, 5)


async def test_a_registered_plugin_has_a_session_with_options_and_lists(probe: Probe) -> None:
    """After Register there is a session with options, a stream and its lists."""
    async with FakePlugin(probe.socket_dir, devices=healthy("a", "b"), pre_start=True) as plugin:
        await registered(probe, plugin)
        session = probe.plugins[RESOURCE]
        assert session.options.pre_start_required
        assert session.latest
        assert session.latest.healthy == ("a", "b")
        await plugin.send(healthy("a"))
        assert await probe.change_signal.until(lambda: len(session.lists) == 2, 5)
        (arrival,) = probe.arrivals
        assert (arrival.dials, arrival.refused_with) == (1, "")


async def test_a_refusal_is_answered_with_its_text(probe: Probe) -> None:
    """The plugin gets UNKNOWN with the reason, as a kubelet sends it; there is no session."""
    async with FakePlugin(probe.socket_dir) as plugin:
        with probe.behaving(RegisterBehavior(refusal="go away")):
            with pytest.raises(RpcError, match="go away") as caught:
                await plugin.register()
            assert caught.value.code is StatusCode.UNKNOWN
        assert not probe.plugins
        await registered(probe, plugin)


async def test_a_plugin_that_does_not_serve_is_refused(probe: Probe) -> None:
    """The probe dials until the limit; the error has the kubelet's text."""
    plugin = FakePlugin(probe.socket_dir)
    with pytest.raises(RpcError, match="failed to dial device plugin"):
        await plugin.register()
    (arrival,) = probe.arrivals
    assert arrival.dials > 1
    assert arrival.dial_problem


@pytest.mark.parametrize("refusing", [0, 0.05])
async def test_file_watchers_see_a_new_kubelet_sock(probe: Probe, refusing: float) -> None:
    """A kubelet creates the file with bind; a plugin that watches only for this must see it."""
    watch = Inotify()
    try:
        watch.add(probe.socket_dir, IN_CREATE)
        await probe.restart(refusing=refusing)
        assert os.fsencode(KUBELET_SOCKET_NAME) in {event.name for event in watch.read()}
    finally:
        watch.close()


async def test_a_plugin_that_cancels_register_is_recorded(probe: Probe) -> None:
    """The cancelled call is recorded with its time, and the plugin is not accepted."""
    async with FakePlugin(probe.socket_dir) as plugin:
        with probe.behaving(RegisterBehavior(delay=30)):
            registering = asyncio.create_task(plugin.register())
            assert await probe.change_signal.until(lambda: probe.arrivals, 5)
            registering.cancel()
            await asyncio.gather(registering, return_exceptions=True)
            await until(lambda: probe.arrivals[0].gave_up_after is not None, what="a note")
        assert not probe.accepted()


async def test_a_failing_options_call_does_not_hide_the_rest(probe: Probe) -> None:
    """The error is recorded, and the plugin stays connected, although a kubelet refuses it."""
    async with FakePlugin(probe.socket_dir, devices=healthy("a")) as plugin:
        plugin.options = RpcError(StatusCode.UNIMPLEMENTED, "no")
        await registered(probe, plugin)
        assert "Unimplemented" in probe.arrivals[0].options_problem
        assert not probe.arrivals[0].needs_other_authority


@pytest.mark.parametrize(
    ("wipe", "left"),
    [
        ("everything", {"folder", "kubelet_internal_checkpoint"}),
        ("sockets", {"folder", "kubelet_internal_checkpoint", "file"}),
        ("nothing", {"folder", "kubelet_internal_checkpoint", "file", "widget.sock"}),
    ],
)
async def test_a_restart_removes_the_files_that_wipe_names(
    probe: Probe, wipe: Wipe, left: set[str]
) -> None:
    """Connections end, the directory is cleaned, and kubelet.sock is a new file."""
    directory = probe.socket_dir
    (directory / "file").touch()
    (directory / "kubelet_internal_checkpoint").touch()
    (directory / "folder").mkdir()
    async with FakePlugin(directory, devices=healthy("a")) as plugin:
        await registered(probe, plugin)
        old, session = FileIdentity.of(probe.kubelet_socket), probe.plugins[RESOURCE]
        await probe.restart(wipe=wipe)
        assert {path.name for path in directory.iterdir()} == left | {"kubelet.sock"}
        assert FileIdentity.of(probe.kubelet_socket) != old
        assert not session.is_alive
        assert not probe.plugins
        await until(lambda: not plugin.open_streams, what="the end of the stream")


async def test_a_stopped_kubelet_leaves_its_socket(probe: Probe) -> None:
    """After the stop, the socket file exists and refuses connections."""
    before = FileIdentity.of(probe.kubelet_socket)
    await probe.stop(leave_socket=True)
    assert FileIdentity.of(probe.kubelet_socket) == before
    assert stat.S_ISSOCK(probe.kubelet_socket.lstat().st_mode)
    with pytest.raises(DialError):
        await GrpcChannel.dial(probe.kubelet_socket, timeout=1)
    await probe.start()
    await probe.stop()
    assert not probe.kubelet_socket.exists()


@pytest.mark.parametrize("wiped_early", [0, 0.2])
async def test_a_kubelet_removes_files_when_it_starts(
    probe: Probe, wiped_early: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sockets stay during the absence, unless somebody else removes them before."""
    steps: list[float | str] = []

    async def sleep(seconds: float) -> None:
        steps.append(seconds)

    monkeypatch.setattr(kubelet, "wipe_plugin_directory", lambda *_: steps.append("wipe"))
    clock = SimpleNamespace(sleep=sleep, get_running_loop=asyncio.get_running_loop)
    monkeypatch.setattr(kubelet, "asyncio", clock)
    await probe.restart(wipe="everything", away=0.5, wiped_early=wiped_early)
    assert steps == [0.5 - wiped_early, "wipe", wiped_early]
    assert probe.is_running


async def test_dropped_connections_leave_the_sockets(probe: Probe) -> None:
    """The plugin loses its connection; every file stays."""
    async with FakePlugin(probe.socket_dir, devices=healthy("a")) as plugin:
        await registered(probe, plugin)
        files = {path: FileIdentity.of(path) for path in probe.socket_dir.iterdir()}
        await probe.drop_connections()
        await until(lambda: not plugin.open_streams, what="the end of the stream")
        assert files == {path: FileIdentity.of(path) for path in probe.socket_dir.iterdir()}


async def test_sockets_of_plugins_can_be_removed(probe: Probe) -> None:
    """Other files stay, and the connection stays open."""
    async with FakePlugin(probe.socket_dir, devices=healthy("a")) as plugin:
        await registered(probe, plugin)
        assert probe.sockets() == [plugin.socket]
        assert probe.remove_plugin_sockets() == [plugin.socket]
        assert probe.sockets() == []
        assert probe.plugins[RESOURCE].is_alive


async def test_a_running_kubelet_is_not_replaced(short_dir: Path, probe: Probe) -> None:
    """A second probe does not start while the first listens."""
    with pytest.raises(SocketInUse, match="nothing was changed"):
        await Probe(short_dir).start()
    assert probe.kubelet_socket.exists()


@pytest.mark.parametrize("endpoint", ["/elsewhere/widget.sock", "../plugins/widget.sock"])
async def test_a_socket_is_found_by_a_wrong_endpoint(probe: Probe, endpoint: str) -> None:
    """A kubelet would not find the socket; the probe uses its file name."""
    async with FakePlugin(probe.socket_dir, devices=healthy("a")) as plugin:
        await plugin.register(endpoint=endpoint)
        assert probe.plugins[RESOURCE].socket == plugin.socket
