"""Each caller of the device manager gets a correct answer, also while the manager stops."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from kubedevices.errors import AdmissionRejected, GivenUp, KubedevicesError
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.ledger.ledger import Ledger
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.pods.pod_devices import Holding
from tests.fake_plugin import RESOURCE, FakePlugin, healthy
from tests.waiting import until

POD = Pod("p", containers=(Container("c", {RESOURCE: 1}),))
HELD = {"c": {RESOURCE: ("w0",)}}


class SlowLedger(Ledger):
    """Counts its calls. Each call waits until the gate is open."""

    def __init__(self, state_dir: Path) -> None:
        super().__init__(state_dir, state_dir / "no checkpoint")
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked, self.confirming = 0, False

    async def commit(self, pod: Pod, holdings: Sequence[Holding]) -> None:
        await self._wait()
        await super().commit(pod, holdings)

    async def release(self, pod_uids: Collection[str]) -> None:
        await self._wait()
        await super().release(pod_uids)

    async def mark_verified(self, pod_uid: str) -> None:
        self.confirming = True
        await self._wait()
        await super().mark_verified(pod_uid)

    async def _wait(self) -> None:
        self.asked += 1
        await self.gate.wait()


class Node:
    """A device manager with one plugin on a slow ledger. The manager can be started again."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.state = directory / "p", directory / "s"
        self.plugin = FakePlugin(self.directory, devices=healthy("w0", "w1"), pre_start=True)
        self.begin()

    def begin(self) -> None:
        self.ledger = SlowLedger(self.state)
        self.manager = DeviceManager(self.directory, state_dir=self.state, store=self.ledger)

    async def register(self) -> None:
        await self.plugin.register()
        await until(lambda: self.manager.inventory.has_reported(RESOURCE))

    async def kept_after_restart(self) -> Any:
        """Return the devices that the pod holds after the next start."""
        self.begin()
        async with self.manager:
            return self.manager.get_allocation(POD.uid)

    async def begin_commit(self) -> "asyncio.Task[Any]":
        """Begin an admission whose commit hangs."""
        self.ledger.gate.clear()
        task = asyncio.create_task(self.manager.allocate(POD))
        await until(lambda: self.ledger.asked == 1)
        return task

    async def begin_stop(self) -> "asyncio.Task[None]":
        """Begin to stop; return when the queue has cancelled all work that can be cancelled."""
        task = asyncio.create_task(self.manager.stop())
        await until(lambda: self.manager._pod_queue._is_closed)
        await asyncio.sleep(0)
        return task


@pytest.fixture
async def node(short_dir: Path) -> AsyncIterator[Node]:
    """Give a running node."""
    node = Node(short_dir)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(node.manager)
        await stack.enter_async_context(node.plugin)
        await node.register()
        yield node
        node.ledger.gate.set()
        await node.manager.stop()


async def test_a_pod_whose_commit_is_under_way_is_admitted(node: Node) -> None:
    """The ledger stores the pod, so the admission succeeds."""
    admission = await node.begin_commit()
    stopping = await node.begin_stop()
    node.ledger.gate.set()
    assert await admission == HELD
    await stopping
    assert await node.kept_after_restart() == HELD


