"""Before a refusal, an admission waits for ongoing admissions and releases and plans again."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from kubedevices.errors import AdmissionRejected, KubedevicesError, RpcError, StatusCode
from kubedevices.node.admission import admission
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.settings import NodeSettings
from kubedevices.node.topology.options import check_settings
from kubedevices.values.allocation import ContainerPreferredRequest
from tests.fake_plugin import RESOURCE, FakePlugin, healthy
from tests.gated_store import GatedStore
from tests.waiting import until

GADGET = "example.com/gadget"


class Node:
    """A device manager with two plugins of two devices each."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.store = directory, GatedStore()
        self.active: set[str] | None = None
        self.widgets = FakePlugin(directory, devices=healthy("w0", "w1"))
        self.gadgets = FakePlugin(
            directory, GADGET, socket_name="gadget.sock", devices=healthy("g0", "g1")
        )
        self.stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[Any]] = []

    async def start(self, policy: str = "none") -> None:
        topology = check_settings(policy, "container", numa_nodes=(0, 1))
        self.manager = DeviceManager(
            self.directory,
            store=self.store,
            settings=NodeSettings(topology=topology),
            active_pods=lambda: self.active,
        )
        await self.stack.enter_async_context(self.manager)
        for plugin in (self.widgets, self.gadgets):
            await self.stack.enter_async_context(plugin)
            await plugin.register()
            await until(lambda plugin=plugin: self.manager.inventory.has_reported(plugin.resource))  # type: ignore[misc]

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.append(task)
        return task

    async def begin_hanging(
        self, name: str, widgets: int = 0, gadgets: int = 0
    ) -> asyncio.Task[Any]:
        """Begin an admission that hangs in Allocate until `answer_allocate`."""
        for plugin, count in ((self.widgets, widgets), (self.gadgets, gadgets)):
            if count:
                plugin.hang("allocate")
        calls = len(self.widgets.allocations) + len(self.gadgets.allocations)
        task = self.begin(self.manager.allocate(pod(name, widgets, gadgets)))
        await until(lambda: len(self.widgets.allocations) + len(self.gadgets.allocations) > calls)
        return task

    def answer_allocate(self, *, fail: bool = False) -> None:
        """Let every plugin answer Allocate; with `fail`, this answer is an error."""
        for plugin in (self.widgets, self.gadgets):
            answer = plugin.allocate_answer

            def once(request: Any, plugin: FakePlugin = plugin, answer: Any = answer) -> Any:
                plugin.allocate_answer = answer
                raise RpcError(StatusCode.INTERNAL, "not today")

            if fail:
                plugin.allocate_answer = once
            plugin._gates.pop("allocate", asyncio.Event()).set()

    async def begin_waiting(self, *pods: Pod) -> list[asyncio.Task[Any]]:
        """Begin admissions that have to wait."""
        tasks = [self.begin(self.manager.allocate(each)) for each in pods]
        await until(lambda: len(self.manager._ongoing._waiting) == len(pods))
        return tasks

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.stack.aclose()


@pytest.fixture
async def node(short_dir: Path) -> AsyncIterator[Node]:
    """Give a node that is not started yet."""
    node = Node(short_dir)
    yield node
    await node.close()


def pod(name: str, widgets: int = 0, gadgets: int = 0) -> Pod:
    return Pod(name, containers=(Container("c", {RESOURCE: widgets, GADGET: gadgets}),))


async def refused(task: asyncio.Task[Any]) -> str:
    with pytest.raises(AdmissionRejected) as error:
        await asyncio.wait_for(task, 20)
    return error.value.message


async def test_a_pod_gets_the_devices_that_another_admission_gives_back(node: Node) -> None:
    """The plugin refuses the other pod.

    A serial kubelet would have refused it before this admission.
    """
    await node.start()
    first = await node.begin_hanging("first", widgets=2)
    [second] = await node.begin_waiting(pod("second", widgets=2))
    node.answer_allocate(fail=True)
    assert "not today" in await refused(first)
    assert {*(await second)["c"][RESOURCE]} == {"w0", "w1"}


async def test_a_pod_is_refused_when_the_other_admission_keeps_the_devices(node: Node) -> None:
    """The refusal comes after the end of the other admission, with the numbers of that time."""
    await node.start()
    first = await node.begin_hanging("first", widgets=1)
    [second] = await node.begin_waiting(pod("second", widgets=2))
    node.answer_allocate()
    await first
    assert "Requested: 2, Available: 1" in await refused(second)


async def test_a_waiting_pod_delays_no_other_pod(node: Node) -> None:
    """Pods with free devices, or of another resource, are admitted while the pod waits."""
    await node.start()
    await node.begin_hanging("first", widgets=1)
    await node.begin_waiting(pod("second", widgets=2))
    await asyncio.wait_for(node.manager.allocate(pod("third", gadgets=1)), 20)
    too_many = node.begin(node.manager.allocate(pod("fourth", gadgets=2)))
    assert "Requested: 2, Available: 1" in await refused(too_many)
    fits = node.begin(node.manager.allocate(pod("fifth", widgets=1)))
    await until(lambda: len(node.widgets.allocations) == 2)
    node.answer_allocate()
    await fits


async def test_two_pods_with_the_same_two_resources_do_not_deadlock(node: Node) -> None:
    """A waiting pod holds no device, so the first pod gets devices of both resources."""
    await node.start()
    holders = [await node.begin_hanging("a", widgets=1), await node.begin_hanging("b", gadgets=1)]
    first, second = await node.begin_waiting(pod("p", 2, 1), pod("q", 1, 2))
    assert node.manager.inventory.reserved(RESOURCE) == {"w0"}
    assert node.manager.inventory.reserved(GADGET) == {"g0"}
    node.answer_allocate(fail=True)
    for holder in holders:
        assert "not today" in await refused(holder)
    assert {name: len(ids) for name, ids in (await first)["c"].items()} == {RESOURCE: 2, GADGET: 1}
    assert "Available:" in await refused(second)


