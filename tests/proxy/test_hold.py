"""Plugins behind the proxy that go away and come back, with `hold`."""

import asyncio
from pathlib import Path

import pytest

from kubedevices.allocation import AllocateRequest, ContainerAllocateRequest, PluginOptions
from kubedevices.errors import RpcError
from kubedevices.proxy.live_rules import LiveRules
from kubedevices.proxy.proxy_config import ProxyConfig, ProxyRule
from tests.fake_kubelet import Connected
from tests.fake_plugin import RESOURCE, FakePlugin, healthy, unhealthy
from tests.proxy_rig import proxied
from tests.waiting import until

FIRST = AllocateRequest((ContainerAllocateRequest(("a",)),))


def ruled(**rule: object) -> LiveRules:
    return LiveRules(ProxyConfig(resources={RESOURCE: ProxyRule(**rule)}))  # type: ignore[arg-type]


async def allocated(served: Connected, times: int = 1) -> int:
    """Admit pods one after the other, as a kubelet does; return how many were."""
    admitted = 0
    for _ in range(times):
        answer = await served.client.allocate(FIRST, timeout=100)
        admitted += answer.containers[0].env == {"IDS": "a"}
    return admitted


@pytest.mark.timeout(240)
async def test_the_restart_of_a_plugin_changes_nothing_outside(short_dir: Path) -> None:
    """No list without devices, one registration; calls wait, a health change arrives."""
    async with proxied(short_dir, rules=ruled(hold=3600.0, allocate_wait=3600.0)) as rig:
        plugin = await rig.plugin(*healthy("a", "b"))
        served = await rig.served(2)
        scanner = rig.proxy.inside.scanners[RESOURCE]
        await plugin.stop()
        await until(lambda: scanner.presence.is_away)
        waiting = asyncio.ensure_future(allocated(served))
        async with FakePlugin(
            rig.inside, devices=[*healthy("a"), *unhealthy("b")], socket_name="second.sock"
        ) as second:
            await second.register()
            assert await waiting == 1
            await rig.kubelet.wait_for(RESOURCE, {"a": "Healthy", "b": "Unhealthy"})
        assert rig.kubelet.connected(RESOURCE) == [served]
        assert len(rig.kubelet.requests) == 1
        assert {len(each) for each in rig.kubelet.lists(RESOURCE)} == {2}


async def test_a_plugin_that_stays_away_loses_health_but_not_its_resource(short_dir: Path) -> None:
    """After `hold`; then calls fail and say why."""
    async with proxied(short_dir, rules=ruled(hold=0.1, allocate_wait=0.0)) as rig:
        plugin = await rig.plugin(*healthy("a"))
        served = await rig.served(1)
        await plugin.stop()
        await rig.kubelet.wait_for(RESOURCE, {"a": "Unhealthy"})
        with pytest.raises(RpcError, match=r"the plugin of example\.com/widget has been away"):
            await allocated(served)
        await plugin.start()
        await plugin.register()
        await rig.kubelet.wait_for(RESOURCE, {"a": "Healthy"})


@pytest.mark.timeout(240)
async def test_after_a_reboot_fifty_pods_wait_for_a_late_plugin(short_dir: Path) -> None:
    """Its list and options are offered before it is there; it registers, nobody is refused."""
    rules = ruled(hold=3600.0, allocate_wait=3600.0, hold_over_reboot=True)
    async with proxied(short_dir, rules=rules) as rig:
        plugin = await rig.plugin(*healthy("a", "b"), preferred=lambda _: ())
        await rig.served(2)
        kept = rig.state / "lists/example.com_widget.json"
        await until(lambda: kept.exists() and '"a"' in kept.read_text())
        await rig.stop_proxy()
        await plugin.stop()
        await until(lambda: not rig.kubelet.connected(RESOURCE))
        await rig.start_proxy()
        served = await rig.served(2)
        assert served.options == PluginOptions(False, True)
        pods = asyncio.ensure_future(allocated(served, times=50))
        scanner = rig.proxy.inside.scanners[RESOURCE]
        resource = rig.proxy.resources[RESOURCE]
        assert scanner.presence.is_away
        await plugin.start()
        await plugin.register()
        assert await pods == 50
        assert rig.kubelet.connected(RESOURCE) == [served]
        assert resource.runner is not None


async def test_calls_wait_only_once_for_a_plugin_that_stays_away(short_dir: Path) -> None:
    """The others are refused at once, with the reason."""
    rules = ruled(hold=3600.0, allocate_wait=0.2, hold_over_reboot=True)
    async with proxied(short_dir, rules=rules) as rig:
        plugin = await rig.plugin(*healthy("a"))
        served = await rig.served(1)
        await plugin.stop()
        scanner = rig.proxy.inside.scanners[RESOURCE]
        await until(lambda: scanner.presence.is_away)
        texts = []
        for _ in range(51):
            with pytest.raises(RpcError) as caught:
                await allocated(served)
            texts.append(caught.value.message)
        assert all("(allocateWait)" in text for text in texts)
        assert all("waited 0.0 s" in text for text in texts[1:])
