"""What the proxy says of itself, and what becomes of whoever asks in vain."""

import json
import socket as sockets
from pathlib import Path
from typing import Any

import pytest

from kubedevices.kubelet_api import proxy_client
from kubedevices.kubelet_api.proxy_client import ask_proxy
from kubedevices.proxy.live_rules import LiveRules
from kubedevices.proxy.proxy_config import ProxyConfig, ProxyRule
from kubedevices.proxy.state_service import serving_state
from kubedevices.rules.cordon import FILE_NAME
from kubedevices.rules.health_gate import Check
from kubedevices.rules.health_rule import HealthRule
from kubedevices.rules.share import ShareRule
from kubedevices.values.proxied_plugin import ProxiedPlugin, UnhealthyDevice
from kubedevices.values.socket_paths import PROXY_SOCKET_NAME
from tests.fake_plugin import RESOURCE, healthy, unhealthy
from tests.proxy_answers import PLUGIN, start_answering
from tests.proxy_rig import proxied, ruled
from tests.waiting import until

OUTSIDE = "example.org/shared"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still must not look like a proxy that is stuck."""
    monkeypatch.setattr(proxy_client, "DEADLINE", 30.0)


async def test_the_state_has_both_sides(short_dir: Path) -> None:
    """The plugin and its devices, the rules in words, what the kubelet gets, what is cordoned."""
    cordoned = [
        {"resource": name, "id": "a", "reason": "fan", "since": "2026-01-01T00:00:00Z"}
        for name in (OUTSIDE, "example.org/another")
    ]
    (short_dir / "state").mkdir()
    (short_dir / "state" / FILE_NAME).write_text(json.dumps({"version": 1, "devices": cordoned}))
    (short_dir / "state" / FILE_NAME).chmod(0o600)
    rules = ruled(rename=OUTSIDE, share=ShareRule(replicas=2), hold=600.0)
    async with proxied(short_dir, rules=rules) as rig:
        plugin = await rig.plugin(*healthy("a", "b"), *unhealthy("c"))
        await rig.served(6, OUTSIDE)
        (told,) = await ask_proxy(rig.state / PROXY_SOCKET_NAME)
        assert told[:5] == (RESOURCE, str(plugin.socket), True, 2, 1)
        assert told.outside == ((OUTSIDE, 2, 4),)
        assert told.cordoned == ((OUTSIDE, "a", "fan"),)
        assert told.reasons == ()  # `c` is Unhealthy by its plugin, `a` is in `cordoned`
        assert [line.partition(" ")[0] for line in told.rules] == ["calls", "shares", "hold:"]
        scanner = rig.proxy.inside.scanners[RESOURCE]
        await plugin.stop()
        await until(lambda: not scanner.is_here)
        (away,) = await ask_proxy(rig.state / PROXY_SOCKET_NAME)
        assert (away.is_here, away.socket, away.outside) == (False, "", told.outside)
    assert not (short_dir / "state" / PROXY_SOCKET_NAME).exists()


async def test_the_state_says_which_rule_makes_devices_unhealthy(short_dir: Path) -> None:
    """The names are those that the kubelet knows."""
    check = Check(file=f"{short_dir}/none", interval=0.1, fail_after=1)
    rules = ruled(rename=OUTSIDE, health=HealthRule(checks=(check,)))
    async with proxied(short_dir, rules=rules) as rig:
        await rig.plugin(*healthy("a"))
        await rig.served(1, OUTSIDE)
        told = ProxiedPlugin("", "", False, 0, 0)
        while not told.reasons:
            (told,) = await ask_proxy(rig.state / PROXY_SOCKET_NAME)
        why = f"{short_dir}/none: No such file or directory"
        assert told.reasons == (UnhealthyDevice(OUTSIDE, "a", why),)


def test_a_proxy_of_an_older_version_gives_no_reasons() -> None:
    """The rest of its answer is read."""
    document = PLUGIN.as_dict()
    assert ProxiedPlugin.from_dict(document) == PLUGIN
    del document["reasons"]
    assert ProxiedPlugin.from_dict(document) == PLUGIN._replace(reasons=())


async def test_a_hidden_resource_is_reported_as_hidden(short_dir: Path) -> None:
    """With nothing outside."""
    config = ProxyConfig(resources={"example.org/*": ProxyRule()}, unlisted="hide")
    async with proxied(short_dir, rules=LiveRules(config)) as rig:
        await rig.plugin(*healthy("a"))
        await until(lambda: rig.proxy.inside.scanners[RESOURCE].is_here)
        (told,) = await ask_proxy(rig.state / PROXY_SOCKET_NAME)
        assert (told.rules, told.outside) == (("hidden from the kubelet",), ())


async def test_a_proxy_serves_where_it_cannot_be_asked(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A directory too long for a socket's path costs the answers only."""
    async with serving_state(short_dir / ("d" * 120), {}, lambda _: None):
        assert "cannot ask this proxy" in caplog.text


async def test_without_a_proxy_the_answer_is_empty(short_dir: Path) -> None:
    """No file, no socket, no directory, and a socket that nobody listens on."""
    (short_dir / "file").touch()
    with sockets.socket(sockets.AF_UNIX) as left:
        left.bind(str(short_dir / "left"))
    for name in ("none", "file", "file/none", "left", "d" * 200):
        assert await ask_proxy(short_dir / name) == ()


async def test_a_stuck_proxy_is_no_answer(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts and says nothing: the deadline ends the question."""
    monkeypatch.setattr(proxy_client, "DEADLINE", 0.05)
    with sockets.socket(sockets.AF_UNIX) as stuck:
        stuck.bind(str(short_dir / "stuck"))
        stuck.listen()
        assert await ask_proxy(short_dir / "stuck") == ()


@pytest.mark.parametrize(
    "change",
    [
        {"healthy": True},
        {"healthy": "1"},
        {"rules": "text"},
        {"rules": [1]},
        {"outside": [[]]},
        {"outside": {}},
        {"cordoned": [{"resource": "a"}]},
        {"socket": None},
        {"resource": "\ud800"},
    ],
    ids=str,
)
async def test_nonsense_is_no_answer(short_dir: Path, change: dict[str, Any]) -> None:
    """Whoever listens there may say anything; what is as it should be is read."""
    plugins = [PLUGIN.as_dict()]
    server = await start_answering(short_dir / "s", plugins)
    assert await ask_proxy(short_dir / "s") == (PLUGIN,)
    plugins.append(PLUGIN.as_dict() | change)
    assert await ask_proxy(short_dir / "s") == ()
    await server.stop()
