"""The directories of the plugins: who comes how, and what stays there."""

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.errors import CannotAsk, RpcError, SocketInUse, StatusCode
from kubedevices.node.arrival import list_memory
from kubedevices.node.arrival.plugin_directory import StateLock
from kubedevices.proxy import inside_directory
from kubedevices.proxy.proxy import Proxy
from kubedevices.values.allocation import PluginOptions
from kubedevices.wire import grpc_channel
from kubedevices.wire.peers import Peer
from tests.fake_plugin import RESOURCE, FakePlugin, healthy
from tests.proxy_rig import proxied, ruled
from tests.waiting import until
from tests.watched_plugin import WatchedPlugin
from tests.widgets import DOMAIN, QUICK, Widgets, widgets


async def test_a_plugin_that_is_found_by_a_watcher(short_dir: Path) -> None:
    """It does not register; the proxy finds its socket in the registry directory."""
    registry = short_dir / "reg"
    async with proxied(short_dir, registry_dir=registry) as rig:
        scanner = Widgets(widget=widgets("a", "b"))
        async with kd.serve(
            scanner, domain=DOMAIN, socket_dir=registry, registration="watch", timing=QUICK
        ):
            await rig.kubelet.wait_for(RESOURCE, 2, 30)


async def test_registering_again_from_the_same_socket_keeps_the_stream(short_dir: Path) -> None:
    """Some plugins end for ever when a stream ends, so the proxy answers OK and keeps the first
    stream, as a kubelet does. Options that changed since are passed on.
    """
    async with proxied(short_dir) as rig:
        plugin = await rig.plugin(*healthy("a"))
        await rig.served(1)
        for _ in range(3):
            await plugin.register()
        await plugin.send(healthy("a", "b"))
        await rig.served(2)
        assert (plugin.streams_opened, plugin.open_streams) == (1, 1)
        plugin.options = PluginOptions(pre_start_required=True)
        await plugin.register()
        await until(lambda: rig.proxy.inside.scanners[RESOURCE].options.pre_start_required)
        assert (plugin.streams_opened, plugin.open_streams) == (1, 1)


async def test_a_watched_plugin_that_announces_a_path_of_its_container(short_dir: Path) -> None:
    """Its registry directory is another directory here, so its socket is found by its name."""
    registry = short_dir / "reg"
    async with (
        proxied(short_dir, registry_dir=registry) as rig,
        FakePlugin(registry, devices=healthy("a"), socket_name="widget.sock") as plugin,
        WatchedPlugin(registry / "reg.sock", endpoint="/var/lib/kubelet/nowhere/widget.sock"),
    ):
        await rig.served(1)
        assert rig.proxy.inside.scanners[RESOURCE].socket == plugin.socket


async def test_the_directory_is_never_emptied(short_dir: Path) -> None:
    """What lies there stays; a second proxy is refused."""
    async with proxied(short_dir) as rig:
        await rig.plugin(*healthy("a"))
        await rig.served(1)
        (rig.inside / "note").touch()
        await rig.stop_proxy()
        await rig.start_proxy()
        await rig.served(1)
        assert {"note", "widget.sock", "kubelet.sock"} <= {
            each.name for each in rig.inside.iterdir()
        }
        assert rig.inside.stat().st_mode & 0o777 == 0o750
        other = rig._make_proxy()
        with pytest.raises(SocketInUse):
            await other.run()


async def test_a_second_proxy_is_refused(short_dir: Path) -> None:
    """In one directory of plugins, and in one state directory; each time it says which option."""
    async with proxied(short_dir) as rig:
        plugins, state = rig.inside, rig.state
        for inside, kept, option in (
            (plugins, short_dir / "state2", "--plugin-dir"),
            (short_dir / "in2", state, "--state-dir"),
        ):
            second = Proxy(socket_dir=rig.outside, plugin_dir=inside, state_dir=kept)
            with pytest.raises(CannotAsk, match=rf"another (kubedevices )?proxy\b.*{option}"):
                await second.run()


async def test_a_kubedevices_node_may_use_the_same_state_directory(short_dir: Path) -> None:
    """Both have it by default on a host without a cluster."""
    async with proxied(short_dir) as rig:
        lock = StateLock(rig.state)
        lock.acquire()
        lock.release()


# ---------------------------------------------------------------- places and memory


@contextlib.asynccontextmanager
async def registered(directory: Path, number: int, devices: int | None) -> AsyncIterator[str]:
    """Register a plugin with so many devices, None: without a list; yield its resource."""
    names = healthy(*(f"d{each}" for each in range(devices or 0)))
    name = f"example.com/w{number}"
    async with FakePlugin(directory, name, socket_name=f"w{number}.sock", devices=names) as plugin:
        if devices is None:
            await plugin.send_bytes(None)
        await plugin.register()
        yield name


