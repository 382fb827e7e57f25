"""Rules of a file over a real plugin: what the kubelet sees, and what a change of the file does."""

import asyncio
import json
import logging
import os
import re
from pathlib import Path

import pytest

from kubedevices.cli import main
from kubedevices.errors import RpcError, UsageError
from kubedevices.kubelet_api import convert, services
from kubedevices.proxy.live_rules import LiveRules
from kubedevices.proxy.proxy_config import ProxyConfig, ProxyRule
from kubedevices.rules.cordon import FILE_NAME
from kubedevices.rules.cordon_file import CordonEntry, change_cordoned
from kubedevices.serving.plugin_pages import PluginPages, describe_plugin
from kubedevices.values.allocation import AllocateRequest, ContainerAllocateRequest
from tests.fake_kubelet import Connected
from tests.fake_plugin import RESOURCE, healthy, unhealthy
from tests.prometheus_lint import lint
from tests.proxy_rig import ProxyRig, ask, proxied
from tests.waiting import until

EVERYTHING = """
resources:
  example.com/*:
    filter: {ids: [bad]}
    split: {rules: [{to: big, ids: ["B*"]}]}
    rename: "new.com/my-{name}"
    hold: 5m
    share: {replicas: 2, distinct: true}
    inject: {env: {EXTRA: "{id}"}}
"""


def rules(directory: Path, text: str) -> LiveRules:
    file = directory.parent / "proxy.yaml"
    file.write_text(text)
    return LiveRules.from_file(file)


async def change(rig: ProxyRig, text: str) -> None:
    """Write the file anew and wait until it is in force."""
    follower = rig.proxy.rules.follower
    assert follower is not None
    before = follower.reloads + follower.failed_reloads
    new = rig.state.parent.parent / "new.yaml"
    new.write_text(text)
    os.replace(new, rig.state.parent.parent / "proxy.yaml")  # noqa: PTH105
    rig.proxy.rules.reload()
    await until(lambda: follower.reloads + follower.failed_reloads > before)


async def allocate(served: Connected, *ids: str) -> dict[str, str]:
    request = AllocateRequest((ContainerAllocateRequest(ids),))
    answer = await ask(served, services.ALLOCATE, convert.ALLOCATE_REQUEST.to_wire(request))
    return convert.ALLOCATE_RESPONSE.from_wire(answer).containers[0].env


async def test_all_rules_together(short_dir: Path) -> None:
    """In the fixed order: the plugin gets its own IDs, the kubelet those of the rules."""
    async with proxied(short_dir, rules=rules(short_dir, EVERYTHING)) as rig:
        plugin = await rig.plugin(*healthy("a", "B1", "bad"))
        big = await rig.kubelet.wait_for("new.com/my-big", {"B1::0": "Healthy", "B1::1": "Healthy"})
        rest = await rig.kubelet.wait_for("new.com/my-widget", 2)
        assert await allocate(big, "B1::1") == {"IDS": "B1", "EXTRA": "B1"}
        assert await allocate(rest, "a::0") == {"IDS": "a", "EXTRA": "a"}
        assert plugin.allocations == [("B1",), ("a",)]
        await plugin.send([*unhealthy("B1"), *healthy("a")])
        await rig.kubelet.wait_for("new.com/my-big", {"B1::0": "Unhealthy", "B1::1": "Unhealthy"})
        with pytest.raises(RpcError):
            await allocate(rest, "a::0", "a::1")


