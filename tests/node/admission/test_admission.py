"""A pod gets all its devices or none: who gets what, and what is said when it does not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kubedevices.allocation import AllocateResponse, ContainerPreferredRequest
from kubedevices.errors import AdmissionRejected, KubedevicesError, RpcError, StatusCode
from kubedevices.node.arrival.endpoint import PluginTimeouts
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.pods.pod_devices import Holding
from kubedevices.node.pods.pod_devices_store import PodDevicesInMemory
from kubedevices.node.settings import NodeSettings
from tests.fake_plugin import RESOURCE, FakePlugin, healthy, unhealthy
from tests.golden_data import load
from tests.waiting import until

MESSAGES = load("messages")
GADGET = "example.com/gadget"


@pytest.fixture
def plugins(short_dir: Path) -> Path:
    """Give the plugin directory of a node."""
    return short_dir / "p"


@asynccontextmanager
async def registered(manager: DeviceManager, *plugins: FakePlugin) -> AsyncIterator[None]:
    """Serve `plugins` and wait until their devices are there."""
    async with contextlib.AsyncExitStack() as stack:
        for plugin in plugins:
            await stack.enter_async_context(plugin)
            await plugin.register()
            await manager.wait_for(plugin.resource)
            await until(lambda plugin=plugin: manager.inventory.has_reported(plugin.resource))  # type: ignore[misc]
        yield


def widgets(directory: Path, *ids: str, **options: object) -> FakePlugin:
    return FakePlugin(directory, devices=healthy(*ids), **options)  # type: ignore[arg-type]


def gadgets(directory: Path, *ids: str) -> FakePlugin:
    return FakePlugin(directory, GADGET, socket_name="gadget.sock", devices=healthy(*ids))


def pod(name: str, *counts: int, resource: str = RESOURCE) -> Pod:
    """Make a pod with one app container per count."""
    return Pod(
        name,
        containers=tuple(Container(f"c{n}", {resource: count}) for n, count in enumerate(counts)),
    )


def rejected_message(text: str) -> str:
    message: str = MESSAGES["admission"]["message"]
    return message.replace("<err>", text)


async def refuse(manager: DeviceManager, asked: Pod) -> str:
    """Admit `asked`, which must fail; return the message."""
    with pytest.raises(AdmissionRejected) as error:
        await manager.allocate(asked)
    assert error.value.reason == MESSAGES["admission"]["reason"]
    return error.value.message


def nothing_is_left(manager: DeviceManager) -> bool:
    return not any(manager.inventory.reserved(name) for name in manager.inventory) and not len(
        manager.pod_devices
    )


# ---------------------------------------------------------------- who gets what


async def test_two_pods_never_share_a_device(plugins: Path) -> None:
    """Each gets its own; the third is told how many there are."""
    async with DeviceManager(plugins) as manager, registered(manager, widgets(plugins, "a", "b")):
        first = await manager.allocate(pod("one", 1))
        second = await manager.allocate(pod("two", 1))
        assert first["c0"][RESOURCE] != second["c0"][RESOURCE]
        message = await refuse(manager, pod("three", 1))
    assert message == rejected_message(MESSAGES["unavailable"].replace("v.example/r", RESOURCE))


async def test_two_resources_beside_cpu(plugins: Path) -> None:
    """2 + 1 devices; the next pod finds none of the first resource, the third the last other."""
    one, two = widgets(plugins, "a", "b"), gadgets(plugins, "x", "y")
    async with DeviceManager(plugins) as manager, registered(manager, one, two):
        limits = {RESOURCE: 2, "cpu": 4, GADGET: 1}
        first = await manager.allocate(Pod("first", containers=(Container("c", limits),)))
        assert {name: len(ids) for name, ids in first["c"].items()} == {RESOURCE: 2, GADGET: 1}
        assert f"for {RESOURCE}. Requested: 1, Available: 0" in await refuse(manager, pod("q", 1))
        assert await manager.get_device_run_container_options(pod("q", 1), "c0") is None
        last = await manager.allocate(pod("third", 1, resource=GADGET))
        assert {*first["c"][GADGET], *last["c0"][GADGET]} == {"x", "y"}


async def test_the_plugin_gets_one_call_per_container_and_resource(plugins: Path) -> None:
    """Each with one container request of exactly the devices that are held afterwards."""
    one, two = widgets(plugins, "a", "b", "c"), gadgets(plugins, "x", "y")
    async with DeviceManager(plugins) as manager, registered(manager, one, two):
        asked = Pod(
            "p",
            containers=(
                Container("main", {RESOURCE: 2, GADGET: 1}),
                Container("side", {RESOURCE: 1}),
            ),
        )
        got = await manager.allocate(asked)
    assert got["main"] == {RESOURCE: one.allocations[0], GADGET: two.allocations[0]}
    assert got["side"] == {RESOURCE: one.allocations[1]}
    assert sorted(got["main"][RESOURCE] + got["side"][RESOURCE]) == ["a", "b", "c"]


async def test_app_containers_reuse_what_init_containers_had(plugins: Path) -> None:
    """Init containers with 1 and 2, two apps with 1 each: two devices are enough."""
    one = widgets(plugins, "a", "b")
    async with DeviceManager(plugins) as manager, registered(manager, one):
        got = await manager.allocate(
            Pod(
                "p",
                init_containers=(Container("i1", {RESOURCE: 1}), Container("i2", {RESOURCE: 2})),
                containers=(Container("a1", {RESOURCE: 1}), Container("a2", {RESOURCE: 1})),
            )
        )
        held = {name: set(resources[RESOURCE]) for name, resources in got.items()}
        assert held["i2"] == {"a", "b"} >= held["i1"]
        assert held["a1"] | held["a2"] == {"a", "b"}
        assert len(one.allocations) == 4


async def test_sidecars_take_from_init_containers_and_keep_it(plugins: Path) -> None:
    """Plain init 3, sidecars 1 and 2, apps 1 and 2: six devices, only the plain init shares."""
    async with (
        DeviceManager(plugins) as manager,
        registered(manager, widgets(plugins, *"abcdef")),
    ):
        got = await manager.allocate(
            Pod(
                "p",
                init_containers=(
                    Container("init", {RESOURCE: 3}),
                    Container("s1", {RESOURCE: 1}, is_sidecar=True),
                    Container("s2", {RESOURCE: 2}, is_sidecar=True),
                ),
                containers=(Container("a1", {RESOURCE: 1}), Container("a2", {RESOURCE: 2})),
            )
        )
        held = {name: set(resources[RESOURCE]) for name, resources in got.items()}
        assert held["s1"] | held["s2"] == held["init"]
        rest = [held[name] for name in ("s1", "s2", "a1", "a2")]
        assert set.union(*rest) == set("abcdef")
        assert sum(map(len, rest)) == 6


async def test_another_pod_does_not_reuse(plugins: Path) -> None:
    """What an init container of one pod had is not for another."""
    async with DeviceManager(plugins) as manager, registered(manager, widgets(plugins, "a")):
        await manager.allocate(Pod("one", init_containers=(Container("i", {RESOURCE: 1}),)))
        assert "Requested: 1, Available: 0" in await refuse(manager, pod("two", 1))


async def test_limits_that_are_no_device_resources_are_left_alone(plugins: Path) -> None:
    """A resource that no plugin has registered is not the device manager's business."""
    async with DeviceManager(plugins) as manager, registered(manager, widgets(plugins, "a")):
        got = await manager.allocate(pod("p", 1, resource="example.com/other"))
        assert got == {}


