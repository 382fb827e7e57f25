"""The list of a plugin that is away stays for a while, and calls wait for its return."""

import asyncio
from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.allocation import PluginOptions
from kubedevices.errors import PluginAway, RpcError, StatusCode, UsageError
from kubedevices.middleware.absence import HoldRule
from kubedevices.middleware.hold import Held
from kubedevices.middleware.presence import Presence
from tests.middleware_rig import Scanned, scanned
from tests.waiting import until
from tests.widgets import Widgets, widgets

LONG = HoldRule(hold=3600.0, allocate_wait=3600.0)


class Plugin(Widgets, kd.Allocator, kd.PreferredAllocator):
    """Speaks for a plugin that comes and goes; its answers name the device."""

    def __init__(self, *ids: str) -> None:
        super().__init__(**({"widget": widgets(*ids)} if ids else {}))
        self.presence = Presence(is_away=not ids)
        self.options = PluginOptions()
        self.falls: list[bool] = []
        self.asked = 0

    async def scan(self, notifier: kd.Notifier) -> None:
        if self.presence.is_away:  # nothing to report
            self.notifier = notifier
            await notifier.wait_stopped()
        else:
            await super().scan(notifier)

    async def allocate(self, request: kd.AllocateRequest) -> kd.AllocateResponse:
        self.asked += 1
        if self.presence.is_away or (self.falls and self.falls.pop()):
            raise PluginAway("example.com/widget", "Allocate")
        env = {"IDS": " ".join(request.containers[0].device_ids)}
        return kd.AllocateResponse([kd.ContainerAllocateResponse(env=env)])

    async def get_preferred_allocation(
        self, request: kd.PreferredAllocationRequest
    ) -> kd.PreferredAllocationResponse:
        return kd.PreferredAllocationResponse(tuple(c.available[: c.size] for c in request[0]))

    def leave(self) -> None:
        self.presence.leave()
        self.show()

    def come(self, *ids: str) -> None:
        self.show(widget=widgets(*ids))
        self.presence.arrive()


def health(tree: kd.DeviceTree) -> str:
    return " ".join(f"{each.id}{each.health[0]}" for each in tree.devices("widget").values())


async def refused(served: Scanned) -> str:
    with pytest.raises(RpcError) as caught:
        await served.allocate("a")
    assert caught.value.code is StatusCode.UNAVAILABLE
    return caught.value.message


async def test_a_kubelet_does_not_see_a_restart_of_the_plugin() -> None:
    """No list without devices, no refusal; later changes arrive."""
    plugin = Plugin("a", "b")
    held = Held(plugin, LONG)
    async with scanned(held) as served:
        plugin.leave()
        call = asyncio.ensure_future(served.allocate("a"))
        await until(lambda: held.absence.since is not None)
        assert await served.prefer("a b", 1) == []
        assert plugin.asked == 0
        plugin.come("a", "b", "c")
        assert (await call).env == {"IDS": "a"}
        assert health(await served.next_tree()) == "aH bH cH"
        assert await served.prefer("a b", 1) == ["a"]
    assert held.counts == {("", "absences"): 1, ("widget", "waited"): 1}


async def test_after_hold_the_devices_are_unhealthy_until_the_plugin_is_back() -> None:
    """Then calls fail at once, and say what to look at."""
    plugin = Plugin("a", "b")
    held = Held(plugin, HoldRule(hold=0.05, allocate_wait=3600.0), domain="example.com")
    async with scanned(held) as served:
        plugin.leave()
        assert health(await served.next_tree()) == "aU bU"
        said = await refused(served)
        assert "the plugin of example.com/widget has been away" in said
        assert "(allocateWait): look at its pod and its log" in said
        plugin.come("a", "b")
        assert health(await served.next_tree()) == "aH bH"
        assert (await served.allocate("a")).env == {"IDS": "a"}