async def test_each_rule_says_at_the_start_what_it_does(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In a line, with the plugin's resource: a proxy may have many."""
    caplog.set_level(logging.INFO)
    async with proxied(short_dir, rules=rules(short_dir, EVERYTHING)) as rig:
        await rig.plugin(*healthy("a", "bad"))
        await rig.kubelet.wait_for("new.com/my-widget", 2)
    for line in (
        "leaves out devices bad",
        "splits widget into big (B*), the rest stays",
        "calls devices new.com/my-{name}",
        "shares devices 2 ways, different devices per container, spread",
    ):
        assert f"{RESOURCE}: {line}" in caplog.messages


async def test_a_held_list_stays_while_the_plugin_restarts(short_dir: Path) -> None:
    """No empty list, no other registration; a health change meanwhile arrives."""
    text = "resources:\n  example.com/widget: {hold: 5m}\n"
    async with proxied(short_dir, rules=rules(short_dir, text)) as rig:
        plugin = await rig.plugin(*healthy("a", "b"))
        served = await rig.served(2)
        await plugin.stop()
        await until(lambda: not rig.proxy.inside.scanners[RESOURCE].is_here)
        await plugin.send([*unhealthy("a"), *healthy("b")])
        await plugin.start()
        await plugin.register()
        await rig.kubelet.wait_for(RESOURCE, {"a": "Unhealthy", "b": "Healthy"})
        assert rig.kubelet.connected(RESOURCE) == [served]
        assert len(rig.kubelet.requests) == 1
        assert {len(each) for each in rig.kubelet.lists(RESOURCE)} == {2}


async def test_a_changed_file_is_applied(short_dir: Path) -> None:
    """A changed number is no new registration, other keys are; what is unchanged notices nothing;
    mistakes change nothing.
    """
    text = "resources:\n  example.com/widget: {share: {replicas: 2}}\n"
    async with proxied(short_dir, rules=rules(short_dir, text)) as rig:
        await rig.plugin(*healthy("a"))
        await rig.plugin(*healthy("x"), resource="example.com/other", socket_name="other.sock")
        served = await rig.served(2)
        other = await rig.served(1, "example.com/other")
        await change(rig, text.replace("2", "3"))
        await rig.served(3)
        assert rig.kubelet.connected(RESOURCE) == [served]
        await change(rig, "resources: [")
        await change(rig, text.replace("widget: {", 'widget: {rename: "b.com/{name}", '))
        await rig.served(2, "b.com/widget")
        await until(lambda: not rig.kubelet.connected(RESOURCE))
        await change(rig, "unlisted: hide")
        await until(lambda: not rig.kubelet.connected("b.com/widget"))
        await until(lambda: not other.is_open)
        await change(rig, "resources: {}")
        await rig.served(1)


async def test_two_resources_with_the_same_outside_name(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The second is not served, and the log names file and line."""
    text = 'resources:\n  "*.com/widget": {rename: "c.com/{name}"}\n'
    async with proxied(short_dir, rules=rules(short_dir, text)) as rig:
        await rig.plugin(*healthy("a"), resource="a.com/widget")
        await rig.served(1, "c.com/widget")
        await rig.plugin(*healthy("x", "y"), resource="b.com/widget", socket_name="b.sock")
        told = "resources.*.com/widget: c.com/widget is already the outside name of a.com/widget"
        await until(lambda: told in caplog.text)
        assert "proxy.yaml:2:" in caplog.text
        await rig.served(1, "c.com/widget")


async def test_the_outside_name_of_a_hidden_resource_is_free_again(short_dir: Path) -> None:
    """A rule that hides or renames the first resource lets another resource have its name, whatever
    the order in which their chains are created.
    """
    first, second = "a.com/widget", "b.com/widget"
    renamed = '"{}": {{rename: "c.com/widget"}}'
    text = f"unlisted: hide\nresources:\n  {renamed.format(first)}\n"
    async with proxied(short_dir, rules=rules(short_dir, text)) as rig:
        await rig.plugin(*healthy("a"), resource=first)
        await rig.served(1, "c.com/widget")
        await rig.plugin(*healthy("x", "y"), resource=second, socket_name="b.sock")
        await until(lambda: second in rig.proxy.resources)
        await change(rig, text.replace(first, second))
        await rig.served(2, "c.com/widget")
        await change(rig, text)
        await rig.served(1, "c.com/widget")


def test_a_name_is_free_when_no_rule_in_force_produces_it() -> None:
    """Also before the chain of the hidden resource has ended."""
    rule = ProxyRule(rename="c.com/w")
    live = LiveRules(ProxyConfig(resources={"a.com/w": rule, "b.com/w": rule}))
    live.reserve_names("a.com/w", rule)
    with pytest.raises(UsageError, match=r"already the outside name of a\.com/w"):
        live.reserve_names("b.com/w", rule)
    for after in ({}, {"a.com/w": ProxyRule()}):
        live.config = ProxyConfig(resources={**after, "b.com/w": rule}, unlisted="hide")
        live.reserve_names("b.com/w", rule)
        live.config = ProxyConfig(resources={"a.com/w": rule}, unlisted="hide")
        live.reserve_names("a.com/w", rule)


async def test_a_cordoned_device_is_refused(short_dir: Path) -> None:
    """By its name outside; without a restart."""
    text = "resources:\n  example.com/widget: {rename: new.com/w}\n"
    async with proxied(short_dir, rules=rules(short_dir, text)) as rig:
        await rig.plugin(*healthy("a", "b"))
        await rig.served(2, "new.com/w")
        change_cordoned(
            rig.state / FILE_NAME,
            lambda before: [*before, CordonEntry("new.com/w", "a", "its fan")],
        )
        await rig.kubelet.wait_for("new.com/w", {"a": "Unhealthy", "b": "Healthy"}, 30)


async def test_the_rule_cordon_can_be_left_out(short_dir: Path) -> None:
    """Then nobody can take a device of this resource out."""
    text = "resources:\n  example.com/widget: {cordon: off}\n"
    async with proxied(short_dir, rules=rules(short_dir, text)) as rig:
        await rig.plugin(*healthy("a"))
        await rig.plugin(*healthy("a"), resource="example.com/other", socket_name="other.sock")
        await rig.served(1)
        await rig.served(1, "example.com/other")
        out = [CordonEntry(f"example.com/{kind}", "a", "its fan") for kind in ("widget", "other")]
        change_cordoned(rig.state / FILE_NAME, lambda before: [*before, *out])
        await rig.kubelet.wait_for("example.com/other", {"a": "Unhealthy"}, 30)
        assert [*rig.kubelet.lists(RESOURCE)[-1]] == [*healthy("a")]
        await change(rig, "resources: {}")
        await rig.kubelet.wait_for(RESOURCE, {"a": "Unhealthy"}, 30)


async def test_a_glob_without_a_device_gives_a_warning_with_its_line(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A minute later, by the clock of the loop."""
    text = "resources:\n  example.com/widget: {filter: {ids: [no*]}}\n"
    async with proxied(short_dir, rules=rules(short_dir, text)) as rig:
        await rig.plugin(*healthy("a"))
        await rig.served(1)
        chain = rig.proxy.resources[RESOURCE].chain
        assert chain is not None
        filtered = chain.layers["filter"]
        late = asyncio.get_running_loop().time() + 61
        assert filtered._inner_tree is not None
        filtered.change(filtered._inner_tree, late)
        assert ":2:39: resources.example.com/widget.filter.ids[0]: 'no*' has fitted" in caplog.text


def connected(page: str) -> dict[str, float]:
    """Return the gauge of each plugin behind the proxy."""
    pattern = r"kubedevices_proxied_plugin_connected\{.*?resource=\"(.*?)\"\} (.*)"
    return {name: float(value) for name, value in re.findall(pattern, page)}


async def test_the_proxy_is_ready_when_every_resource_of_the_file_is_listed(
    short_dir: Path,
) -> None:
    """The pages say which plugin is missed, and what middleware has done for all plugins."""
    text = "resources:\n  example.com/widget: {share: {replicas: 2}}\n"
    async with proxied(short_dir, rules=rules(short_dir, text)) as rig:
        pages = PluginPages("127.0.0.1:0", None)
        await rig.plugin(*healthy("x"), resource="a.com/widget", socket_name="a.sock")
        await rig.served(1, "a.com/widget")
        assert not rig.proxy.is_ready
        assert rig.proxy.problems == [f"{RESOURCE}: its plugin is away"]
        plugin = await rig.plugin(*healthy("a"))
        served = await rig.served(2)
        await until(lambda: rig.proxy.is_ready)
        await allocate(served, "a::1")
        described = describe_plugin(rig.proxy)["resources"]
        assert {each["resource"]: each["registered"] for each in described} == {
            RESOURCE: True,
            "a.com/widget": True,
        }
        async with pages.beside(rig.proxy):
            told = pages.metrics.text().decode()
            assert 'event="allocated"' in told
            assert connected(told) == {RESOURCE: 1, "a.com/widget": 1}
            await plugin.stop()
            await until(lambda: not rig.proxy.connected[RESOURCE])
            assert connected(pages.metrics.text().decode()) == {RESOURCE: 0, "a.com/widget": 1}
            rig.proxy.rules.config = ProxyConfig(unlisted="hide")
            assert connected(pages.metrics.text().decode()) == {}
            rig.proxy.rules.config = ProxyConfig(resources={"b.com/never": ProxyRule()})
            told_now = connected(pages.metrics.text().decode())
            assert told_now == {"a.com/widget": 1, "b.com/never": 0, RESOURCE: 0}
        assert not lint(told)


async def test_a_dry_run_shows_both_sides(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the plugins that a proxy knows, by the rules of another file; nothing is served."""
    async with proxied(short_dir) as rig:
        await rig.plugin(*healthy("a", "bad"))
        await rig.served(2)
        file = short_dir.parent / "other.yaml"
        file.write_text(f"{EVERYTHING}    allocateWait: 1s\n    holdOverReboot: true\n")
        words = ["proxy", "--dry-run", "--config", str(file), "--state-dir", str(rig.state)]
        await until((rig.state / "proxy-sockets.json").exists)
        code = await asyncio.to_thread(main, [*words, "-o", "json"])
        rows = json.loads(capsys.readouterr().out)
        assert (code, {(each["plugin"], each["resource"], each["id"]) for each in rows}) == (
            0,
            {(RESOURCE, "new.com/my-widget", "a::0"), (RESOURCE, "new.com/my-widget", "a::1")},
        )
        assert len(rig.kubelet.requests) == 1
