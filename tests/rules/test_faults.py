"""A plugin that is broken on purpose, just as it is told."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.errors import AllocationRefused, RpcError, StatusCode, UsageError
from kubedevices.plugin.hooks import Hooks
from kubedevices.rules.faults import FaultRule, Faulty, HealthChange, PreStart
from kubedevices.rules.step_control import list_simulated, tell
from tests.middleware_rig import scanned
from tests.waiting import until
from tests.widgets import Widgets, widgets


class Plugin(Widgets, kd.Allocator):
    """Knows its devices, and counts what it was asked."""

    def __init__(self) -> None:
        super().__init__(widget=widgets("a", "b"))
        self.asked = 0

    async def allocate(self, request: kd.AllocateRequest) -> kd.AllocateResponse:
        if unknown := set(request.containers[0].device_ids) - {"a", "b"}:
            raise AllocationRefused(unknown.pop(), StatusCode.NOT_FOUND)
        self.asked += 1
        return kd.AllocateResponse([kd.ContainerAllocateResponse(env={"A": str(self.asked)})])


def hooks(faulty: Faulty) -> Hooks:
    return Hooks(faulty.abilities_of("widget"))


def ask(*ids: str) -> kd.AllocateRequest:
    return kd.AllocateRequest((kd.ContainerAllocateRequest(ids),))


def sick(tree: kd.DeviceTree) -> str:
    return " ".join(each.id for each in tree.devices("widget").values() if not each.is_healthy)


@pytest.mark.parametrize("wrong_ids", [False, True])
@pytest.mark.parametrize("pre_start", [None, PreStart()])
def test_only_abilities_with_faults_are_offered(
    *, wrong_ids: bool, pre_start: PreStart | None
) -> None:
    """A kubelet makes only the calls that a plugin offers."""
    rule = FaultRule(wrong_ids=wrong_ids, pre_start=pre_start)
    options = hooks(Faulty(Plugin(), rule)).options
    assert options[:2] == (pre_start is not None, wrong_ids)


@pytest.mark.parametrize("rule", [FaultRule(), PreStart()])
def test_a_rule_without_keys_causes_no_fault(rule: FaultRule | PreStart) -> None:
    """Nothing is late, nothing fails: a timeline may end all faults with it."""
    assert not any(vars(rule).values())


async def test_every_third_allocation_fails() -> None:
    """And an unknown device does not count; other types are as they were."""
    faulty = Faulty(Plugin(), {"widget": FaultRule(fail_allocate_every=3, allocate_delay=0.001)})
    asked, others = hooks(faulty), Hooks(faulty.abilities_of("gadget"))
    outcomes = []
    for _ in range(6):
        with pytest.raises(AllocationRefused):
            await asked.allocate(ask("x"))
        await others.allocate(ask("a"))
        try:
            await asked.allocate(ask("a"))
            outcomes.append("")
        except RpcError as error:
            outcomes.append(error.message)
    fails = "simulated failure of call {}"
    assert outcomes == ["", "", fails.format(3), "", "", fails.format(6)]
    assert faulty.counts == {("widget", "failed_allocations"): 2}


async def test_an_allocation_takes_the_time_of_the_rule() -> None:
    """A slow driver, for pods that wait."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    await hooks(Faulty(Plugin(), FaultRule(allocate_delay=0.05))).allocate(ask("a"))
    assert loop.time() - started >= 0.05


async def test_every_second_allocation_hangs_until_the_caller_hangs_up() -> None:
    """The next is answered."""
    plugin = Plugin()
    faulty = Faulty(plugin, FaultRule(hang_allocate_every=2))
    asked = hooks(faulty)
    await asked.allocate(ask("a"))
    hanging = asyncio.ensure_future(asked.allocate(ask("a")))
    await until(lambda: faulty.counts["widget", "hanging_allocations"])
    assert not hanging.done()
    hanging.cancel()
    await asyncio.wait({hanging})
    await asked.allocate(ask("b"))


async def test_a_refused_device_never_reaches_the_plugin() -> None:
    """By glob; the others do."""
    plugin = Plugin()
    asked = hooks(Faulty(plugin, FaultRule(refuse=("b*",))))
    with pytest.raises(RpcError, match="simulated refusal of b"):
        await asked.allocate(ask("a", "b"))
    assert plugin.asked == 0
    await asked.allocate(ask("a"))