async def test_a_pod_whose_commit_fails_while_the_node_stops_is_refused(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the reason of the failed commit, not the stop."""

    async def fail(*_: object) -> None:
        raise KubedevicesError("no space left on device")

    monkeypatch.setattr(Ledger, "commit", fail)
    admission = await node.begin_commit()
    stopping = await node.begin_stop()
    node.ledger.gate.set()
    with pytest.raises(AdmissionRejected, match="no space left"):
        await admission
    await stopping


async def test_a_pod_released_during_its_commit_is_admitted_and_then_released(node: Node) -> None:
    """Both callers get a result, in this order."""
    admission = await node.begin_commit()
    release = asyncio.create_task(node.manager.release(POD.uid))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    node.ledger.gate.set()
    assert await admission == HELD
    assert await release == HELD["c"]


async def test_a_release_that_has_begun_is_answered_during_the_stop(node: Node) -> None:
    """The answer has the released devices, and the ledger has no pod any more."""
    await node.manager.allocate(POD)
    node.ledger.gate.clear()
    release = asyncio.create_task(node.manager.release(POD.uid))
    await until(lambda: node.ledger.asked == 2)
    stopping = await node.begin_stop()
    node.ledger.gate.set()
    assert await release == HELD["c"]
    await stopping
    assert await node.kept_after_restart() == {}


async def test_waiting_admissions_and_releases_fail_when_the_node_stops(node: Node) -> None:
    """A release that waits for a commit changes nothing and raises an error.

    A waiting admission is refused.
    """
    admission = await node.begin_commit()
    release = asyncio.create_task(node.manager.release(POD.uid))
    again = asyncio.create_task(node.manager.allocate(POD))
    await asyncio.sleep(0)
    stopping = await node.begin_stop()
    node.ledger.gate.set()
    assert await admission == HELD
    with pytest.raises(GivenUp, match="the node stopped before"):
        await release
    with pytest.raises(AdmissionRejected, match="the node was stopped while"):
        await again
    await stopping
    assert await node.kept_after_restart() == HELD


async def test_a_pod_whose_boot_is_being_stored_is_admitted(node: Node) -> None:
    """A pod of an earlier start is admitted again.

    The stop begins while the ledger stores that the pod belongs to this boot.
    """
    await node.manager.allocate(POD)
    await node.manager.stop()
    node.begin()
    await node.manager.start()
    node.plugin = FakePlugin(node.directory, socket_name="new.sock", devices=healthy("w0"))
    await node.plugin.start()
    await node.register()
    node.ledger.gate.clear()
    admission = asyncio.create_task(node.manager.allocate(POD))
    await until(lambda: node.ledger.asked)
    node.ledger.gate.set()
    node.ledger.gate.clear()
    await until(lambda: node.ledger.confirming)
    stopping = await node.begin_stop()
    node.ledger.gate.set()
    assert await admission == HELD
    await stopping
    await node.plugin.stop()


Ask = Callable[[DeviceManager], Awaitable[object]]


@pytest.mark.parametrize("method", ["preferred", "allocate", "pre_start"])
@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_a_stop_is_an_error_for_callers_and_no_cancellation(
    node: Node, how: str, method: str
) -> None:
    """A plugin hangs.

    If the node stops, the caller gets an error with a reason; if the caller is cancelled, it gets
    CancelledError.
    """
    if method == "preferred":
        node.plugin = FakePlugin(
            node.directory,
            socket_name="other.sock",
            devices=healthy("w0"),
            preferred=lambda r: r.available,
        )
        await node.plugin.start()
        opened = node.plugin.streams_opened
        await node.plugin.register()
        await until(lambda: node.plugin.streams_opened > opened)
        await node.manager.wait_for(RESOURCE, capacity=1)
    ask: Ask = lambda manager: manager.allocate(POD)  # noqa: E731
    if method == "pre_start":
        await node.manager.allocate(POD)
        ask = lambda manager: manager.get_device_run_container_options(POD, "c")  # noqa: E731
    node.plugin.hang(method)
    asking = asyncio.ensure_future(ask(node.manager))
    calls = {
        "preferred": node.plugin.preferred_requests,
        "allocate": node.plugin.allocations,
        "pre_start": node.plugin.pre_starts,
    }
    await until(lambda: calls[method])
    if how == "stop":
        await node.manager.stop()
        with pytest.raises(KubedevicesError) as error:
            await asking
        assert str(error.value)
    else:
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    await node.plugin.stop()


async def test_a_release_in_a_cancelled_task_is_answered(node: Node) -> None:
    """A task that releases a pod after its own cancellation gets the true answer too."""
    await node.manager.allocate(POD)
    told: list[object] = []

    async def clean_up() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append(await node.manager.release(POD.uid))
            with pytest.raises(AdmissionRejected, match="released while"):
                await asyncio.gather(node.manager.allocate(POD), release_soon())
            raise

    async def release_soon() -> None:
        node.plugin.hang("allocate")
        calls = len(node.plugin.allocations)
        await until(lambda: len(node.plugin.allocations) > calls)
        told.append(await node.manager.release(POD.uid))

    task = asyncio.create_task(clean_up())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told[0] == HELD["c"]


async def test_a_stop_whose_caller_is_cancelled_goes_on(node: Node) -> None:
    """A second `stop` waits for the end. Then the directory is free for the next node."""
    node.ledger.gate.clear()
    admission = asyncio.create_task(node.manager.allocate(POD))
    await until(lambda: node.ledger.asked)
    stopping = await node.begin_stop()
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    again = asyncio.create_task(node.manager.stop())
    await asyncio.sleep(0)
    assert not again.done()
    node.ledger.gate.set()
    await again
    assert await admission == HELD
    assert await node.kept_after_restart() == HELD
