"""A pod gets all its devices or none: which devices it gets, and the message of a refusal."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kubedevices.errors import AdmissionRejected, KubedevicesError, RpcError, StatusCode
from kubedevices.node.arrival.endpoint import PluginTimeouts
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.settings import NodeSettings
from kubedevices.values.allocation import AllocateResponse, ContainerPreferredRequest
from kubedevices.values.device import ReportedDevice
from tests.fake_plugin import RESOURCE, FakePlugin, healthy, unhealthy
from tests.gated_store import GatedStore
from tests.golden_data import load
from tests.waiting import until

MESSAGES = load("messages")
GADGET = "example.com/gadget"
ONE_THEN_TWO = Pod("p", "", "", (Container("i", {RESOURCE: 1}),), (Container("c", {RESOURCE: 2}),))
Result = TypeVar("Result")


@asynccontextmanager
async def registered(manager: DeviceManager, *plugins: FakePlugin) -> AsyncIterator[None]:
    """Serve `plugins` and wait until their devices are listed."""
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


async def hanging(
    plugin: FakePlugin, work: Coroutine[Any, Any, Result]
) -> "tuple[asyncio.Event, asyncio.Task[Result]]":
    """Begin `work` until it hangs in Allocate; return the gate that lets Allocate go on."""
    gate, task = plugin.hang("allocate"), asyncio.create_task(work)
    await until(lambda: plugin.allocations)
    return gate, task


def no_device_is_reserved_or_held(manager: DeviceManager) -> bool:
    return not any(manager.inventory.reserved(name) for name in manager.inventory) and not len(
        manager.pod_devices
    )


# ---------------------------------------------------------------- which devices a pod gets


async def test_two_pods_never_share_a_device(plugins: Path) -> None:
    """Each pod gets its own device.

    The message for the third pod has the number of free devices.
    """
    async with DeviceManager(plugins) as manager, registered(manager, widgets(plugins, "a", "b")):
        first = await manager.allocate(pod("one", 1))
        second = await manager.allocate(pod("two", 1))
        assert first["c0"][RESOURCE] != second["c0"][RESOURCE]
        message = await refuse(manager, pod("three", 1))
    assert message == rejected_message(MESSAGES["unavailable"].replace("v.example/r", RESOURCE))


async def test_a_pod_gets_devices_of_two_resources_beside_cpu(plugins: Path) -> None:
    """Two devices of one resource and one of another. Later pods get only what is left of each."""
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
    """Each call has one container request, with exactly the devices that are held afterwards."""
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


async def test_app_containers_reuse_the_devices_of_init_containers(plugins: Path) -> None:
    """Init containers with 1 and 2 devices, two apps with 1 each: two devices are enough."""
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


async def test_sidecars_keep_the_devices_that_they_take_from_init_containers(plugins: Path) -> None:
    """Plain init 3, sidecars 1 and 2, apps 1 and 2: six devices, only the plain init container
    shares.
    """
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


async def test_a_pod_does_not_reuse_devices_of_another_pod(plugins: Path) -> None:
    """The device of an init container of one pod is not free for another pod."""
    async with DeviceManager(plugins) as manager, registered(manager, widgets(plugins, "a")):
        await manager.allocate(Pod("one", init_containers=(Container("i", {RESOURCE: 1}),)))
        assert "Requested: 1, Available: 0" in await refuse(manager, pod("two", 1))


async def test_limits_of_unregistered_resources_are_ignored(plugins: Path) -> None:
    """A resource that no plugin has registered does not belong to the device manager."""
    async with DeviceManager(plugins) as manager, registered(manager, widgets(plugins, "a")):
        got = await manager.allocate(pod("p", 1, resource="example.com/other"))
        assert got == {}


async def test_a_request_for_zero_devices_is_ignored(plugins: Path) -> None:
    """Also if no device is healthy; a kubelet rejects the pod in this case."""
    one = FakePlugin(plugins, devices=unhealthy("a"))
    async with DeviceManager(plugins) as manager, registered(manager, one):
        assert await manager.allocate(pod("p", 0)) == {}
        assert one.allocations == []


# ---------------------------------------------------------------- a pod that is admitted again


async def test_a_pod_admitted_again_keeps_its_devices_without_a_call(plugins: Path) -> None:
    """With the same counts and healthy devices, the manager calls no plugin."""
    one = widgets(plugins, "a", "b", "c")
    async with DeviceManager(plugins) as manager, registered(manager, one):
        first = await manager.allocate(pod("p", 1, 1))
        assert await manager.allocate(pod("p", 1, 1)) == first
        assert len(one.allocations) == 2


async def test_another_count_for_the_same_container_is_refused(plugins: Path) -> None:
    """The pod keeps its devices."""
    async with DeviceManager(plugins) as manager, registered(manager, widgets(plugins, *"abc")):
        await manager.allocate(Pod("x", uid="p", containers=(Container("c", {RESOURCE: 1}),)))
        message = await refuse(
            manager, Pod("x", uid="p", containers=(Container("c", {RESOURCE: 2}),))
        )
        assert message == rejected_message(MESSAGES["changed"].replace("v.example/r", RESOURCE))
        assert manager.get_allocation("p") != {}


async def test_a_pod_whose_held_devices_turned_unhealthy_is_refused(plugins: Path) -> None:
    """The pod must not start again on these devices."""
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
    """The second admission waits for the first, and both get the same answer."""
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


async def test_after_the_loss_of_the_plugin_a_pod_is_refused(plugins: Path) -> None:
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
    """The message has the gRPC code as Go prints it. The devices are free again at once."""
    one = widgets(plugins, "a")
    one.errors["allocate"] = RpcError(StatusCode.INTERNAL, "out of smoke")
    async with DeviceManager(plugins) as manager, registered(manager, one):
        message = await refuse(manager, pod("p", 1))
        assert message == rejected_message("rpc error: code = Internal desc = out of smoke")
        assert no_device_is_reserved_or_held(manager)
        one.errors.clear()
        await manager.allocate(pod("p", 1))


async def test_an_answer_without_containers_is_refused_and_the_devices_are_free(
    plugins: Path,
) -> None:
    """A kubelet keeps these devices reserved until another pod ends."""
    one = widgets(plugins, "a")
    one.allocate_answer = lambda _: AllocateResponse()
    async with DeviceManager(plugins) as manager, registered(manager, one):
        assert MESSAGES["prefixes"][4] in await refuse(manager, pod("p", 1))
        assert no_device_is_reserved_or_held(manager)


async def test_a_failure_in_a_later_container_frees_all_devices_of_the_pod(plugins: Path) -> None:
    """All or nothing: devices of earlier containers and of other resources are free again too."""
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
        assert no_device_is_reserved_or_held(manager)
        assert (one.allocations, two.allocations) == ([], [])  # no plugin was called
        two.errors["allocate"] = RpcError(StatusCode.INTERNAL, "no")
        await refuse(manager, Pod("p", containers=(Container("c", {RESOURCE: 2, GADGET: 1}),)))
        assert no_device_is_reserved_or_held(manager)
        await manager.allocate(pod("q", 2))


@pytest.mark.parametrize(
    ("listed", "numbers"),
    [(unhealthy("a"), {"allocatable": 0}), (healthy("c"), {"capacity": 1})],
    ids=["unhealthy", "vanished"],
)
async def test_a_device_that_is_lost_while_the_plugin_answers_is_not_given(
    plugins: Path, listed: list[ReportedDevice], numbers: dict[str, int]
) -> None:
    """The manager checks the device again after the call."""
    one = widgets(plugins, "a", "b")
    async with DeviceManager(plugins) as manager, registered(manager, one):
        gate, admission = await hanging(one, refuse(manager, pod("p", 1)))
        await one.send(listed)
        await manager.wait_for(RESOURCE, **numbers)
        gate.set()
        assert "no longer healthy" in await admission
        assert no_device_is_reserved_or_held(manager)


# ---------------------------------------------------------------- concurrent calls


async def test_plugins_of_one_pod_are_called_at_the_same_time(plugins: Path) -> None:
    """Both Allocate calls have begun before either plugin answers."""
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
    """The plugin of one resource refuses: the call to the other plugin is cancelled."""
    one, two = widgets(plugins, "a"), gadgets(plugins, "x")
    one.hang("allocate")
    two.errors["allocate"] = RpcError(StatusCode.INTERNAL, "no")
    async with DeviceManager(plugins) as manager, registered(manager, one, two):
        asked = Pod("p", containers=(Container("c", {RESOURCE: 1, GADGET: 1}),))
        assert "desc = no" in await asyncio.wait_for(refuse(manager, asked), 5)
        assert no_device_is_reserved_or_held(manager)


async def test_a_hanging_plugin_delays_no_other_pod(plugins: Path) -> None:
    """Meanwhile other pods get devices of other plugins, and free devices of the same plugin."""
    one, two = widgets(plugins, "a", "b"), gadgets(plugins, *"xyz")
    async with DeviceManager(plugins) as manager, registered(manager, one, two):
        gate, stuck = await hanging(one, manager.allocate(pod("stuck", 1)))
        for n in range(3):
            await asyncio.wait_for(manager.allocate(pod(f"g{n}", 1, resource=GADGET)), 5)
        other = asyncio.ensure_future(manager.allocate(pod("other", 1)))
        await until(lambda: len(one.allocations) == 2)
        gate.set()
        assert (await stuck)["c0"] != (await other)["c0"]


async def test_a_hanging_plugin_is_cancelled_at_its_deadline(plugins: Path) -> None:
    """The pod is refused and its devices are free."""
    one = widgets(plugins, "a")
    one.hang("allocate")
    timeouts = PluginTimeouts(allocate=0.1)
    async with (
        DeviceManager(plugins, settings=NodeSettings(timeouts=timeouts)) as manager,
        registered(manager, one),
    ):
        assert "code = DeadlineExceeded" in await refuse(manager, pod("p", 1))
        assert no_device_is_reserved_or_held(manager)


async def test_a_cancelled_admission_frees_its_devices(plugins: Path) -> None:
    """The call to the plugin is cancelled too."""
    one = widgets(plugins, "a")
    async with DeviceManager(plugins) as manager, registered(manager, one):
        gate, admission = await hanging(one, manager.allocate(pod("p", 1)))
        admission.cancel()
        with pytest.raises(asyncio.CancelledError):
            await admission
        assert no_device_is_reserved_or_held(manager)
        gate.set()
        await manager.allocate(pod("q", 1))


async def test_releasing_a_pod_ends_its_admission(plugins: Path) -> None:
    """The pod is deleted while its plugin answers: the pod is refused and holds no device."""
    one = widgets(plugins, "a")
    async with DeviceManager(plugins) as manager, registered(manager, one):
        _, admission = await hanging(one, manager.allocate(pod("p", 1)))
        await manager.release("default/p")
        with pytest.raises(AdmissionRejected, match="the pod was released while the pod was"):
            await admission
        assert no_device_is_reserved_or_held(manager)


# ---------------------------------------------------------------- preferences


def last_ones(request: ContainerPreferredRequest) -> list[str]:
    """Prefer the last devices, with the devices that must be included, as a plugin should."""
    rest = [each for each in request.available if each not in request.must_include]
    return [*request.must_include, *rest][-request.size :] if request.size else []


async def test_the_plugin_is_asked_and_its_preference_is_used(plugins: Path) -> None:
    """Available, must-include and size are those of the container.

    The pod gets the preferred devices.
    """
    one = widgets(plugins, *"abcd", preferred=last_ones)
    async with DeviceManager(plugins) as manager, registered(manager, one):
        got = await manager.allocate(pod("p", 2))
        assert got["c0"][RESOURCE] == ("c", "d")
        assert one.preferred_requests == [ContainerPreferredRequest(tuple("abcd"), (), 2)]


async def test_reusable_devices_must_be_included(plugins: Path) -> None:
    """An app container reuses an init container's device; the plugin chooses the other one."""
    one = widgets(plugins, *"abc", preferred=lambda r: r.must_include or r.available[:1])
    async with DeviceManager(plugins) as manager, registered(manager, one):
        got = await manager.allocate(ONE_THEN_TWO)
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
async def test_the_valid_part_of_a_wrong_preference_is_used(
    plugins: Path, caplog: pytest.LogCaptureFixture, answer: Sequence[str], complaint: str
) -> None:
    """The pod gets the requested number of existing devices, and the log has a warning."""
    one = widgets(plugins, *"abc", preferred=lambda _: answer)
    async with DeviceManager(plugins) as manager, registered(manager, one):
        got = await manager.allocate(pod("p", 2))
        assert len(set(got["c0"][RESOURCE])) == 2
        assert set(got["c0"][RESOURCE]) <= set("abc")
    assert complaint in caplog.text