async def test_a_request_of_zero_is_nothing(plugins: Path) -> None:
    """Also when nothing is healthy, where a kubelet rejects the pod."""
    one = FakePlugin(plugins, devices=unhealthy("a"))
    async with DeviceManager(plugins) as manager, registered(manager, one):
        assert await manager.allocate(pod("p", 0)) == {}
        assert one.allocations == []


# ---------------------------------------------------------------- again


async def test_the_same_pod_again_gets_the_same_without_a_call(plugins: Path) -> None:
    """Same counts and healthy devices: nothing is asked of the plugin."""
    one = widgets(plugins, "a", "b", "c")
    async with DeviceManager(plugins) as manager, registered(manager, one):
        first = await manager.allocate(pod("p", 1, 1))
        assert await manager.allocate(pod("p", 1, 1)) == first
        assert len(one.allocations) == 2


async def test_another_count_for_the_same_container_is_refused(plugins: Path) -> None:
    """The pod keeps what it has."""
    async with DeviceManager(plugins) as manager, registered(manager, widgets(plugins, *"abc")):
        await manager.allocate(Pod("x", uid="p", containers=(Container("c", {RESOURCE: 1}),)))
        message = await refuse(
            manager, Pod("x", uid="p", containers=(Container("c", {RESOURCE: 2}),))
        )
        assert message == rejected_message(MESSAGES["changed"].replace("v.example/r", RESOURCE))
        assert manager.get_allocation("p") != {}