async def test_without_hold_the_devices_are_unhealthy_at_once() -> None:
    """As a kubelet has it; but the resource stays."""
    plugin = Plugin("a")
    async with scanned(Held(plugin)) as served:
        plugin.leave()
        assert health(await served.next_tree()) == "aU"


async def test_a_used_up_time_limit_is_used_up_for_all_calls() -> None:
    """The second call does not even begin to wait."""
    plugin = Plugin("a")
    held = Held(plugin, HoldRule(hold=3600.0, allocate_wait=0.02))
    async with scanned(held) as served:
        plugin.leave()
        await refused(served)
        assert "waited 0.0 s" in await refused(served)
    assert held.counts["widget", "refused"] == 2


async def test_a_plugin_that_leaves_during_a_call_gets_the_call_again() -> None:
    """Once: a plugin that dies of each Allocate does not hang the node."""
    plugin = Plugin("a")
    async with scanned(Held(plugin, LONG)) as served:
        plugin.falls = [True]
        call = asyncio.ensure_future(served.allocate("a"))
        await until(lambda: plugin.asked == 1)
        plugin.leave()
        plugin.come("a")
        assert (await call).env == {"IDS": "a"}
        plugin.falls = [True, True]
        call = asyncio.ensure_future(served.allocate("a"))
        await until(lambda: plugin.asked == 3)
        plugin.leave()
        plugin.come("a")
        with pytest.raises(RpcError, match="is away"):
            await call
        assert plugin.asked == 4


async def test_a_rule_can_change_while_the_plugin_is_away() -> None:
    """A shorter hold ends at once."""
    plugin = Plugin("a")
    held = Held(plugin, LONG)
    async with scanned(held) as served:
        plugin.leave()
        await until(lambda: held.absence.since is not None)
        held.use(HoldRule())
        assert health(await served.next_tree()) == "aU"


async def test_the_list_is_offered_before_the_plugin_is_back(tmp_path: Path) -> None:
    """After a reboot, with the options that the plugin had, in its order."""
    rule = HoldRule(hold=3600.0, allocate_wait=3600.0, over_reboot=True)
    state = tmp_path / "state"
    file = state / "lists/example.com_widget.json"
    first = Plugin("b", "a")
    async with scanned(Held(first, rule, domain="example.com", state_dir=state)):
        await until(file.exists)
    second = Plugin()
    async with scanned(Held(second, rule, domain="example.com", state_dir=state)) as served:
        assert served.tree == kd.DeviceTree(
            {"widget": [kd.Device("b", numa_nodes=()), kd.Device("a", numa_nodes=())]}
        )
        assert second.options == PluginOptions(False, True)
        call = asyncio.ensure_future(served.allocate("a"))
        second.come("a")
        assert (await call).env == {"IDS": "a"}
        assert health(await served.next_tree()) == "aH"


async def test_the_list_of_a_plugin_that_never_returned_is_saved_as_unhealthy(
    tmp_path: Path,
) -> None:
    """Else each boot would offer, for some time, devices that were removed long ago."""
    rule = HoldRule(hold=0.05, over_reboot=True)
    file = tmp_path / "lists/example.com_widget.json"
    plugin = Plugin("a")
    async with scanned(Held(plugin, rule, domain="example.com", state_dir=tmp_path)):
        await until(file.exists)
        plugin.leave()
        await until(lambda: "Unhealthy" in file.read_text())


async def test_a_scanner_without_presence_is_never_away() -> None:
    """The same objects."""
    scanner = Widgets(widget=widgets("a"))
    held = Held(scanner, LONG)
    async with scanned(held) as served:
        assert served.tree.devices("widget")["a"] is scanner.tree.devices("widget")["a"]


def test_hold_over_reboot_needs_a_domain_and_a_state_directory() -> None:
    """And a name."""
    with pytest.raises(UsageError, match="a domain and a state directory"):
        Held(Widgets(), HoldRule(over_reboot=True))
