"""Shares of any plugin's devices: listed, preferred, allocated, and changed without a restart."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.errors import RpcError, StatusCode, UsageError
from kubedevices.plugin.scanners import static
from kubedevices.rules.replicas import device_of
from kubedevices.rules.share import Shared, ShareOf, ShareRule
from kubedevices.testing import Bench
from tests.middleware_rig import scanned
from tests.waiting import until
from tests.widgets import Widgets, widgets


class Vendor(Widgets, kd.Allocator, kd.PreferredAllocator, kd.ContainerPreStarter):
    """Answers itself, notes what it hears, prefers the last devices, knows nothing of replicas."""

    def __init__(self, **types: list[kd.Device]) -> None:
        super().__init__(**types)
        self.heard: list[tuple[str, ...]] = []
        self.preference: Any = None
        self.may_answer: asyncio.Event | None = None
        self.refuses = False

    async def allocate(self, request: kd.AllocateRequest) -> kd.AllocateResponse:
        self.heard += [each.device_ids for each in request.containers]
        if self.may_answer is not None:
            await self.may_answer.wait()
        if self.refuses:
            raise OSError("no such card")
        return kd.AllocateResponse(
            [
                kd.ContainerAllocateResponse(env={"VISIBLE": ",".join(each.device_ids)})
                for each in request.containers
            ]
        )

    async def get_preferred_allocation(
        self, request: kd.PreferredAllocationRequest
    ) -> kd.PreferredAllocationResponse:
        (asked,) = request.containers
        if isinstance(self.preference, Exception):
            raise self.preference
        free = [each for each in asked.available if each not in asked.must_include]
        chosen = (*asked.must_include, *free[len(free) - asked.size + len(asked.must_include) :])
        answer = chosen if self.preference is None else self.preference
        return kd.PreferredAllocationResponse((answer,))

    async def pre_start_container(self, request: kd.PreStartContainerRequest) -> None:
        self.heard.append(request.device_ids)


async def test_replicas_have_the_health_of_their_device_at_once() -> None:
    """In one list."""
    plugin = Widgets(widget=widgets("w0", "w1"))
    async with scanned(Shared(plugin, replicas=2)) as served:
        assert served.ids() == ["w0::0", "w0::1", "w1::0", "w1::1"]
        plugin.show(widget=widgets("w0", "w1", unhealthy=("w1",)))
        now = (await served.next_tree()).devices("widget")
    assert [each.health for each in now.values()] == ["Healthy"] * 2 + ["Unhealthy"] * 2


async def test_replicas_of_devices_that_did_not_change_are_the_same_objects() -> None:
    """A list of many devices is quick; also if containers have some of them."""
    devices = widgets("w0", "w1")
    async with scanned(shared := Shared(Vendor(widget=devices), replicas=2)) as served:
        await served.allocate("w1::0")
        tree = kd.DeviceTree({"widget": devices})
        lists = [shared.change(tree, 0.0).devices("widget") for _ in range(2)]
    assert [*map(id, lists[0].values())] == [*map(id, lists[1].values())]


async def test_the_number_may_depend_on_the_id_and_on_the_type() -> None:
    """The first rule that fits counts; a type without a rule passes as it is, calls too."""
    rule = ShareRule(replicas=2, rules=(ShareOf("w1*", 3), ShareOf("w*", 1)))
    plugin = Vendor(widget=widgets("w0", "w10", "x"), gadget=widgets("g::1"))
    async with scanned(Shared(plugin, {"widget": rule})) as served:
        assert served.ids() == ["w0::0", "w10::0", "w10::1", "w10::2", "x::0", "x::1"]
        assert served.ids("gadget") == ["g::1"]
        await served.allocate("g::1", device_type="gadget")
        assert plugin.heard == [("g::1",)]
        assert await served.prefer("g::1", 1, device_type="gadget") == ["g::1"]


async def test_the_plugin_gets_each_real_id_once() -> None:
    """In every call; its answer is passed on."""
    plugin = Vendor(widget=widgets("w0", "w1"))
    async with scanned(shared := Shared(plugin, replicas=4)) as served:
        answer = await served.allocate("w1::0", "w0::3", "w1::2")
        assert answer.env == {"VISIBLE": "w1,w0"}
        await served.server().pre_start_container(kd.PreStartContainerRequest(("w0::3", "w0::1")))
    assert plugin.heard == [("w1", "w0"), ("w0",)]
    assert shared.counts["widget", "allocated"] == 1


async def test_a_plugin_with_the_default_answer_may_be_shared_too() -> None:
    """The device is in the answer once."""
    device = kd.Device("w0", paths=["/dev/w0"], env={"W": "0"})
    async with scanned(Shared(static(kd.DeviceTree({"widget": [device]})), replicas=2)) as served:
        answer = await served.allocate("w0::0", "w0::1")
    assert answer == kd.ContainerAllocateResponse(
        env={"W": "0"}, devices=[kd.DeviceSpec("/dev/w0")]
    )


@pytest.mark.parametrize(
    ("keys", "ids", "text"),
    [
        ({"per_container": 1}, ["w0::0", "w1::0"], "only one widget, not 2"),
        ({"distinct": True}, ["w0::0", "w0::1"], "w0::0, w0::1 are shares of one device"),
    ],
)
async def test_a_container_that_breaks_the_rule_is_refused(
    keys: dict[str, Any], ids: list[str], text: str
) -> None:
    """Before the plugin hears of it, and counted."""
    plugin = Vendor(widget=widgets("w0", "w1"))
    async with scanned(shared := Shared(plugin, replicas=2, **keys)) as served:
        with pytest.raises(RpcError, match=text) as caught:
            await served.allocate(*ids)
        await served.allocate(ids[0])
    assert caught.value.code is StatusCode.INVALID_ARGUMENT
    assert plugin.heard == [("w0",)]
    assert shared.counts["widget", "refused"] == 1


async def test_the_plugin_decides_among_equally_used_devices() -> None:
    """It is asked for devices, beside those that are chosen already."""
    plugin = Vendor(widget=widgets("w0", "w1", "w2"))
    all_free = "w0::0 w0::1 w1::0 w1::1 w2::0 w2::1"
    async with scanned(shared := Shared(plugin, replicas=2)) as served:
        assert await served.prefer(all_free, 1) == ["w2::0"]
        assert await served.prefer(all_free, 2, must="w0::1") == ["w0::1", "w2::0"]
        assert await served.prefer("w0::1 w1::0 w1::1 w2::1", 1) == ["w1::0"]  # no choice is left
        assert shared.counts["widget", "preference_ignored"] == 0
        for bad in (("w9",), ("w0", "w1"), OSError("no such card")):
            plugin.preference = bad
            assert await served.prefer(all_free, 1) == ["w0::0"]
        assert shared.counts["widget", "preference_ignored"] == 3
        plugin.preference = ()  # none at all is right
        assert await served.prefer(all_free, 1) == ["w0::0"]
        assert shared.counts["widget", "preference_ignored"] == 3
    assert shared.counts["widget", "preferred"] == 7


async def test_a_preference_is_offered_though_the_plugin_has_none() -> None:
    """Otherwise a kubelet would spread nothing."""
    async with scanned(Shared(Widgets(widget=widgets("w0", "w1")), replicas=2)) as served:
        assert served.server().options.get_preferred_allocation_available
        assert await served.prefer("w0::1 w1::0 w1::1", 1) == ["w1::0"]


async def test_fewer_replicas_take_none_away_from_a_container() -> None:
    """They stay until the kubelet calls them available, and are given to nobody else."""
    async with scanned(shared := Shared(Vendor(widget=widgets("w0", "w1")), replicas=4)) as served:
        await served.allocate("w0::2")
        await served.allocate("w0::3")
        shared.use(ShareRule(replicas=2))
        await served.next_tree()
        assert served.ids() == ["w0::2", "w0::3", "w1::0", "w1::1"]
        with pytest.raises(RpcError, match="non-existing device w0::0"):
            await served.allocate("w0::0")  # the kubelet has not read the new list yet
        await served.allocate("w0::3")  # a container may be started again
        assert await served.prefer("w0::3 w1::0", 1) == ["w1::0"]
        await served.next_tree()
        assert served.ids() == ["w0::0", "w0::2", "w1::0", "w1::1"]
        shared.use(ShareRule(replicas=3))
        await served.next_tree()
        assert served.ids() == ["w0::0", "w0::1", "w0::2", "w1::0", "w1::1", "w1::2"]
        shared.use(ShareRule(replicas=1))
        await served.next_tree()
        assert served.ids() == ["w0::2", "w1::0"]
        assert await served.prefer("w0::2 w1::0", 1) == ["w1::0"]
        await served.next_tree()
        assert served.ids() == ["w0::0", "w1::0"]


async def test_a_freed_replica_is_not_given_again_where_more_are_held_than_wanted() -> None:
    """One is wanted, three are held: the first that comes back is nobody's."""
    plugin = Vendor(widget=widgets("w0"))
    async with scanned(shared := Shared(plugin, replicas=3)) as served:
        for number in range(3):
            await served.allocate(f"w0::{number}")
        shared.use(ShareRule(replicas=1))
        assert shared.change(plugin.tree, 0.0) == served.tree  # the new rule is in force
        assert await served.prefer("w0::1", 1) == []
        assert [*(await served.next_tree()).devices("widget")] == ["w0::0", "w0::2"]
        with pytest.raises(RpcError, match="non-existing"):
            await served.allocate("w0::1")