async def test_a_preference_without_must_include_is_corrected(
    plugins: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Some plugins leave out the reused device. The pod keeps it."""
    one = widgets(plugins, *"abc", preferred=lambda r: ["a"] if r.size == 1 else ["b", "c"])
    async with DeviceManager(plugins) as manager, registered(manager, one):
        got = await manager.allocate(ONE_THEN_TWO)
        assert set(got["i"][RESOURCE]) < set(got["c"][RESOURCE])
    assert "leaves out devices it must include" in caplog.text


async def test_a_failing_preference_refuses_the_pod(plugins: Path) -> None:
    """The message has the kubelet's words. Allocate is not called."""
    one = widgets(plugins, "a", "b", preferred=last_ones)
    one.errors["preferred"] = RpcError(StatusCode.INTERNAL, "no idea")
    async with DeviceManager(plugins) as manager, registered(manager, one):
        message = await refuse(manager, pod("p", 1))
        assert message.startswith(f"Allocate failed due to {MESSAGES['prefixes'][0]}")
        assert one.allocations == []
        assert no_device_is_reserved_or_held(manager)


async def test_a_preferred_device_that_another_pod_took_is_replaced(plugins: Path) -> None:
    """Another pod takes the preferred device during the call: this pod gets a free device."""
    one = widgets(plugins, "a", "b", preferred=lambda _: ["b"])
    async with DeviceManager(plugins) as manager, registered(manager, one):
        gate = one.hang("preferred")
        both = [asyncio.ensure_future(manager.allocate(pod(name, 1))) for name in ("p", "q")]
        await until(lambda: len(one.preferred_requests) == 2)
        gate.set()
        first, second = await asyncio.gather(*both)
        assert {first["c0"][RESOURCE], second["c0"][RESOURCE]} == {("a",), ("b",)}


async def test_a_cleanup_during_the_preference_call_keeps_the_reservation(plugins: Path) -> None:
    """Removing pods that have ended does not free the devices reserved for this pod."""
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


async def test_a_pod_that_cannot_be_stored_is_refused(plugins: Path) -> None:
    """The pod is not in memory either."""
    store = GatedStore()
    store.error = KubedevicesError("no space left on device")
    async with (
        DeviceManager(plugins, store=store) as manager,
        registered(manager, widgets(plugins, "a")),
    ):
        message = await refuse(manager, pod("p", 1))
        assert message == rejected_message("no space left on device")
        assert no_device_is_reserved_or_held(manager)
        assert not manager.pods()
        store.error = None
        await manager.allocate(pod("p", 1))


async def test_a_pod_that_cannot_be_removed_from_the_store_keeps_its_devices(plugins: Path) -> None:
    """Memory always agrees with the store."""
    store = GatedStore()
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
        assert not store.kept


@pytest.mark.parametrize("outcome", ["kept", "failed"])
async def test_a_commit_is_finished_although_its_caller_was_cancelled(
    plugins: Path, outcome: str
) -> None:
    """Afterwards memory and store agree."""
    store = GatedStore()
    async with (
        DeviceManager(plugins, store=store) as manager,
        registered(manager, widgets(plugins, "a")),
    ):
        store.gate.clear()
        admission = asyncio.ensure_future(manager.allocate(pod("p", 1)))
        await until(lambda: store.asked)
        admission.cancel()
        if outcome == "failed":
            store.error = KubedevicesError("full")
        store.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await admission
        assert no_device_is_reserved_or_held(manager) is (outcome == "failed")
        assert [each.name for each in manager.pods()] == (["p"] if outcome == "kept" else [])