async def test_held_devices_that_went_bad_are_refused(plugins: Path) -> None:
    """The pod must not start on them again."""
    one = widgets(plugins, "a", "b")
    async with DeviceManager(plugins) as manager, registered(manager, one):
        await manager.allocate(pod("p", 1))
        held = one.allocations[0][0]
        await one.send([*unhealthy(held), *healthy("b" if held == "a" else "a")])
        await manager.wait_for(RESOURCE, allocatable=1)
        message = await refuse(manager, pod("p", 1))
    golden = MESSAGES["no_longer_healthy"].replace("v.example/r", RESOURCE)
    assert message == rejected_message(golden)


async def test_a_pod_admitted_twice_at_the_same_time_gets_its_devices_once(plugins: Path) -> None:
    """The second waits for the first, and both get the same answer."""
    one = widgets(plugins, "a", "b")
    async with DeviceManager(plugins) as manager, registered(manager, one):
        gate = one.hang("allocate")
        both = [asyncio.ensure_future(manager.allocate(pod("p", 1))) for _ in range(2)]
        await until(lambda: one.allocations)
        gate.set()
        first, second = await asyncio.gather(*both)
        assert first == second
        assert len(one.allocations) == 1


# ---------------------------------------------------------------- refusals


async def test_without_a_healthy_device_the_pod_is_refused(plugins: Path) -> None:
    """The text is the kubelet's."""
    one = FakePlugin(plugins, devices=unhealthy("a"))
    async with DeviceManager(plugins) as manager, registered(manager, one):
        message = await refuse(manager, pod("p", 1))
    assert message == rejected_message(MESSAGES["no_healthy"].replace("v.example/r", RESOURCE))


async def test_after_the_plugin_went_away_the_pod_is_refused(plugins: Path) -> None:
    """All devices of a lost plugin count as unhealthy."""
    async with DeviceManager(plugins) as manager:
        async with registered(manager, widgets(plugins, "a")):
            pass
        await manager.wait_for(RESOURCE, allocatable=0)
        message = await refuse(manager, pod("p", 1))
    assert message == rejected_message(MESSAGES["no_healthy"].replace("v.example/r", RESOURCE))


async def test_between_registration_and_first_list_the_pod_is_refused(plugins: Path) -> None:
    """A kubelet would admit it without any device and without an error."""
    async with DeviceManager(plugins) as manager, widgets(plugins, "a") as one:
        one.hang("list")
        await one.register()
        message = await refuse(manager, pod("p", 1))
        golden = MESSAGES["unregistered"].replace("v.example/r", RESOURCE)
        assert message == rejected_message(golden)


async def test_an_error_of_the_plugin_is_passed_on(plugins: Path) -> None:
    """With the code, as Go prints it; the devices are free again at once."""
    one = widgets(plugins, "a")
    one.errors["allocate"] = RpcError(StatusCode.INTERNAL, "out of smoke")
    async with DeviceManager(plugins) as manager, registered(manager, one):
        message = await refuse(manager, pod("p", 1))
        assert message == rejected_message("rpc error: code = Internal desc = out of smoke")
        assert nothing_is_left(manager)
        one.errors.clear()
        await manager.allocate(pod("p", 1))


async def test_an_answer_without_containers_is_refused_and_leaves_nothing(plugins: Path) -> None:
    """A kubelet keeps these devices reserved until some other pod leaves."""
    one = widgets(plugins, "a")
    one.allocate_answer = lambda _: AllocateResponse()
    async with DeviceManager(plugins) as manager, registered(manager, one):
        assert MESSAGES["prefixes"][4] in await refuse(manager, pod("p", 1))
        assert nothing_is_left(manager)


async def test_a_failure_in_a_later_container_gives_everything_back(plugins: Path) -> None:
    """Devices of earlier containers and of other resources too: all or nothing."""
    one, two = widgets(plugins, "a", "b"), gadgets(plugins, "x")
    async with DeviceManager(plugins) as manager, registered(manager, one, two):
        await refuse(
            manager,
            Pod(
                "p",
                containers=(
                    Container("first", {RESOURCE: 1, GADGET: 1}),
                    Container("second", {GADGET: 1}),
                ),
            ),
        )
        assert nothing_is_left(manager)
        assert (one.allocations, two.allocations) == ([], [])  # it never came to that
        two.errors["allocate"] = RpcError(StatusCode.INTERNAL, "no")
        await refuse(manager, Pod("p", containers=(Container("c", {RESOURCE: 2, GADGET: 1}),)))
        assert nothing_is_left(manager)
        await manager.allocate(pod("q", 2))