async def test_a_replica_is_held_from_the_answer_of_the_plugin_on() -> None:
    """Also if the rule has changed by then; a container that the plugin refused holds nothing."""
    plugin = Vendor(widget=widgets("w0"))
    async with scanned(shared := Shared(plugin, replicas=4)) as served:
        plugin.refuses = True
        with pytest.raises(RpcError, match="no such card"):
            await served.allocate("w0::2")
        plugin.refuses, plugin.may_answer = False, asyncio.Event()
        call = asyncio.ensure_future(served.allocate("w0::3"))
        await until(lambda: len(plugin.heard) == 2)
        shared.use(ShareRule(replicas=2))
        await served.next_tree()
        assert served.ids() == ["w0::0", "w0::1"]
        plugin.may_answer.set()
        await call
        shared.look_again()
        await served.next_tree()
        assert served.ids() == ["w0::0", "w0::3"]


class Editor(Widgets, kd.PostAllocator):
    """Leaves Allocate to the framework; notes the devices of the answer that it may edit."""

    heard: tuple[str, ...] = ()

    async def post_allocate(
        self, response: kd.AllocateResponse, request: kd.AllocateRequest
    ) -> None:
        self.heard = request.containers[0].device_ids


async def test_the_ids_of_a_type_without_a_rule_stay_as_they_are() -> None:
    """In the request beside the framework's answer, too; shared devices have their own IDs."""
    plugin = Editor(widget=widgets("w0"), gadget=widgets("g::1"))
    async with scanned(Shared(plugin, {"widget": ShareRule(replicas=2)})) as served:
        await served.allocate("w0::1")
        assert plugin.heard == ("w0",)
        await served.allocate("g::1", device_type="gadget")
        assert plugin.heard == ("g::1",)


