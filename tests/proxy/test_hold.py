"""Plugins behind the proxy that go away and come back, with `hold`."""

import asyncio
from pathlib import Path

import pytest

from kubedevices.errors import RpcError
from kubedevices.kubelet_api.pod_resources import (
    ContainerEntry,
    DeviceEntry,
    PodEntry,
    pod_to_wire,
)
from kubedevices.proxy.live_rules import LiveRules
from kubedevices.proxy.proxy_config import ProxyConfig, ProxyRule
from kubedevices.rules.cordon import FILE_NAME
from kubedevices.rules.cordon_file import add_cordoned
from kubedevices.rules.filter import FilterRule
from kubedevices.rules.health_gate import Check
from kubedevices.rules.health_rule import HealthRule
from kubedevices.rules.share import ShareRule
from kubedevices.values.allocation import AllocateRequest, ContainerAllocateRequest, PluginOptions
from tests.dra.test_device_plugin_guard import SlowKubelet
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


async def test_a_list_is_saved_from_the_change_of_its_rule_on(short_dir: Path) -> None:
    """A plugin that sends no further list would otherwise be missing after the next reboot."""
    rules = ruled(hold=3600.0)
    async with proxied(short_dir, rules=rules) as rig:
        await rig.plugin(*healthy("a"))
        await rig.served(1)
        changed = ProxyRule(hold=3600.0, hold_over_reboot=True)
        rules.config = ProxyConfig(resources={RESOURCE: changed})
        rules.changed()
        await until((rig.state / "lists/example.com_widget.json").exists)


async def test_calls_wait_only_once_for_a_plugin_that_stays_away(short_dir: Path) -> None:
    """When the time of an absence is used up, further calls are refused at once."""
    rules = ruled(hold=3600.0, allocate_wait=2.0)
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
        waited = [float(text.partition("waited ")[2].split()[0]) for text in texts]
        assert max(waited[1:]) < 1.0, waited


class KubeletWithAPod(SlowKubelet):
    async def list_pods(self) -> list[bytes]:
        devices = (DeviceEntry(RESOURCE, ("a",)), DeviceEntry("example.computer/widget", ("b",)))
        return [pod_to_wire(PodEntry("p", "default", (ContainerEntry("c", devices),)))]


async def test_of_an_absent_plugin_only_devices_that_pods_hold_stay_healthy(
    short_dir: Path,
) -> None:
    """The kubelet says which; devices of other domains have the same IDs."""
    socket = short_dir / "pods.sock"
    (inner := short_dir / "d").mkdir()
    rules = ruled(hold=3600.0, allocate_wait=0.0)
    async with (
        KubeletWithAPod().serving(socket),
        proxied(inner, rules=rules, pod_resources=socket) as rig,
    ):
        plugin = await rig.plugin(*healthy("a", "b"))
        await rig.served(2)
        await plugin.stop()
        await rig.kubelet.wait_for(RESOURCE, {"a": "Healthy", "b": "Unhealthy"})


async def test_a_cordon_takes_a_device_out_while_its_plugin_is_away(short_dir: Path) -> None:
    """Every rule works on the list that the proxy keeps."""
    async with proxied(short_dir, rules=ruled(hold=3600.0, allocate_wait=3600.0)) as rig:
        plugin = await rig.plugin(*healthy("a", "b"))
        await rig.served(2)
        await plugin.stop()
        await until(lambda: rig.proxy.inside.scanners[RESOURCE].presence.is_away)
        add_cordoned(rig.state / FILE_NAME, [(RESOURCE, "b")], "fan")
        await rig.kubelet.wait_for(RESOURCE, {"a": "Healthy", "b": "Unhealthy"})


async def test_a_check_that_fails_while_the_plugin_is_away_counts_at_once(short_dir: Path) -> None:
    """The device turns Unhealthy although its list is held; the other device stays Healthy."""
    bad = short_dir / "bad"
    bad.mkdir()
    command = ("test", "!", "-e", f"{bad}/{{id}}")
    rule = HealthRule(checks=(Check(command=command, interval=0.1, fail_after=1),))
    rules = ruled(hold=3600.0, allocate_wait=3600.0, health=rule)
    async with proxied(short_dir, rules=rules) as rig:
        plugin = await rig.plugin(*healthy("a", "b"))
        await rig.kubelet.wait_for(RESOURCE, {"a": "Healthy", "b": "Healthy"})
        await plugin.stop()
        await until(lambda: rig.proxy.inside.scanners[RESOURCE].presence.is_away)
        (bad / "b").touch()
        await rig.kubelet.wait_for(RESOURCE, {"a": "Healthy", "b": "Unhealthy"})