async def test_names_without_a_list_are_forgotten(short_dir: Path) -> None:
    """A plugin that never sent a list is no resource; gone, it has no place, task or socket."""
    async with proxied(short_dir) as rig:
        for number in range(3):
            async with registered(rig.inside, number, None) as name:
                assert name in rig.proxy.inside.scanners
                assert not rig.proxy.resources
        await until(lambda: not rig.proxy.inside.scanners)
        assert not rig.proxy.resources
        assert not rig.proxy._tasks._tasks.keys() & {f"example.com/w{n}" for n in range(3)}
        assert not rig.proxy.inside._known._sockets
        async with registered(rig.inside, 1, 2) as name:  # the same name again
            await rig.served(2, name)


async def test_a_resource_without_a_plugin_goes_when_its_place_is_needed(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then its devices are offered; connected plugins never go."""
    monkeypatch.setattr(inside_directory, "PLUGIN_LIMIT", 2)
    async with proxied(short_dir) as rig:
        async with registered(rig.inside, 0, 1) as gone:
            await rig.served(1, gone)
        async with registered(rig.inside, 1, 1) as here:
            await until(lambda: not rig.proxy.inside.scanners[gone].is_here)
            assert gone in rig.proxy.resources
            async with registered(rig.inside, 2, 1) as new:
                await rig.served(1, new)
                assert {*rig.proxy.inside.scanners} == {here, new}
                assert f"{gone}: forgotten, {new} needs its place" in caplog.text
                with pytest.raises(RpcError, match="2 plugins are connected") as refused:
                    async with registered(rig.inside, 3, 1):
                        pass
                assert refused.value.code is StatusCode.RESOURCE_EXHAUSTED


async def test_the_name_outside_of_a_forgotten_resource_is_free(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resource that takes its place may have the same name outside, and it may come again."""
    monkeypatch.setattr(inside_directory, "PLUGIN_LIMIT", 1)
    async with proxied(short_dir, rules=ruled(rename="new.com/card")) as rig:
        for number, devices in ((0, 1), (1, 2), (0, 3)):
            async with registered(rig.inside, number, devices) as name:
                await rig.served(devices, "new.com/card")
            scanner = rig.proxy.inside.scanners[name]
            await until(lambda: not scanner.is_here)  # noqa: B023


async def test_one_process_cannot_take_all_places(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its share is limited, and its plugins may register again."""
    monkeypatch.setattr(inside_directory, "PLUGINS_OF_PEER", 1)
    monkeypatch.setattr(grpc_channel, "peer_of", lambda _: Peer(0, 7))
    async with proxied(short_dir) as rig, registered(rig.inside, 0, 1) as first:
        with pytest.raises(RpcError, match="1 plugins of one process are connected"):
            async with registered(rig.inside, 1, 1):
                pass
        await rig.served(1, first)
        assert {*rig.proxy.inside.scanners} == {first}


async def test_a_process_with_many_names_gets_no_known_names_of_others(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process of the resource may register it again, another process beyond its share not."""
    caller = Peer(0, 7)
    monkeypatch.setattr(inside_directory, "PLUGINS_OF_PEER", 1)
    monkeypatch.setattr(grpc_channel, "peer_of", lambda _: caller)
    async with proxied(short_dir) as rig, registered(rig.inside, 0, 1) as first:
        caller = Peer(0, 8)
        async with (
            registered(rig.inside, 1, 1),
            FakePlugin(rig.inside, first, socket_name="other.sock") as other,
        ):
            with pytest.raises(RpcError, match="1 plugins of one process are connected"):
                await other.register()
        assert rig.proxy.inside.scanners[first].peer == Peer(0, 7)
        await rig.served(1, first)


def is_read(proxy: Proxy, resource: str) -> bool:
    """Whether the list of the plugin was taken or refused."""
    scanner = proxy.inside.scanners.get(resource)
    return scanner is None or scanner.has_list


async def test_the_proxy_keeps_no_lists_beyond_the_limit(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither of connected plugins nor of those that are away; the log names who has to go."""
    monkeypatch.setattr(list_memory, "limit_for", lambda _: 1000 * 650)
    async with proxied(short_dir) as rig, contextlib.AsyncExitStack() as stack:
        inside = rig.proxy.inside
        for number in range(3):  # these end
            async with registered(rig.inside, number, 250) as name:
                await rig.served(250, name)
        for number in range(3, 8):
            name = await stack.enter_async_context(registered(rig.inside, number, 250))
            await until(partial(is_read, rig.proxy, name))
            assert sum(len(each.list.devices) for each in inside.scanners.values()) <= 1000
            assert inside._lists.kept.held <= 650_000
        assert "its device list is refused for now" in caplog.text
        assert inside.scanners.keys() == rig.proxy.resources.keys()