def test_a_share_rule_that_fits_no_device_is_warned_of() -> None:
    """After a minute: a device may come late."""
    tree = kd.DeviceTree({"widget": widgets("w0")})
    shared = Shared(Widgets(), ShareRule(rules=(ShareOf("x*", 2), ShareOf("w*", 2))))
    shared.change(tree, 0.0)
    shared.change(tree, 61.0)
    assert shared.counts["widget", "unused_globs"] == 1


async def test_limits_change_without_a_restart() -> None:
    """Of a server that is registered already."""
    async with scanned(shared := Shared(Vendor(widget=widgets("w0")), replicas=2)) as served:
        server = served.server()
        two = kd.AllocateRequest((kd.ContainerAllocateRequest(("w0::0", "w0::1")),))
        await server.allocate(two)
        shared.use(ShareRule(replicas=2, distinct=True))
        with pytest.raises(RpcError, match="shares of one device"):
            await server.allocate(two)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"replicas": 0}, "ShareRule.replicas: must be from 1 to 1000, not 0"),
        ({"replicas": 1001}, "not 1001"),
        ({"rules": ("*",)}, "rules: must be a ShareOf, not"),
        ({"per_container": 0}, "per_container: must be 1 or more, not 0"),
        ({"allocation": "best"}, "allocation: 'best' is not known, must be spread or pack"),
    ],
)
def test_a_rule_that_cannot_be_is_an_error(keys: dict[str, Any], text: str) -> None:
    """When it is made."""
    with pytest.raises(UsageError, match=text):
        ShareRule(**keys)


