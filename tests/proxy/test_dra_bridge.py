"""A device plugin of somebody else in DRA: the scheduler chooses, the plugin is asked for that."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubedevices.dra import driver as driver_module
from kubedevices.dra.device_plugin_guard import GuardTiming
from kubedevices.dra.driver import DraDriver
from kubedevices.errors import DynamicResourcesFailed, RpcError, StatusCode
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.scanner import Scanner
from kubedevices.proxy.dra_bridge import DraBridge
from kubedevices.serving.driver_pages import DriversView
from kubedevices.serving.plugin_pages import PluginPages
from kubedevices.testing.api_server.faults import ApiFault
from kubedevices.testing.workbench.dra_node import DraNode
from kubedevices.values.allocation import AllocateResponse, ContainerAllocateResponse
from kubedevices.values.device import Device, DeviceSpec, Mount
from kubedevices.values.device_tree import DeviceTree
from tests.fake_plugin import RESOURCE, healthy
from tests.proxy_rig import ProxyRig, ruled
from tests.serving.test_plugin_pages import numbers, page
from tests.waiting import until
from tests.widgets import QUICK

OTHER = "example.com/other"


class Rig(ProxyRig):
    """The same with a node for DRA instead of a kubelet for device plugins."""

    def __init__(self, directory: Path, node: DraNode, **options: Any) -> None:
        super().__init__(directory, **options)
        self.node = node
        self.options["dra"] = {
            "kubelet_dir": node.kubelet_dir,
            "cdi_dir": node.cdi_dir,
            "kubeconfig": node.kubeconfig,
            "node_name": "bench",
            "guard_timing": GuardTiming(pending=0.02, idle=0.1, young=0.0),
            "timing": QUICK,
        }

    async def claim(self, pod: str, **wanted: int) -> Any:
        """Start a pod; `widget=2` are two devices of this type."""
        requests = {f"example.com/{kind}": count for kind, count in wanted.items()}
        return await self.node.claim(pod, requests, (), 60)


@contextlib.asynccontextmanager
async def bridged(directory: Path, **options: Any) -> AsyncIterator[Rig]:
    node = DraNode(directory / "k", directory / "cdi")
    rig = Rig(directory, node, **options)
    await node.start()
    try:
        async with rig._stack:
            await rig.start_proxy()
            yield rig
            await rig.stop_proxy()
    finally:
        await node.stop()


async def test_a_claim_asks_the_plugin_for_exactly_its_devices(short_dir: Path) -> None:
    """One call for each request, and PreStartContainer, which the plugin wants."""
    async with bridged(short_dir) as rig:
        plugin = await rig.plugin(*healthy("GPU-a", "b", "c", numa=(1,)), pre_start=True)
        claimed = await rig.claim("pod", widget=2)
        label = claimed.devices[0]
        assert label.startswith("gpu-a-")
        assert claimed.devices == (label, "b")
        assert plugin.allocations == [("GPU-a", "b")]
        assert plugin.pre_starts == [("GPU-a", "b")]
        assert claimed.options.env == {"IDS": "GPU-a,b"}
        assert [each.host_path for each in claimed.options.devices] == ["/dev/GPU-a", "/dev/b"]
        device = rig.node.published("example.com")[0]
        assert device["attributes"]["id"] == {"string": "GPU-a"}
        assert device["attributes"]["resource.kubernetes.io/numaNode"] == {"int": 1}
        await rig.node.release("pod")
        assert not [*rig.node.cdi_dir.iterdir()]
        requests = [
            {"name": name, "exactly": {"deviceClassName": "widget.example.com", "count": count}}
            for name, count in (("first", 1), ("second", 2))
        ]
        await rig.node.claim("next", requests, (), 60)
        assert plugin.allocations[1:] == [("GPU-a",), ("b", "c")]


async def test_an_answer_becomes_edits_and_cdi_names(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Annotations with CDI names count; of others the log tells, once."""
    async with bridged(short_dir) as rig:
        plugin = await rig.plugin(*healthy("a", "b"))
        plugin.allocate_answer = lambda _: AllocateResponse(
            [
                ContainerAllocateResponse(
                    env={"A": "1"},
                    mounts=[Mount("/host", "/inside", read_only=True)],
                    devices=[DeviceSpec("/dev/null", "/dev/gpu", "r")],
                    annotations={"cdi.k8s.io/vendor": "vendor.com/gpu=x", "vendor.com/note": "y"},
                    cdi_devices=["vendor.com/gpu=z"],
                )
            ]
        )
        (rig.node.cdi_dir / "vendor.json").write_text(
            '{"cdiVersion": "0.6.0", "kind": "vendor.com/gpu", "devices": ['
            '{"name": "x", "containerEdits": {"env": ["X=1"]}},'
            '{"name": "z", "containerEdits": {"env": ["Z=1"]}}]}'
        )
        options = (await rig.claim("pod", widget=1)).options
        assert options.env == {"A": "1", "X": "1", "Z": "1"}
        assert options.mounts == (Mount("/host", "/inside", True),)
        assert options.devices == (DeviceSpec("/dev/null", "/dev/gpu", "r"),)
        await rig.claim("other", widget=1)
        assert caplog.text.count("do not get annotations such as vendor.com/note") == 1


