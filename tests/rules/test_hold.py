"""The list of a plugin that is away stays for a while, and calls wait for its return."""

import asyncio
import logging

import pytest

import kubedevices as kd
from kubedevices.errors import CannotAsk, PluginAway, RpcError, StatusCode
from kubedevices.rules import hold
from kubedevices.rules.hold import Held, Holders
from kubedevices.rules.hold_rule import HoldRule
from kubedevices.rules.presence import Presence
from tests.middleware_rig import Scanned, scanned
from tests.waiting import until
from tests.widgets import Widgets, widgets

LONG = HoldRule(hold=3600.0, allocate_wait=3600.0)
REQUEST = kd.AllocateRequest((kd.ContainerAllocateRequest(("a",)),))


def holders(*ids: str) -> Holders:
    async def ask() -> set[tuple[str, str]]:
        return {("widget", each) for each in ids}

    return ask


class Plugin(Widgets, kd.Allocator, kd.PreferredAllocator):
    """Speaks for a plugin that comes and goes; its answers name the device."""

    def __init__(self, *ids: str) -> None:
        super().__init__(**({"widget": widgets(*ids)} if ids else {}))
        self.presence = Presence(is_away=not ids)
        self.falls: list[bool] = []
        self.asked = 0

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
        self.show(**{name: [*self.tree.devices(name).values()] for name in self.tree})

    def come(self, *ids: str) -> None:
        self.presence.arrive()
        self.show(widget=widgets(*ids))


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
    async with scanned(held := Held(plugin, LONG)) as served:
        plugin.leave()
        await until(lambda: held.counts)  # the absence is known while it lasts
        call = asyncio.ensure_future(served.allocate("a"))
        assert await served.prefer("a b", 1) == []
        assert plugin.asked == 0
        plugin.come("a", "b", "c")
        assert (await call).env == {"IDS": "a"}
        assert health(await served.next_tree()) == "aH bH cH"
        assert await served.prefer("a b", 1) == ["a"]
    assert held.counts == {("", "absences"): 1, ("widget", "waited"): 1}


async def test_after_hold_the_devices_are_unhealthy_until_the_plugin_is_back() -> None:
    """After `hold`, calls fail at once and say what to look at."""
    plugin = Plugin("a", "b")
    rule = HoldRule(hold=0.05, allocate_wait=3600.0)
    held = Held(plugin, rule, domain="example.com", holders=holders("a"))
    async with scanned(held) as served:
        plugin.leave()
        away = await served.next_tree()
        assert health(away) == "aU bU"
        assert {each.reason for each in away.devices("widget").values()} == {"its plugin is away"}
        said = await refused(served)
        assert "the plugin of example.com/widget has been away" in said
        assert "(allocateWait): look at its pod and its log" in said
        plugin.come("a", "b")
        assert health(await served.next_tree()) == "aH bH"
        assert (await served.allocate("a")).env == {"IDS": "a"}


async def test_when_calls_wait_no_longer_only_devices_that_pods_hold_stay_healthy() -> None:
    """The scheduler sends no pod that would fail; capacity and running pods keep their devices."""
    plugin = Plugin("a", "b", "c")
    held = Held(plugin, HoldRule(hold=3600.0, allocate_wait=0.02), holders=holders("b"))
    async with scanned(held) as served:
        plugin.leave()
        assert health(await served.next_tree()) == "aU bH cU"
        assert "waited 0.0 s" in await refused(served)
        plugin.come("a", "b", "c")
        assert health(await served.next_tree()) == "aH bH cH"
    assert held.counts["widget", "refused"] == 1