async def test_a_device_that_goes_bad_while_the_plugin_answers_is_not_given(plugins: Path) -> None:
    """The state is looked at again after the call."""
    one = widgets(plugins, "a")
    async with DeviceManager(plugins) as manager, registered(manager, one):
        gate = one.hang("allocate")
        admission = asyncio.ensure_future(refuse(manager, pod("p", 1)))
        await until(lambda: one.allocations)
        await one.send(unhealthy("a"))
        await manager.wait_for(RESOURCE, allocatable=0)
        gate.set()
        assert "no longer healthy" in await admission
        assert nothing_is_left(manager)


async def test_a_device_that_vanishes_while_the_plugin_answers_is_not_given(plugins: Path) -> None:
    """Nothing crashes over a device that is no longer there."""
    one = widgets(plugins, "a", "b")
    async with DeviceManager(plugins) as manager, registered(manager, one):
        gate = one.hang("allocate")
        admission = asyncio.ensure_future(refuse(manager, pod("p", 1)))
        await until(lambda: one.allocations)
        await one.send(healthy("c"))
        await manager.wait_for(RESOURCE, capacity=1)
        gate.set()
        assert "no longer healthy" in await admission
        assert nothing_is_left(manager)


# ---------------------------------------------------------------- side by side


async def test_plugins_of_one_pod_are_called_at_the_same_time(plugins: Path) -> None:
    """Both Allocate calls are under way before either answers."""
    one, two = widgets(plugins, "a"), gadgets(plugins, "x")
    async with DeviceManager(plugins) as manager, registered(manager, one, two):
        gates = [one.hang("allocate"), two.hang("allocate")]
        admission = asyncio.ensure_future(
            manager.allocate(Pod("p", containers=(Container("c", {RESOURCE: 1, GADGET: 1}),)))
        )
        await until(lambda: one.allocations and two.allocations)
        for gate in gates:
            gate.set()
        await admission


async def test_a_refusal_does_not_wait_for_a_plugin_that_hangs(plugins: Path) -> None:
    """One resource is refused: the call to the other plugin is cancelled."""
    one, two = widgets(plugins, "a"), gadgets(plugins, "x")
    one.hang("allocate")
    two.errors["allocate"] = RpcError(StatusCode.INTERNAL, "no")
    async with DeviceManager(plugins) as manager, registered(manager, one, two):
        asked = Pod("p", containers=(Container("c", {RESOURCE: 1, GADGET: 1}),))
        assert "desc = no" in await asyncio.wait_for(refuse(manager, asked), 5)
        assert nothing_is_left(manager)


async def test_a_hanging_plugin_delays_no_other_pod(plugins: Path) -> None:
    """Other pods get devices of other plugins meanwhile, and of the same plugin what is free."""
    one, two = widgets(plugins, "a", "b"), gadgets(plugins, *"xyz")
    async with DeviceManager(plugins) as manager, registered(manager, one, two):
        gate = one.hang("allocate")
        stuck = asyncio.ensure_future(manager.allocate(pod("stuck", 1)))
        await until(lambda: one.allocations)
        for n in range(3):
            await asyncio.wait_for(manager.allocate(pod(f"g{n}", 1, resource=GADGET)), 5)
        other = asyncio.ensure_future(manager.allocate(pod("other", 1)))
        await until(lambda: len(one.allocations) == 2)
        gate.set()
        assert (await stuck)["c0"] != (await other)["c0"]


async def test_a_hanging_plugin_is_given_up_at_its_deadline(plugins: Path) -> None:
    """The pod is refused and its devices are free."""
    one = widgets(plugins, "a")
    one.hang("allocate")
    timeouts = PluginTimeouts(allocate=0.1)
    async with (
        DeviceManager(plugins, settings=NodeSettings(timeouts=timeouts)) as manager,
        registered(manager, one),
    ):
        assert "code = DeadlineExceeded" in await refuse(manager, pod("p", 1))
        assert nothing_is_left(manager)


