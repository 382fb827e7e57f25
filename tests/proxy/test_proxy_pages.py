"""The pages of a proxy: a part that fails makes it unready, and pods are named."""

import asyncio
import re
from pathlib import Path

import pytest

from kubedevices.dra.driver import DraDriver
from kubedevices.kubelet_api.pod_resources import (
    ContainerEntry,
    DeviceEntry,
    PodEntry,
    pod_to_wire,
)
from kubedevices.plugin import supervised_tasks
from kubedevices.plugin.config_follower import ConfigFollower
from kubedevices.proxy.dra_bridge import DraBridge
from kubedevices.proxy.known_sockets import KnownSockets
from kubedevices.proxy.live_rules import LiveRules
from kubedevices.proxy.proxied_resource import ProxiedResource
from kubedevices.proxy.proxy_config import ProxyConfig, ProxyRule
from kubedevices.rules.share import ShareRule
from kubedevices.serving.plugin_pages import PluginPages
from tests.dra.test_device_plugin_guard import SlowKubelet
from tests.fake_plugin import RESOURCE, healthy
from tests.proxy.test_dra_bridge import bridged
from tests.proxy_rig import proxied
from tests.serving.test_plugin_pages import page
from tests.waiting import until

PARTS: dict[str, type] = {
    RESOURCE: ProxiedResource,
    "configuration file": ConfigFollower,
    "known sockets": KnownSockets,
    "bridge": DraBridge,
    "DRA driver example.com": DraDriver,
}


@pytest.mark.parametrize("part", PARTS)
async def test_a_proxy_is_not_ready_while_a_part_fails(
    part: str, short_dir: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has the traceback, /readyz names the part, and the part begins again."""
    monkeypatch.setattr(supervised_tasks, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(supervised_tasks, "LAST_PAUSE", 0.02)
    monkeypatch.setattr(supervised_tasks, "STEADY", 0.1)
    caplog.set_level("INFO")
    file = short_dir / "proxy.yaml"
    file.write_text("resources: {}\n")
    (inner := short_dir / "d").mkdir()
    method = "keep" if part == "known sockets" else "run"
    work = getattr(PARTS[part], method)
    is_broken = True

    async def fail(owner: object) -> None:
        if is_broken:
            raise ZeroDivisionError("a mistake of ours")
        await work(owner)

    monkeypatch.setattr(PARTS[part], method, fail)
    rigs = bridged if PARTS[part] in (DraBridge, DraDriver) else proxied
    async with (
        rigs(inner, rules=LiveRules.from_file(file)) as rig,
        PluginPages("127.0.0.1:0", None).beside(rig.proxy),
    ):
        (url,) = re.findall(r"pages at (http://\S+):", caplog.text)
        await rig.plugin(*healthy("a"))
        await until(lambda: caplog.text.count(f"{part} failed") > 1)
        assert "Traceback" in caplog.text
        status, text = await asyncio.to_thread(page, url, "/readyz")
        assert status == 503
        assert f"{part}: internal error: ZeroDivisionError('a mistake of ours')" in text
        is_broken = False
        await until(lambda: rig.proxy.is_ready)
        assert (await asyncio.to_thread(page, url, "/readyz"))[0] == 200


class KubeletWithAPod(SlowKubelet):
    async def list_pods(self) -> list[bytes]:
        names = ("new.com/card", "other.com/card")
        devices = tuple(DeviceEntry(each, ("a::1",)) for each in names)
        container = ContainerEntry("main", devices)
        return [pod_to_wire(PodEntry("train", "default", (container,)))]


async def test_metrics_say_which_pod_has_a_device_behind_the_proxy(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By the name outside, which the kubelet knows; devices of other plugins are not named."""
    caplog.set_level("INFO")
    rule = ProxyRule(rename="new.com/card", share=ShareRule(replicas=2))
    rules = LiveRules(ProxyConfig(resources={RESOURCE: rule}))
    (inner := short_dir / "d").mkdir()
    socket = short_dir / "pods.sock"
    async with proxied(inner, rules=rules) as rig, KubeletWithAPod().serving(socket):
        await rig.plugin(*healthy("a"))
        await rig.served(2, "new.com/card")
        pages = PluginPages("127.0.0.1:0", None, pod_resources=socket)
        async with pages.beside(rig.proxy):
            (url,) = re.findall(r"pages at (http://\S+):", caplog.text)
            told = await asyncio.to_thread(page, url, "/metrics")
    (line,) = re.findall(r"^kubedevices_plugin_device_allocated\{.*", told[1], re.MULTILINE)
    for label in ('resource="new.com/card"', 'device="a::1"', 'pod_name="train"'):
        assert label in line
