"""The directories of the plugins: who comes how, and what stays there."""

from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.errors import CannotAsk, SocketInUse
from kubedevices.node.arrival.plugin_directory import StateLock
from kubedevices.proxy.proxy import Proxy
from tests.fake_plugin import RESOURCE, healthy
from tests.proxy_rig import proxied
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