async def test_rules_that_change_while_the_plugin_is_away_keep_its_list(short_dir: Path) -> None:
    """A filter leaves devices out, and a rule that needs a new chain offers the same devices."""
    rules = ruled(hold=3600.0, allocate_wait=3600.0)
    async with proxied(short_dir, rules=rules) as rig:
        plugin = await rig.plugin(*healthy("a", "b"))
        await rig.served(2)
        await plugin.stop()
        await until(lambda: rig.proxy.inside.scanners[RESOURCE].presence.is_away)
        halves = ("a::0", "b::0", "a::1", "b::1")
        for further, ids in (
            ({"filter": FilterRule(ids=("a",))}, ["b"]),
            ({"share": ShareRule(replicas=2)}, halves),
        ):
            changed = ProxyRule(hold=3600.0, allocate_wait=3600.0, **further)
            rules.config = ProxyConfig(resources={RESOURCE: changed})
            rules.changed()
            await rig.kubelet.wait_for(RESOURCE, dict.fromkeys(ids, "Healthy"))
        assert all(each for each in rig.kubelet.lists(RESOURCE))


async def test_a_plugin_that_returns_with_other_options_keeps_its_devices(short_dir: Path) -> None:
    """The resource registers again with the new options, and no list is empty meanwhile."""
    async with proxied(short_dir, rules=ruled(hold=3600.0, allocate_wait=3600.0)) as rig:
        plugin = await rig.plugin(*healthy("a"))
        await rig.served(1)
        await plugin.stop()
        await until(lambda: rig.proxy.inside.scanners[RESOURCE].presence.is_away)
        await rig.plugin(*healthy("a"), preferred=lambda _: (), socket_name="second.sock")
        await until(lambda: len(rig.kubelet.requests) == 2)
        served = await rig.served(1)
        assert served.options == PluginOptions(False, True)
        assert all(each for each in rig.kubelet.lists(RESOURCE))


async def test_the_result_of_a_check_survives_a_restart_of_the_plugin(short_dir: Path) -> None:
    """A device that its check found bad is never Healthy in between, and does not flap."""
    bad = short_dir / "bad"
    bad.touch()
    check = Check(command=("test", "!", "-e", str(bad)), interval=3600.0, fail_after=1)
    rules = ruled(health=HealthRule(checks=(check,), max_flaps=1))
    async with proxied(short_dir, rules=rules) as rig:
        plugin = await rig.plugin(*healthy("a"))
        await rig.kubelet.wait_for(RESOURCE, {"a": "Unhealthy"})
        before = len(rig.kubelet.lists(RESOURCE))
        for _ in range(3):
            await plugin.stop()
            await until(lambda: not rig.kubelet.connected(RESOURCE))
            await plugin.start()
            await plugin.register()
            await rig.kubelet.wait_for(RESOURCE, {"a": "Unhealthy"})
        lists = rig.kubelet.lists(RESOURCE)[before:]
        assert {device.health for each in lists for device in each} == {"Unhealthy"}
        chain = rig.proxy.resources[RESOURCE].chain
        assert chain is not None
        assert chain.layers["health"].counts["widget", "went_out"] == 0


async def test_over_a_reboot_each_resource_of_a_pattern_has_its_own_list(short_dir: Path) -> None:
    """Each name registers once, with its own devices only."""
    rule = ProxyRule(hold=3600.0, allocate_wait=3600.0, hold_over_reboot=True)
    rules = LiveRules(ProxyConfig(resources={"example.com/*": rule}))
    names = [RESOURCE, "example.com/gadget"]
    async with proxied(short_dir, rules=rules) as rig:
        for number, name in enumerate(names):
            await rig.plugin(
                *healthy(f"d{number}"), resource=name, socket_name=f"plugin{number}.sock"
            )
        saved = [rig.state / f"lists/{name.replace('/', '_')}.json" for name in names]
        await until(lambda: all(each.exists() for each in saved))
        await rig.stop_proxy()
        for each in rig.inside.glob("plugin*.sock"):
            each.unlink()
        rig.kubelet.requests.clear()
        await rig.start_proxy()
        for number, name in enumerate(names):
            await rig.kubelet.wait_for(name, {f"d{number}": "Healthy"})
        assert sorted(each.resource_name for each in rig.kubelet.requests) == sorted(names)