async def test_a_pod_that_cannot_be_stored_frees_its_devices_for_others(node: Node) -> None:
    """Until the store has the first pod, its devices may become free again, so the second pod
    waits.
    """
    await node.start()
    node.store.gate.clear()
    first = node.begin(node.manager.allocate(pod("first", widgets=2)))
    await until(lambda: node.store.asked)
    [second] = await node.begin_waiting(pod("second", widgets=1))
    node.store.error = KubedevicesError("no space left on device")
    node.store.gate.set()
    assert "no space left" in await refused(first)
    node.store.error = None
    await asyncio.wait_for(second, 20)


async def test_an_ongoing_release_is_waited_for(node: Node) -> None:
    """Also a release of an ended pod that another admission began."""
    await node.start()
    node.active = {"default/old"}
    await node.manager.allocate(pod("old", widgets=2))
    node.active = set()
    node.store.gate.clear()
    first = node.begin(node.manager.allocate(pod("first", widgets=1)))
    await until(lambda: node.store.asked == 2)
    [second] = await node.begin_waiting(pod("second", widgets=1))
    node.store.gate.set()
    await asyncio.wait_for(asyncio.gather(first, second), 20)


@pytest.mark.parametrize("end", ["cancel", "release", "stop"])
async def test_a_waiting_admission_ends_with_its_caller_its_pod_or_its_node(
    node: Node, end: str
) -> None:
    """Each end has its own error: caller cancelled, pod released, node stopped."""
    await node.start()
    first = await node.begin_hanging("first", widgets=2)
    [second] = await node.begin_waiting(pod("second", widgets=1))
    if end == "cancel":
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
    elif end == "release":
        assert await node.manager.release("default/second") == {}
        assert "the pod was released while" in await refused(second)
    else:
        await node.manager.stop()
        assert "the node was stopped while" in await refused(second)
        assert "the node was stopped while" in await refused(first)
        return
    assert not node.manager._ongoing._waiting
    node.answer_allocate()
    await first


async def test_the_wait_for_other_admissions_is_bounded(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each admission has deadlines, but a further admission may begin before the last has ended."""
    await node.start()
    monkeypatch.setattr(admission, "_LONGEST_WAIT", 0.05)
    await node.begin_hanging("first", widgets=2)
    assert "Available: 0" in await refused(
        node.begin(node.manager.allocate(pod("second", widgets=1)))
    )


# ---------------------------------------------------------------- changes after the decision


@pytest.mark.parametrize(
    ("policy", "answer"), [("single-numa-node", "Topology"), ("restricted", "Topology"),
                           ("best-effort", "admitted")],
)  # fmt: skip
async def test_devices_that_change_numa_nodes_while_the_plugin_answers(
    node: Node, policy: str, answer: str
) -> None:
    """The decision does not fit any more: strict policies refuse the pod, best-effort admits it."""
    node.widgets = FakePlugin(node.directory, devices=healthy("w0", "w1", numa=(0,)))
    await node.start(policy)
    task = await node.begin_hanging("p", widgets=2)
    await node.widgets.send([*healthy("w0", numa=(0,)), *healthy("w1", numa=(1,))])
    await until(lambda: node.manager.inventory.devices(RESOURCE)["w1"].numa_nodes == (1,))
    node.answer_allocate()
    if answer == "admitted":
        await task
    else:
        assert answer in await refused(task)
        assert not node.manager.inventory.reserved(RESOURCE)


def last_one(request: ContainerPreferredRequest) -> Sequence[str]:
    return request.available[-1:]


async def test_a_plugin_is_asked_again_when_others_took_what_it_preferred(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """The second call offers the devices that are left.

    No warning is logged: the preference was valid.
    """
    ids = [f"w{n}" for n in range(4)]
    node.widgets = FakePlugin(node.directory, devices=healthy(*ids), preferred=last_one)
    await node.start()
    gate = node.widgets.hang("preferred")
    tasks = [node.begin(node.manager.allocate(pod(f"p{n}", widgets=1))) for n in range(3)]
    await until(lambda: len(node.widgets.preferred_requests) == 3)
    gate.set()
    got = [(await task)["c"][RESOURCE] for task in tasks]
    assert sorted(got) == [("w1",), ("w2",), ("w3",)]
    assert ContainerPreferredRequest(("w0", "w1"), (), 1) in node.widgets.preferred_requests
    assert "preferred allocation" not in caplog.text


async def test_a_plugin_is_asked_at_most_four_times(node: Node) -> None:
    """Each preferred device is gone after the call. After four calls any free device is used."""
    ids = [f"w{n}" for n in range(9)]
    node.widgets = FakePlugin(node.directory, devices=healthy(*ids), preferred=last_one)
    await node.start()
    inventory, taken = node.manager.inventory, []

    def prefer_and_reserve(request: ContainerPreferredRequest) -> Sequence[str]:
        taken.append(request.available[-1])
        inventory.reserve(RESOURCE, taken[-1:])
        return taken[-1:]

    node.widgets.preferred_answer = prefer_and_reserve
    assert await node.manager.allocate(pod("p", widgets=1)) == {"c": {RESOURCE: ("w0",)}}
    assert taken == ["w8", "w7", "w6", "w5"]
    inventory.unreserve(RESOURCE, taken)
