"""Restarts of kubelet, plugin and proxy, alone and in pairs: nothing is lost, nothing comes twice.

`KUBEDEVICES_ROUNDS` says how often each is tried, for a long run.
"""

import asyncio
import itertools
import os
from pathlib import Path

import pytest

from kubedevices.values.device import ReportedDevice
from tests.fake_kubelet import leave_dead_socket
from tests.fake_plugin import RESOURCE, FakePlugin, healthy, unhealthy
from tests.proxy_rig import ProxyRig, proxied, ruled
from tests.waiting import until

ROUNDS = int(os.environ.get("KUBEDEVICES_ROUNDS", "1"))
WHO = ("kubelet", "plugin", "proxy")
HOLD = {"hold": 300.0}


async def restart_plugin(rig: ProxyRig, plugin: FakePlugin, devices: list[ReportedDevice]) -> None:
    await plugin.stop()
    await plugin.send(devices)
    await plugin.start()
    await register(plugin)


async def register(plugin: FakePlugin) -> None:
    """Try until the proxy takes it, as plugins do."""
    for _ in range(1000):
        if (plugin.socket_dir / "kubelet.sock").exists():
            try:
                await plugin.register()
            except Exception:
                await asyncio.sleep(0.01)
            else:
                return
        await asyncio.sleep(0.01)
    raise AssertionError("never registered")


async def restart_proxy(rig: ProxyRig, plugin: FakePlugin, devices: list[ReportedDevice]) -> None:
    await rig.stop_proxy()
    await plugin.send(devices)
    await rig.start_proxy()


async def restart_kubelet(rig: ProxyRig, plugin: FakePlugin, devices: list[ReportedDevice]) -> None:
    await rig.kubelet.stop(leave_socket=True)
    await plugin.send(devices)
    await rig.kubelet.start()


RESTARTS = {"kubelet": restart_kubelet, "plugin": restart_plugin, "proxy": restart_proxy}


@pytest.mark.parametrize(
    "who",
    [*((name,) for name in WHO), *itertools.permutations(WHO, 2)],
    ids="+".join,
)
async def test_a_health_change_during_a_restart_arrives(
    short_dir: Path, who: tuple[str, ...]
) -> None:
    """Each goes and comes, at once with another; a device turns meanwhile. Nobody sees no devices,
    and one registration is left.
    """
    async with proxied(short_dir, rules=ruled(**HOLD)) as rig:
        plugin = await rig.plugin(*healthy("a", "b"))
        await rig.served(2)
        for number in range(ROUNDS):
            devices = [*(healthy("a") if number % 2 else unhealthy("a")), *healthy("b")]
            await asyncio.gather(*(RESTARTS[name](rig, plugin, devices) for name in who))
            expected = {each.id: each.health for each in devices}
            await rig.kubelet.wait_for(RESOURCE, expected, 30)
            await until(lambda: len(rig.kubelet.connected(RESOURCE)) == 1)
        assert {len(each) for each in rig.kubelet.lists(RESOURCE)} == {2}


async def test_a_killed_proxy_is_followed_by_another(short_dir: Path) -> None:
    """What a killed process leaves: its sockets on both sides, and the file of known sockets."""
    async with proxied(short_dir, rules=ruled(**HOLD)) as rig:
        plugin = await rig.plugin(*healthy("a"))
        await rig.served(1)
        await until((rig.state / "proxy-sockets.json").exists)
        known = (rig.state / "proxy-sockets.json").read_bytes()
        await rig.stop_proxy()
        (rig.state / "proxy-sockets.json").write_bytes(known)
        leave_dead_socket(rig.inside / "kubelet.sock")
        await plugin.send(unhealthy("a"))
        await rig.start_proxy()
        await rig.kubelet.wait_for(RESOURCE, {"a": "Unhealthy"}, 30)
        assert plugin.socket.exists()
