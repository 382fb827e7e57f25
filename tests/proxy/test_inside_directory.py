"""The directories of the plugins: who comes how, and what stays there."""

from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.allocation import PluginOptions
from kubedevices.errors import CannotAsk, SocketInUse
from kubedevices.node.arrival.plugin_directory import StateLock
from kubedevices.proxy.proxy import Proxy
from tests.fake_plugin import RESOURCE, FakePlugin, healthy
from tests.proxy_rig import proxied
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
            with pytest.raises(CannotAsk, match=rf"another (kubedevices )?proxy .*{option}"):
                await second.run()


async def test_a_kubedevices_node_may_use_the_same_state_directory(short_dir: Path) -> None:
    """Both have it by default on a host without a cluster."""
    async with proxied(short_dir) as rig:
        lock = StateLock(rig.state)
        lock.acquire()
        lock.release()