async def test_a_cancelled_admission_leaves_nothing(plugins: Path) -> None:
    """A cancelled admission gives its devices back and its call to the plugin up."""
    one = widgets(plugins, "a")
    async with DeviceManager(plugins) as manager, registered(manager, one):
        one.hang("allocate")
        admission = asyncio.ensure_future(manager.allocate(pod("p", 1)))
        await until(lambda: one.allocations)
        admission.cancel()
        with pytest.raises(asyncio.CancelledError):
            await admission
        assert nothing_is_left(manager)
        one.hang("allocate").set()
        await manager.allocate(pod("q", 1))


async def test_releasing_a_pod_ends_its_admission(plugins: Path) -> None:
    """The pod is deleted while its plugin is being asked: it is refused, nothing stays."""
    one = widgets(plugins, "a")
    async with DeviceManager(plugins) as manager, registered(manager, one):
        one.hang("allocate")
        admission = asyncio.ensure_future(manager.allocate(pod("p", 1)))
        await until(lambda: one.allocations)
        await manager.release("default/p")
        with pytest.raises(AdmissionRejected, match="the pod was released while the pod was"):
            await admission
        assert nothing_is_left(manager)


# ---------------------------------------------------------------- preferences


def last_ones(request: ContainerPreferredRequest) -> list[str]:
    """Prefer the devices at the end, as a plugin should: with those that must be there."""
    rest = [each for each in request.available if each not in request.must_include]
    return [*request.must_include, *rest][-request.size :] if request.size else []


async def test_the_plugin_is_asked_and_followed(plugins: Path) -> None:
    """Available, must-include and size are those of the container; the answer is taken."""
    one = widgets(plugins, *"abcd", preferred=last_ones)
    async with DeviceManager(plugins) as manager, registered(manager, one):
        got = await manager.allocate(pod("p", 2))
        assert got["c0"][RESOURCE] == ("c", "d")
        assert one.preferred_requests == [ContainerPreferredRequest(tuple("abcd"), (), 2)]


async def test_reusable_devices_must_be_included(plugins: Path) -> None:
    """An app container that takes over an init container's device asks for the rest only."""
    one = widgets(plugins, *"abc", preferred=lambda r: r.must_include or r.available[:1])
    async with DeviceManager(plugins) as manager, registered(manager, one):
        got = await manager.allocate(
            Pod(
                "p",
                init_containers=(Container("i", {RESOURCE: 1}),),
                containers=(Container("c", {RESOURCE: 2}),),
            )
        )
        assert set(got["i"][RESOURCE]) < set(got["c"][RESOURCE])
        assert one.preferred_requests[1] == ContainerPreferredRequest(tuple("abc"), ("a",), 2)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (["a", "nobody"], "not available"),
        (["a"], "names 1 device instead of 2"),
        (["a", "b", "c"], "names 3 devices instead of 2"),
        (["a", "a"], "names a device twice"),
    ],
)
async def test_a_wrong_preference_is_used_as_far_as_it_makes_sense(
    plugins: Path, caplog: pytest.LogCaptureFixture, answer: Sequence[str], complaint: str
) -> None:
    """The pod gets exactly what it asked for, of devices that exist, and a warning tells."""
    one = widgets(plugins, *"abc", preferred=lambda _: answer)
    async with DeviceManager(plugins) as manager, registered(manager, one):
        got = await manager.allocate(pod("p", 2))
        assert len(set(got["c0"][RESOURCE])) == 2
        assert set(got["c0"][RESOURCE]) <= set("abc")
    assert complaint in caplog.text