def test_the_line_of_the_start_says_what_is_shared() -> None:
    """For everything, or for each type."""
    plugin = Widgets()
    assert Shared(plugin, replicas=4, distinct=True).line() == (
        "shares devices 4 ways, different devices per container, spread"
    )
    rule = ShareRule(rules=(ShareOf("a*", 8),), per_container=1, allocation="pack")
    assert str(Shared(plugin, {"gpu": rule})) == (
        "shares gpu 1 ways, a* 8 ways, at most 1 per container, pack"
    )


REPLICAS = {"a": 1, "b": 2, "c": 8}
RESOURCE = "example.com/widget"


@pytest.mark.parametrize("keys", [{"distinct": True}, {"distinct": False}], ids=str)
def test_a_hundred_random_pods(keys: dict[str, Any]) -> None:
    """Never too many holders, never two shares of a device if that is forbidden, and each
    device that is given was used no more than those that were left; before anything comes back,
    no two devices that have room differ by more than one.
    """
    names = [f"{kind}{number}" for kind in REPLICAS for number in range(3)]
    rules = tuple(ShareOf(f"{kind}*", count) for kind, count in REPLICAS.items())
    shared = Shared(Vendor(widget=widgets(*names)), ShareRule(rules=rules, **keys))
    dice, used, pods = random.Random(5), Counter[str](), dict[str, tuple[str, ...]]()
    with Bench() as bench:
        bench.start(shared, domain="example.com")
        bench.wait_for(RESOURCE, allocatable=33)
        for number in range(100):
            has_come_back = number > 25
            while has_come_back and pods and (dice.random() < 0.4 or used.total() > 27):
                gone = dice.choice([*pods])
                used.subtract(map(device_of, pods.pop(gone)))
                bench.release(gone)
            pod, size = f"pod{number}", dice.randint(1, 3)
            room = {each for each in names if used[each] < REPLICAS[each[0]]}
            if keys["distinct"] and len(room) < size:
                with pytest.raises(kd.KubedevicesError, match=r"shares of one|unavailable"):
                    bench.allocate(pod, "main", {RESOURCE: size})
                continue
            if used.total() + size > 33:
                continue
            pods[pod] = bench.allocate(pod, "main", {RESOURCE: size}).devices
            given = Counter(map(device_of, pods[pod]))
            left = min((used[each] for each in room - given.keys()), default=99)
            if len(room) >= size:
                assert max(given.values()) == 1
                assert max(used[each] for each in given) <= left
            used += given
            assert all(used[each] <= REPLICAS[each[0]] for each in names)
            if not has_come_back:
                room = {each for each in names if used[each] < REPLICAS[each[0]]}
                assert max(used.values()) - min((used[each] for each in room), default=99) <= 1
    assert len({each for ids in pods.values() for each in ids}) == used.total()


async def test_replicas_of_devices_that_have_gone_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plugin whose devices have new names after each restart would fill the memory."""
    monkeypatch.setattr("kubedevices.rules.share._MOST_HELD", 3)
    plugin = Vendor(widget=widgets("first"))
    scanner, most = kd.Shared(plugin, replicas=2), 0
    async with scanned(scanner) as served:
        for number in range(10):
            plugin.show(widget=widgets(f"a{number}", f"b{number}"))
            await served.next_tree()
            await served.allocate(f"a{number}::0", f"b{number}::0")
            most = max(most, len(scanner._held["widget"]))
    assert most == 4
