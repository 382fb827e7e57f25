"""One resource of the proxy on its way to the kubelet."""

import asyncio
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kubedevices.plugin import supervised_tasks
from kubedevices.proxy import proxied_resource
from kubedevices.proxy.plugin_scanner import PluginScanner
from kubedevices.proxy.proxied_resource import ProxiedResource
from kubedevices.proxy.proxy_config import ProxyConfig
from kubedevices.values.resource_name import ResourceName
from tests.fake_plugin import RESOURCE, healthy
from tests.proxy_rig import proxied, ruled
from tests.turns import Turns
from tests.waiting import until

PROGRAM = """\
import sys
sys.modules["h11"] = None
import kubedevices.proxy.proxy
print(*[name for name in sys.modules if name.startswith("kubedevices.dra.")])
"""


def test_a_proxy_of_device_plugins_needs_nothing_of_a_driver() -> None:
    """A driver is half of the memory of a proxy, and needs a package that may be missing."""
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("kubedevices.dra.names\n", "")


async def test_a_change_before_the_start_makes_no_second_chain() -> None:
    """Each chain of a served resource costs a registration at the kubelet."""
    scanner, made = PluginScanner(ResourceName.parse(RESOURCE)), list[PluginScanner]()
    resource = ProxiedResource(scanner, made.append, {})
    resource.must_rebuild.set()
    running = asyncio.create_task(resource.run())
    async with Turns() as turns:
        await until(lambda: turns.count > 20)
    running.cancel()
    await asyncio.wait({running})
    assert made == [scanner]


async def test_devices_leave_dra_with_their_chain() -> None:
    """When a rule hides the resource, and when the resource is served no more."""
    forgotten = list[PluginScanner]()
    bridge: Any = SimpleNamespace(forget=forgotten.append)
    scanner = PluginScanner(ResourceName.parse(RESOURCE))
    running = asyncio.create_task(ProxiedResource(scanner, lambda _: None, {}, bridge).run())
    await until(lambda: forgotten, 20)
    running.cancel()
    await asyncio.wait({running})
    assert forgotten == [scanner] * 2


async def test_a_change_of_the_rules_ends_the_pause_after_an_error(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator who frees a name outside does not wait for the next attempt."""
    monkeypatch.setattr(supervised_tasks, "back_off", lambda *_: 3600.0)
    second = "example.com/gadget"
    async with proxied(short_dir, rules=ruled(rename="new.com/card")) as rig:
        await rig.plugin(*healthy("a"))
        await rig.served(1, "new.com/card")
        await rig.plugin(*healthy("x", "y"), resource=second, socket_name="b.sock")
        await until(lambda: any("already the outside name" in each for each in rig.proxy.problems))
        rig.proxy.rules.config = ProxyConfig()
        rig.proxy.rules.changed()
        await rig.served(2, second)


async def test_a_resource_that_a_rule_hides_has_no_runner(short_dir: Path) -> None:
    """A runner that has ended would keep the proxy from being ready."""
    async with proxied(short_dir) as rig:
        await rig.plugin(*healthy("a"))
        await rig.served(1)
        rig.proxy.rules.config = ProxyConfig(unlisted="hide")
        rig.proxy.rules.changed()
        await until(lambda: not rig.proxy.runners, 20)
        assert rig.proxy.is_ready


class SlowRunner:
    """A runner that has been stopped and still waits for the end of a call."""

    def __init__(self, *_: object, **__: object) -> None:
        self.is_stopped, self.may_end = asyncio.Event(), asyncio.Event()
        self.stop = self.is_stopped.set

    async def run(self) -> None:
        await self.may_end.wait()


async def test_a_runner_that_ends_can_still_be_asked_to_remove_its_sockets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A proxy that is told to stop at once waits for no call, but leaves no socket behind."""
    monkeypatch.setattr(proxied_resource, "PluginRunner", SlowRunner)
    chain: Any = SimpleNamespace(layers={}, scanner=None, domain="example.com")
    resource = ProxiedResource(PluginScanner(ResourceName.parse(RESOURCE)), lambda _: chain, {})
    running = asyncio.create_task(resource.run())
    await until(lambda: resource.runner)
    runner: Any = resource.runner
    running.cancel()
    await until(runner.is_stopped.is_set)
    assert resource.runner
    runner.may_end.set()
    await asyncio.wait({running})
    assert resource.runner is None