async def test_a_device_that_its_pod_gives_back_during_an_absence_turns_unhealthy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What pods hold is asked again while the plugin is away."""
    monkeypatch.setattr(hold, "_ASK_AGAIN", 0.01)
    in_use = {("widget", "b")}

    async def ask() -> set[tuple[str, str]]:
        return in_use.copy()

    plugin = Plugin("a", "b")
    rule = HoldRule(hold=3600.0, allocate_wait=0.0)
    async with scanned(Held(plugin, rule, holders=ask)) as served:
        plugin.leave()
        assert health(await served.next_tree()) == "aU bH"
        in_use.clear()
        assert health(await served.next_tree()) == "aU bU"


async def test_each_absence_begins_with_a_new_question_what_pods_hold(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Pods have changed since the absence before: its answer says nothing about this one."""
    caplog.set_level(logging.INFO)
    in_use, may_answer = {("widget", "a")}, asyncio.Event()

    async def ask() -> set[tuple[str, str]]:
        await may_answer.wait()
        return in_use.copy()

    plugin = Plugin("a", "b")
    held = Held(plugin, HoldRule(hold=3600.0, allocate_wait=0.0), holders=ask)
    async with scanned(held) as served:
        may_answer.set()
        plugin.leave()
        assert health(await served.next_tree()) == "aH bU"
        plugin.come("a", "b")
        assert health(await served.next_tree()) == "aH bH"
        await until(lambda: "the plugin is back" in caplog.text)
        may_answer.clear()
        plugin.leave()
        await until(lambda: held.counts["", "absences"] == 2)
        following = asyncio.ensure_future(served.next_tree())
        held.look_again()
        for _ in range(9):
            await asyncio.sleep(0)
        in_use = {("widget", "b")}
        may_answer.set()
        assert health(await following) == "aU bH", "the list stayed until the answer"


@pytest.mark.parametrize("is_asked", [False, True])
async def test_all_devices_turn_unhealthy_if_nobody_knows_what_pods_hold(
    is_asked: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an answer of the kubelet, a free device must not look healthy; the log says why,
    once.
    """
    monkeypatch.setattr(hold, "_ASK_AGAIN", 0.001)
    asked = 0

    async def ask() -> set[tuple[str, str]]:
        nonlocal asked
        asked += 1
        raise CannotAsk("no kubelet answers")

    plugin = Plugin("a", "b")
    rule = HoldRule(hold=3600.0, allocate_wait=0.0)
    async with scanned(Held(plugin, rule, holders=ask if is_asked else None)) as served:
        plugin.leave()
        assert health(await served.next_tree()) == "aU bU"
        await until(lambda: not is_asked or asked > 2)
    assert caplog.text.count("no kubelet answers") == is_asked


async def test_without_hold_the_resource_is_withdrawn_and_calls_fail_at_once() -> None:
    """A rule without `hold` passes the end of the plugin on, as a kubelet sees it."""
    plugin = Plugin("a")
    async with scanned(Held(plugin)) as served:
        plugin.leave()
        assert [*await served.next_tree()] == []
        with pytest.raises(RpcError, match="is away"):
            await served.server().allocate(REQUEST)
        plugin.come("a")
        assert health(await served.next_tree()) == "aH"


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


async def test_a_call_under_a_rule_without_hold_does_not_wait_any_more() -> None:
    """The plugin left during the call; its own error is the answer."""
    plugin = Plugin("a")
    async with scanned(held := Held(plugin, LONG)) as served:
        plugin.falls = [True]
        call = asyncio.ensure_future(served.allocate("a"))
        await until(lambda: plugin.asked == 1)
        held.use(HoldRule())
        plugin.leave()
        with pytest.raises(RpcError, match="is away"):
            await call
    assert not held.counts["widget", "refused"]


async def test_a_rule_can_change_while_the_plugin_is_away() -> None:
    """A shorter hold ends at once, and a rule without hold withdraws the resource."""
    plugin = Plugin("a")
    async with scanned(held := Held(plugin, LONG)) as served:
        plugin.leave()
        held.use(HoldRule(hold=0.0))
        assert health(await served.next_tree()) == "aU"
        held.use(HoldRule())
        assert [*await served.next_tree()] == []
        held.use(LONG)
        assert health(await served.next_tree()) == "aH"


async def test_a_new_chain_over_a_plugin_that_is_away_offers_its_list() -> None:
    """The absence and the list belong to the plugin's scanner, not to the rules over it."""
    plugin = Plugin("a")
    async with scanned(Held(plugin, LONG)):
        plugin.leave()
    async with scanned(Held(plugin, HoldRule(hold=1800.0))) as served:
        assert health(served.tree) == "aH"


async def test_a_scanner_without_presence_is_never_away() -> None:
    """The same objects."""
    scanner = Widgets(widget=widgets("a"))
    async with scanned(Held(scanner, LONG)) as served:
        assert served.tree.devices("widget")["a"] is scanner.tree.devices("widget")["a"]