async def test_a_preference_that_ignores_must_include_is_mended(
    plugins: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The reused device stays; some plugins leave it out."""
    one = widgets(plugins, *"abc", preferred=lambda r: ["a"] if r.size == 1 else ["b", "c"])
    async with DeviceManager(plugins) as manager, registered(manager, one):
        got = await manager.allocate(
            Pod(
                "p",
                init_containers=(Container("i", {RESOURCE: 1}),),
                containers=(Container("c", {RESOURCE: 2}),),
            )
        )
        assert set(got["i"][RESOURCE]) < set(got["c"][RESOURCE])
    assert "leaves out devices it must include" in caplog.text


async def test_a_failing_preference_refuses_the_pod(plugins: Path) -> None:
    """With the kubelet's words, and before Allocate is called."""
    one = widgets(plugins, "a", "b", preferred=last_ones)
    one.errors["preferred"] = RpcError(StatusCode.INTERNAL, "no idea")
    async with DeviceManager(plugins) as manager, registered(manager, one):
        message = await refuse(manager, pod("p", 1))
        assert message.startswith(f"Allocate failed due to {MESSAGES['prefixes'][0]}")
        assert one.allocations == []
        assert nothing_is_left(manager)


async def test_changes_during_the_preference_call_count(plugins: Path) -> None:
    """The preferred device is taken by another pod meanwhile: a free one is given instead."""
    one = widgets(plugins, "a", "b", preferred=lambda _: ["b"])
    async with DeviceManager(plugins) as manager, registered(manager, one):
        gate = one.hang("preferred")
        both = [asyncio.ensure_future(manager.allocate(pod(name, 1))) for name in ("p", "q")]
        await until(lambda: len(one.preferred_requests) == 2)
        gate.set()
        first, second = await asyncio.gather(*both)
        assert {first["c0"][RESOURCE], second["c0"][RESOURCE]} == {("a",), ("b",)}


async def test_cleaning_up_during_the_preference_call_does_no_harm(plugins: Path) -> None:
    """Pods that end meanwhile take no reservation of this one with them."""
    active = {"default/old", "default/p"}
    one = widgets(plugins, "a", "b", preferred=last_ones)
    async with (
        DeviceManager(plugins, active_pods=lambda: active) as manager,
        registered(manager, one),
    ):
        await manager.allocate(pod("old", 1))
        gate = one.hang("preferred")
        admission = asyncio.ensure_future(manager.allocate(pod("p", 1)))
        await until(lambda: len(one.preferred_requests) == 2)
        active.discard("default/old")
        await manager.update_allocated_devices()
        gate.set()
        await admission
        assert "Requested: 2, Available: 1" in await refuse(manager, pod("q", 2))


# ---------------------------------------------------------------- the store


class FailingStore(PodDevicesInMemory):
    """A store whose disk is full, or slow, as a test says."""

    def __init__(self) -> None:
        self.error: KubedevicesError | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.committing = 0
        self.released: list[str] = []

    async def commit(self, pod: Pod, holdings: Sequence[Holding]) -> None:
        self.committing += 1
        await self.gate.wait()
        if self.error:
            raise self.error

    async def release(self, pod_uids: Collection[str]) -> None:
        if self.error:
            raise self.error
        self.released += pod_uids


async def test_a_pod_that_cannot_be_kept_is_refused(plugins: Path) -> None:
    """Nothing of it stays in memory either."""
    store = FailingStore()
    store.error = KubedevicesError("no space left on device")
    async with (
        DeviceManager(plugins, store=store) as manager,
        registered(manager, widgets(plugins, "a")),
    ):
        message = await refuse(manager, pod("p", 1))
        assert message == rejected_message("no space left on device")
        assert nothing_is_left(manager)
        assert not manager.pods()
        store.error = None
        await manager.allocate(pod("p", 1))


async def test_a_pod_that_cannot_be_forgotten_keeps_its_devices(plugins: Path) -> None:
    """Memory never says something else than what is kept."""
    store = FailingStore()
    async with (
        DeviceManager(plugins, store=store) as manager,
        registered(manager, widgets(plugins, "a")),
    ):
        await manager.allocate(pod("p", 1))
        store.error = KubedevicesError("no space left on device")
        with pytest.raises(KubedevicesError, match="no space left"):
            await manager.release("default/p")
        assert manager.get_allocation("default/p") == {"c0": {RESOURCE: ("a",)}}
        store.error = None
        assert await manager.release("default/p") == {RESOURCE: ("a",)}
        assert store.released == ["default/p"]


@pytest.mark.parametrize("outcome", ["kept", "failed"])
async def test_a_commit_is_finished_although_the_caller_left(plugins: Path, outcome: str) -> None:
    """What the store ended up with is what the memory has."""
    store = FailingStore()
    async with (
        DeviceManager(plugins, store=store) as manager,
        registered(manager, widgets(plugins, "a")),
    ):
        store.gate.clear()
        admission = asyncio.ensure_future(manager.allocate(pod("p", 1)))
        await until(lambda: store.committing)
        admission.cancel()
        if outcome == "failed":
            store.error = KubedevicesError("full")
        store.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await admission
        assert nothing_is_left(manager) is (outcome == "failed")
        assert [each.name for each in manager.pods()] == (["p"] if outcome == "kept" else [])