async def test_every_second_start_fails_after_its_delay() -> None:
    """And what nobody has is preferred."""
    asked = hooks(
        Faulty(Plugin(), FaultRule(wrong_ids=True, pre_start=PreStart(delay=0.05, fail_every=2)))
    )
    loop = asyncio.get_running_loop()
    started = loop.time()
    await asked.pre_start_container(kd.PreStartContainerRequest(("a",)))
    assert loop.time() - started >= 0.05
    with pytest.raises(RpcError, match="simulated failure of start 2"):
        await asked.pre_start_container(kd.PreStartContainerRequest(("a",)))
    container = kd.ContainerPreferredRequest(("a", "b"), (), 2)
    answer = await asked.get_preferred_allocation(kd.PreferredAllocationRequest((container,)))
    assert answer.containers == (("wrong-0", "wrong-1"),)


async def lists(*messages: bytes) -> AsyncIterator[bytes]:
    for each in messages:
        yield each
    await asyncio.Event().wait()


async def test_streams_end_or_stay_empty() -> None:
    """Only the streams of the resource with the fault."""
    drops = Faulty(Plugin(), {"widget": FaultRule(drop_stream_every=0.05)})
    assert [each async for each in drops.wrap_lists("example.com/widget", lists(b"1"))] in (
        [b"1"],
        [],
    )
    assert drops.counts == {("widget", "dropped_streams"): 1}
    assert await anext(drops.wrap_lists("example.com/gadget", lists(b"1"))) == b"1"
    mute = Faulty(Plugin(), FaultRule(never_list=True, drop_stream_every=0.05))
    assert [each async for each in mute.wrap_lists("example.com/widget", lists(b"1"))] == []


async def test_a_timeline_sets_health() -> None:
    """The last that was set counts; new rules begin anew."""
    turns = (
        HealthChange(at=0.0, health=kd.Health.UNHEALTHY),
        HealthChange(at=0.01, id="a", health=kd.Health.HEALTHY),
    )
    async with scanned(faulty := Faulty(Plugin(), FaultRule(timeline=turns))) as served:
        while sick(served.tree) != "b":
            await served.next_tree()
        faulty.use(FaultRule())
        assert sick(await served.next_tree()) == ""


async def test_new_faults_begin_their_timeline_at_once() -> None:
    """After the end of the timeline before, and while that waits for its next time."""

    def turn(device_id: str, at: float = 0.0) -> HealthChange:
        return HealthChange(at=at, id=device_id, health=kd.Health.UNHEALTHY)

    faulty = Faulty(Plugin(), FaultRule(timeline=(turn("a"),)))
    async with scanned(faulty) as served:
        for device_id, next_turns in (
            ("a", (turn("b"), turn("a", at=3600.0))),
            ("b", (turn("a"),)),
        ):
            while sick(served.tree) != device_id:
                await served.next_tree()
            faulty.use(FaultRule(timeline=next_turns))
        while sick(served.tree) != "a":
            await served.next_tree()


def test_the_last_health_setting_wins() -> None:
    """Also if it was set before, and something else in between."""
    faulty = Faulty(Plugin(), FaultRule())
    tree = kd.DeviceTree({"widget": widgets("a", "b")})
    assert faulty.change(tree, 0.0) is tree
    for glob, health in (("a", "Healthy"), ("*", "Unhealthy"), ("a", "Healthy")):
        assert faulty.set_health(glob, kd.Health(health)) == len("ab" if glob == "*" else "a")
    changed = faulty.change(tree, 0.0)
    assert sick(changed) == "b"
    assert [each.reason for each in changed.devices("widget").values()] == [
        "",
        "a fault on purpose",
    ]


async def test_a_socket_sets_health(short_dir: Path) -> None:
    """And nothing else, for a plugin's devices are its own."""
    socket = short_dir / "c.sock"
    async with scanned(Faulty(Plugin(), FaultRule(), control=socket)) as served:
        await until(socket.exists)
        assert await tell(socket, {"set": {"id": "b", "health": "Unhealthy"}}) == 1
        assert sick(await served.next_tree()) == "b"
        assert await list_simulated(socket) == {"widget": {"a": "Healthy", "b": "Unhealthy"}}
        assert await tell(socket, {"set": {"health": "Healthy"}, "resource": "gadget"}) == 0
        for wrong in ({"count": 3}, {"set": {"health": "Sick"}}, {"set": 1}):
            with pytest.raises(UsageError):
                await tell(socket, wrong)
    assert not socket.exists()


def test_negative_values_are_refused() -> None:
    """Negative times."""
    with pytest.raises(UsageError, match="must be from 0 s to a year"):
        FaultRule(allocate_delay=-1)


async def test_a_command_leaves_no_connection_behind(short_dir: Path) -> None:
    """A program that sends many steps would run out of descriptors."""
    socket = short_dir / "c.sock"
    async with scanned(Faulty(Plugin(), FaultRule(), control=socket)):
        await until(socket.exists)
        before = open_sockets()
        for _ in range(3):
            await list_simulated(socket)
        await until(lambda: open_sockets() == before)


def open_sockets() -> int:
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += each.readlink().name.startswith("socket:")
    return found