async def test_after_a_reboot_the_plugin_is_asked_again(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then a repeated Prepare, and a new proxy, have the answer from before."""
    async with bridged(short_dir) as rig:
        plugin = await rig.plugin(*healthy("a"))
        claimed = await rig.claim("pod", widget=1)
        await rig.node.restart(0)
        await rig.stop_proxy()
        await rig.start_proxy()
        await rig.node.restart(0)
        assert plugin.allocations == [("a",)]
        await rig.stop_proxy()
        monkeypatch.setattr(driver_module, "read_boot_id", lambda: "another boot")
        for file in rig.node.cdi_dir.iterdir():
            file.unlink()
        await rig.start_proxy()
        await rig.node.restart(0)
        assert plugin.allocations == [("a",), ("a",)]
        assert rig.node.kubelet.prepared("default", claimed.name)
        assert [*rig.node.cdi_dir.iterdir()]


async def test_plugins_of_one_domain_are_one_driver(short_dir: Path) -> None:
    """Each is asked for its own devices; one that goes away takes only its own."""
    async with bridged(short_dir) as rig:
        widgets = await rig.plugin(*healthy("a"))
        others = await rig.plugin(*healthy("o"), resource=OTHER, socket_name="other.sock")
        claimed = await rig.claim("pod", widget=1, other=1)
        assert (widgets.allocations, others.allocations) == ([("a",)], [("o",)])
        assert claimed.by_request == {"widget": ("a",), "other": ("o",)}
        await others.stop()
        await until(lambda: [each["name"] for each in rig.node.published("example.com")] == ["a"])
        await rig.node.release("pod")


class OtherRule(Scanner):
    """Reports a tree when it is told to; the framework's default answers."""

    def __init__(self) -> None:
        self.notifier: Notifier | None = None

    async def scan(self, notifier: Notifier) -> None:
        self.notifier = notifier
        await asyncio.Event().wait()


def tree(*names: str) -> DeviceTree:
    return DeviceTree({"widget": [Device(name) for name in names]})


async def test_a_change_of_a_rule_keeps_the_devices_until_the_successor_has_a_list(
    tmp_path: Path,
) -> None:
    """A tree without them would take all of them out of the slices for a moment."""
    node = DraNode(tmp_path / "k", tmp_path / "cdi")
    await node.start()
    bridge = DraBridge({"kubeconfig": node.kubeconfig, "node_name": "bench"}, tmp_path)
    plugin, domain = object(), "example.com"
    seen: list[list[str]] = []
    whole = bridge._scanner_of(domain)

    class Seen(Notifier):
        def notify(self, tree: DeviceTree) -> None:
            seen.append([*tree.devices("widget")])

    scanning = asyncio.create_task(whole.scan(Seen()))
    try:
        for names in (["a", "b"], ["a"]):
            rule = OtherRule()
            serving = asyncio.create_task(bridge.serve(domain, rule, plugin))
            await until(lambda: rule.notifier)  # noqa: B023
            assert rule.notifier is not None
            rule.notifier.notify(tree(*names))
            await until(lambda: seen and seen[-1] == names)  # noqa: B023
            serving.cancel()
            await asyncio.wait({serving})
            assert serving.cancelled()
        assert [] not in seen
        bridge.forget(plugin)
        await until(lambda: seen[-1] == [])
    finally:
        scanning.cancel()
        await asyncio.wait({scanning})
        await node.stop()


async def test_a_rule_that_moves_a_plugin_to_another_domain_takes_its_devices_along(
    tmp_path: Path,
) -> None:
    """Nothing serves them in the old domain any more."""
    node = DraNode(tmp_path / "k", tmp_path / "cdi")
    await node.start()
    bridge = DraBridge({"kubeconfig": node.kubeconfig, "node_name": "bench"}, tmp_path)
    old, plugin = bridge._scanner_of("example.com"), object()
    old.take(plugin, OtherRule(), tree("a"))
    serving = asyncio.create_task(bridge.serve("other.com", OtherRule(), plugin))
    await until(lambda: not old._trees)
    serving.cancel()
    await asyncio.wait({serving})
    await node.stop()


async def test_the_pod_gets_the_error_of_the_plugin(short_dir: Path) -> None:
    """In its words; the claim is free of it afterwards."""
    async with bridged(short_dir) as rig:
        plugin = await rig.plugin(*healthy("a"))
        plugin.errors["allocate"] = RpcError(StatusCode.INTERNAL, "the card is on fire")
        with pytest.raises(DynamicResourcesFailed, match="the card is on fire"):
            await rig.claim("pod", widget=1)
        del plugin.errors["allocate"]
        await rig.node.kubelet.prepare(rig.node.pods["pod"])
        assert [*rig.node.cdi_dir.iterdir()]


async def test_a_claim_is_unprepared_without_its_plugin(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy was restarted, and the plugin is gone for good."""
    async with bridged(short_dir) as rig:
        plugin = await rig.plugin(*healthy("a"))
        await rig.claim("pod", widget=1)
        await rig.stop_proxy()
        await plugin.stop()
        monkeypatch.setattr("kubedevices.proxy.dra_bridge.FIRST_LIST_TIMEOUT", 0.05)
        await rig.start_proxy()
        async with asyncio.timeout(60):
            while rig.node.pods:
                with contextlib.suppress(DynamicResourcesFailed):
                    await rig.node.release("pod")
                await asyncio.sleep(0.01)
        assert not [*rig.node.cdi_dir.iterdir()]
        assert RESOURCE not in rig.proxy.resources


async def test_while_a_plugin_is_away_only_devices_of_claims_stay_usable(short_dir: Path) -> None:
    """By `hold`: nobody could prepare a free device; the pods that run lose none of theirs."""

    def tainted() -> set[str]:
        return {each["name"] for each in rig.node.published("example.com") if "taints" in each}

    async with bridged(short_dir, rules=ruled(hold=3600.0, allocate_wait=0.0)) as rig:
        plugin = await rig.plugin(*healthy("a", "b", "c"))
        held = {*(await rig.claim("pod", widget=2)).devices}
        await plugin.stop()
        await until(lambda: tainted() == {"a", "b", "c"} - held)
        await plugin.start()
        await plugin.register()
        await until(lambda: not tainted())


@contextlib.asynccontextmanager
async def paged(rig: Rig, caplog: pytest.LogCaptureFixture) -> AsyncIterator[str]:
    """Serve the pages of the proxy, as `--listen` does; give their address."""
    caplog.set_level("INFO")
    bridge = rig.proxy.bridge
    assert bridge is not None
    async with PluginPages("127.0.0.1:0", None).beside(rig.proxy, DriversView(bridge)):
        yield re.findall(r"pages at (http://\S+):", caplog.text)[-1]


async def test_the_pages_show_the_drivers_of_all_domains(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each with its own numbers, devices and claims; the proxy is ready when both drivers are."""
    async with bridged(short_dir) as rig, paged(rig, caplog) as url:
        assert await asyncio.to_thread(page, url, "/healthz") == (200, "ok\n")
        await rig.plugin(*healthy("a"))
        await rig.plugin(*healthy("o", "p"), resource="other.example/card", socket_name="o.sock")
        drivers = rig.proxy.bridge
        assert drivers is not None
        await until(lambda: rig.proxy.is_ready and len(drivers.drivers) == 2)
        assert await asyncio.to_thread(page, url, "/readyz") == (200, "ok\n")
        await rig.claim("pod", widget=1)
        found = await asyncio.to_thread(numbers, url)
        found = {
            (name.removeprefix("kubedevices_driver_"), *rest): value
            for (name, *rest), value in found.items()
        }
        assert found["devices", "widget", "example.com", "published"] == 1
        assert found["devices", "card", "other.example", "published"] == 2
        assert found["claims", "example.com", "prepared"] == 1
        assert found["claims", "other.example", "prepared"] == 0
        assert found["claim_seconds_count", "prepare", "example.com"] == 1
        assert found["registered", "example.com"] == found["published", "other.example"] == 1
        told = json.loads((await asyncio.to_thread(page, url, "/state"))[1])
        assert (told["mode"], told["ready"]) == ("dra", True)
        shown = {each["name"]: each for each in told["drivers"]}
        assert [*shown] == ["example.com", "other.example"]
        assert [each["id"] for each in shown["other.example"]["devices"]] == ["o", "p"]
        assert [each["prepared"] for each in shown["example.com"]["claims"]] == [True]
        assert shown["other.example"]["claims"] == []


async def test_a_proxy_is_not_ready_while_a_driver_is_not(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No slice reaches the API server: /readyz says which driver and why, once."""
    async with bridged(short_dir) as rig, paged(rig, caplog) as url:
        rig.node.api.fault = lambda _: ApiFault(500, "out of order")
        await rig.plugin(*healthy("a"))
        bridge = rig.proxy.bridge
        assert bridge is not None
        await until(lambda: any("out of order" in each for each in bridge.problems))
        status, text = await asyncio.to_thread(page, url, "/readyz")
        assert status == 503
        assert text.count("driver example.com: its devices are not published: ") == 1
        told = json.loads((await asyncio.to_thread(page, url, "/state"))[1])
        assert told["ready"] is False
        rig.node.api.fault = lambda _: None
        await until(lambda: rig.proxy.is_ready)
        assert (await asyncio.to_thread(page, url, "/readyz"))[0] == 200


async def test_calls_of_a_driver_that_started_again_are_counted(
    short_dir: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that failed is another object afterwards; its histogram goes on."""
    run = DraDriver.run

    async def fail_once(driver: DraDriver) -> None:
        monkeypatch.setattr(DraDriver, "run", run)
        raise RuntimeError("once")

    monkeypatch.setattr(DraDriver, "run", fail_once)
    async with bridged(short_dir) as rig, paged(rig, caplog) as url:
        await rig.plugin(*healthy("a"))
        await until(lambda: rig.node.published("example.com"))
        assert "once" in caplog.text
        assert any("once" in each for each in rig.proxy.problems)
        await rig.claim("pod", widget=1)
        found = await asyncio.to_thread(numbers, url)
        name = "kubedevices_driver_claim_seconds_count"
        assert found[name, "prepare", "example.com"] == 1
