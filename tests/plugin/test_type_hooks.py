"""What a plugin is told of its device types: that they come and go."""

import asyncio
import logging
from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.errors import HookFailed
from tests.fake_kubelet import FakeKubelet
from tests.waiting import until
from tests.widgets import DOMAIN, QUICK, RESOURCE, Widgets, healthy, widgets


class Told(Widgets, kd.TypeStarter, kd.TypeStopper):
    """Writes down what it is told, and whether its sockets are there meanwhile."""

    def __init__(self, directory: Path, **types: list[kd.Device]) -> None:
        super().__init__(**types)
        self.told: list[tuple[str, str, bool]] = []
        self._directory = directory

    def on_type_added(self, device_type: str) -> None:
        self.told.append(("added", device_type, self._is_served(device_type)))

    async def on_type_removed(self, device_type: str) -> None:
        self.told.append(("removed", device_type, self._is_served(device_type)))

    def _is_served(self, device_type: str) -> bool:
        return (self._directory / f"{DOMAIN}-{device_type}.sock").exists()


async def test_type_hooks_run_before_and_after_serving(kubelet: FakeKubelet) -> None:
    """By thread or on the loop; updates, and restarts of the kubelet, are no news."""
    plugin = Told(kubelet.socket_dir, widget=widgets("w1"), gadget=widgets("g1"))
    async with kd.serve(plugin, domain=DOMAIN, socket_dir=kubelet.socket_dir, timing=QUICK):
        await kubelet.wait_for(RESOURCE, healthy("w1"))
        await kubelet.wait_for("example.com/gadget", healthy("g1"))
        plugin.show(widget=widgets("w1", "w2"), gadget=widgets("g1"))
        await kubelet.wait_for(RESOURCE, healthy("w1", "w2"))
        assert sorted(plugin.told) == [("added", "gadget", False), ("added", "widget", False)]
        plugin.show(widget=widgets("w1"))
        await until(lambda: len(plugin.told) == 3)
        assert plugin.told[2] == ("removed", "gadget", False)
        plugin.show(widget=widgets("w1"), gadget=widgets("g1"))
        await until(lambda: len(plugin.told) == 4)
        assert plugin.told[3] == ("added", "gadget", False)
    assert sorted(plugin.told[4:]) == [
        ("removed", "gadget", False),
        ("removed", "widget", False),
    ]


class Unready(Widgets, kd.TypeStarter):
    """Cannot make its types ready, the first few times."""

    failures = 1

    def on_type_added(self, device_type: str) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(f"no driver for {device_type}")


async def test_a_failing_type_starter_ends_the_plugin(short_dir: Path) -> None:
    """With the name of the method and what it raised."""
    runner = kd.PluginRunner(Unready(widget=widgets("w1")), domain=DOMAIN, socket_dir=short_dir)
    with pytest.raises(HookFailed) as raised:
        await asyncio.wait_for(runner.run(), 10)
    text = "Unready.on_type_added() failed: OSError: no driver for widget (test_type_hooks.py:"
    assert str(raised.value).startswith(text)
    assert not [*short_dir.iterdir()]


async def test_an_isolated_type_is_started_again(kubelet: FakeKubelet) -> None:
    """Until it works."""
    plugin = Unready(widget=widgets("w1"))
    plugin.failures = 2
    async with kd.serve(
        plugin,
        domain=DOMAIN,
        socket_dir=kubelet.socket_dir,
        timing=QUICK,
        on_server_error="isolate",
    ):
        await kubelet.wait_for(RESOURCE, healthy("w1"))
    assert plugin.failures == 0


class Clinging(Widgets, kd.TypeStopper):
    """Fails to let go, or never comes back."""

    def __init__(self, *, hangs: bool) -> None:
        super().__init__(widget=widgets("w1"))
        self._hangs = hangs

    async def on_type_removed(self, device_type: str) -> None:
        if self._hangs:
            await asyncio.Event().wait()
        raise RuntimeError(f"{device_type} clings")


@pytest.mark.parametrize(
    ("hangs", "reason"),
    [(False, "failed: RuntimeError: widget clings"), (True, "has not returned after 0.5 s")],
)
async def test_the_plugin_ends_although_its_type_stopper_fails_or_hangs(
    kubelet: FakeKubelet, caplog: pytest.LogCaptureFixture, hangs: bool, reason: str
) -> None:
    """The log says why, and the plugin ends all the same."""
    caplog.set_level(logging.WARNING)
    async with asyncio.timeout(20):
        plugin = Clinging(hangs=hangs)
        async with kd.serve(plugin, domain=DOMAIN, socket_dir=kubelet.socket_dir, timing=QUICK):
            await kubelet.wait_for(RESOURCE, healthy("w1"))
    (said,) = [each.getMessage() for each in caplog.records if "on_type" in each.getMessage()]
    assert f"Clinging.on_type_removed() {reason}" in said
