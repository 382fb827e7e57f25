"""The device manager as a whole: start and stop, capacity, pods, waiting and events."""

import asyncio
import contextlib
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from kubedevices.errors import DirectoryInUse, LedgerUnusable, ListenFailed, NotInTime, SocketInUse
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.events import EventKind
from kubedevices.node.inventory.inventory import Capacity
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.pods.pod_devices import HeldDevices, Holding
from kubedevices.node.pods.pod_devices_store import AdmittedPod, StoredState
from kubedevices.values.allocation import ContainerAllocateResponse
from tests.fake_plugin import RESOURCE, FakePlugin, healthy, unhealthy
from tests.full_disk import refuse_sockets
from tests.gated_store import PodDevicesInMemory
from tests.golden_data import load
from tests.node_manager import listed
from tests.waiting import until

TRACE = load("capacity_trace")


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def pod(name: str, count: int = 1) -> Pod:
    return Pod(name, containers=(Container("c", {RESOURCE: count}),))


# ---------------------------------------------------------------- start and stop


async def test_stop_works_before_start_and_twice(plugins: Path) -> None:
    """No file is left in the plugin directory."""
    manager = DeviceManager(plugins)
    await manager.stop()
    await manager.start()
    await manager.stop()
    await manager.stop()
    assert names(plugins) == set()


async def test_the_directories_of_a_manager_are_private(
    manager: DeviceManager, plugins: Path
) -> None:
    """State is beside the plugin directory, because a start deletes sockets there."""
    assert (mode(plugins), mode(manager.state_dir)) == (0o750, 0o700)
    assert manager.state_dir.parent == plugins.parent


async def test_a_second_manager_on_the_same_state_directory_is_refused(plugins: Path) -> None:
    """The second manager changes no file. When the first manager stops, the lock is free again."""
    async with DeviceManager(plugins), FakePlugin(plugins) as one:
        with pytest.raises(DirectoryInUse):
            await DeviceManager(plugins).start()
        assert one.socket.is_socket()
    async with DeviceManager(plugins):
        pass


async def test_a_start_that_failed_can_be_repeated(
    plugins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failed start released the lock, so the second start succeeds."""
    manager = DeviceManager(plugins)
    with monkeypatch.context() as full:
        refuse_sockets(plugins, full)
        with pytest.raises(ListenFailed, match="failed to listen to socket"):
            await manager.start()
    async with manager:
        pass


async def test_starting_wipes_the_sockets_of_plugins(short_dir: Path) -> None:
    """The missing socket tells plugins that they have to register again."""
    (short_dir / "notes.txt").write_text("mine")
    async with FakePlugin(short_dir):
        assert names(short_dir) == {"widget.sock", "notes.txt"}
        async with DeviceManager(short_dir, state_dir=short_dir / "state"):
            assert names(short_dir) == {"kubelet.sock", "notes.txt", "state"}


async def test_a_start_that_fails_leaves_the_sockets_of_plugins(plugins: Path) -> None:
    """Some plugins never register again after their socket was deleted."""
    plugins.mkdir()
    async with FakePlugin(plugins) as plugin:
        manager = DeviceManager(plugins)
        ledger = manager.state_dir / "ledger.db"
        ledger.mkdir(parents=True)
        with pytest.raises(LedgerUnusable):
            await manager.start()
        assert plugin.socket.exists()


async def test_no_checkpoint_is_imported_while_its_kubelet_runs(plugins: Path) -> None:
    """A running kubelet still changes its checkpoint."""
    async with DeviceManager(plugins):
        other = DeviceManager(plugins, state_dir=plugins.with_name("other"))
        with pytest.raises(SocketInUse):
            await other.start()
    assert not (other.state_dir / "ledger.db").exists()


async def test_the_repr_of_a_manager_names_its_directory(plugins: Path) -> None:
    """The text has one line, for failing assertions."""
    manager = DeviceManager(plugins)
    assert repr(manager) == f"<DeviceManager {plugins}: 0 plugins, 0 pods>"


# ---------------------------------------------------------------- capacity


def numbers(event: dict[str, Any]) -> tuple[int | None, int | None]:
    return event["capacity"], event["allocatable"]


def now(manager: DeviceManager) -> tuple[int | None, int | None]:
    capacity = manager.get_capacity()
    resource = TRACE["resource"]
    return capacity.capacity.get(resource), capacity.allocatable.get(resource)


async def test_the_capacity_follows_the_plugin_as_in_the_kubelet(
    manager: DeviceManager, plugins: Path
) -> None:
    """The golden trace, over real sockets: connected, listed, lost, expired, registered again."""
    wanted = [numbers(event) for event in TRACE["sequence"]]
    resource = TRACE["resource"]
    async with FakePlugin(plugins, resource) as one:
        await one.send_bytes(None)
        await one.register()
        assert now(manager) == wanted[0]
        await one.send([*healthy("a", "b"), *unhealthy("c")])
        await until(lambda: now(manager) == wanted[1])
    await until(lambda: now(manager) == wanted[2])
    manager.inventory.grace_period = 0
    assert now(manager) == wanted[3]
    assert now(manager) == wanted[4]
    manager.inventory.grace_period = 300
    async with FakePlugin(plugins, resource) as two:
        await two.send_bytes(None)
        await two.register()
        assert now(manager) == wanted[5]
        await two.send(healthy("a"))
        await until(lambda: now(manager) == wanted[6])
    await until(lambda: now(manager) == (1, 0))
    async with FakePlugin(plugins, resource) as three:
        await three.send_bytes(None)
        await three.register()
        assert now(manager) == wanted[7]


async def test_each_resource_has_its_own_capacity(manager: DeviceManager, plugins: Path) -> None:
    """A new list of one resource changes only the numbers of this resource."""
    async with (
        FakePlugin(plugins, devices=[*healthy("a", "b"), *unhealthy("c")]) as one,
        FakePlugin(plugins, "example.com/gadget", socket_name="g.sock") as two,
    ):
        await two.send([*healthy("x"), *unhealthy("y", "z")])
        await one.register()
        await two.register()
        await manager.wait_for(RESOURCE, capacity=3, allocatable=2)
        await manager.wait_for("example.com/gadget", capacity=3, allocatable=1)
        for devices, capacity, allocatable in (
            (healthy("a", "b"), 2, 2),
            ([*unhealthy("a"), *healthy("b")], 2, 1),
            (unhealthy("a"), 1, 0),
        ):
            await one.send(devices)
            await manager.wait_for(RESOURCE, capacity=capacity, allocatable=allocatable)
        assert manager.get_capacity().allocatable["example.com/gadget"] == 1


async def test_only_healthy_devices_are_allocatable(manager: DeviceManager) -> None:
    """A held device stays allocatable. A device that becomes healthy is added."""
    async with listed(manager, [*healthy("a"), *unhealthy("b")]) as one:
        await manager.allocate(pod("p"))
        assert [*manager.get_allocatable_devices()[RESOURCE]] == ["a"]
        await one.send(healthy("a", "b"))
        await manager.wait_for(RESOURCE, allocatable=2)
        devices = manager.get_allocatable_devices()[RESOURCE]
        assert devices == {device.id: device for device in healthy("a", "b")}


async def test_held_devices_come_with_their_numa_nodes(manager: DeviceManager) -> None:
    """A device on two nodes is listed under both. A device without a node is listed under -1."""
    devices = [*healthy("a", numa=(0, 1)), *healthy("b"), *healthy("c", numa=())]
    async with listed(manager, devices):
        await manager.allocate(pod("p", 3))
        held = manager.get_devices("default/p", "c")[RESOURCE]
        assert {node: set(ids) for node, ids in held.items()} == {
            0: {"a"},
            1: {"a"},
            -1: {"b", "c"},
        }
        assert manager.get_devices("default/p", "other") == {}


# ---------------------------------------------------------------- pods


async def test_release_frees_all_devices_of_a_pod(manager: DeviceManager) -> None:
    """A second release of the same pod returns no device."""
    async with listed(manager, healthy("a", "b")):
        await manager.allocate(pod("p", 2))
        released = await manager.release("default/p")
        assert {name: set(ids) for name, ids in released.items()} == {RESOURCE: {"a", "b"}}
        assert await manager.release("default/p") == {}
        assert not manager.pods()
        await manager.allocate(pod("q", 2))


async def test_pods_that_are_no_longer_active_are_cleaned_up(plugins: Path) -> None:
    """Before the next admission. `active_pods` need not have the pod that is admitted."""
    active = {"default/p"}
    async with (
        DeviceManager(plugins, active_pods=lambda: active) as manager,
        listed(manager, healthy("a")),
    ):
        await manager.allocate(pod("p"))
        active.clear()
        await manager.allocate(pod("q"))
        assert [each.name for each in manager.pods()] == ["q"]


class StoreWithOldPod(PodDevicesInMemory):
    """A store that has a pod of an earlier start."""

    closed = False

    async def load(self) -> StoredState:
        held = HeldDevices({-1: ["a"]}, ContainerAllocateResponse(env={"IDS": "a"}))
        return StoredState([AdmittedPod(pod("old"), [Holding("default/old", "c", RESOURCE, held)])])

    async def release(self, pod_uids: Collection[str]) -> None:
        assert not self.closed

    async def close(self) -> None:
        self.closed = True


async def test_pods_of_an_earlier_start_keep_their_devices(plugins: Path) -> None:
    """Their resource has no capacity until its plugin registers."""
    store = StoreWithOldPod()
    async with (
        DeviceManager(plugins, store=store) as manager,
        FakePlugin(plugins, devices=healthy("a", "b")) as one,
    ):
        assert manager.get_capacity() == Capacity({RESOURCE: 0}, {RESOURCE: 0})
        await one.register()
        await manager.wait_for(RESOURCE, allocatable=2)
        assert (await manager.allocate(pod("new")))["c"] == {RESOURCE: ("b",)}
        assert await manager.release("default/old") == {RESOURCE: ("a",)}
    assert store.closed


async def test_events_name_pods_and_their_devices(manager: DeviceManager) -> None:
    """Allocated, rejected and released: one event for each change, with the name of the pod."""
    async with listed(manager, healthy("a")):
        with manager.subscribe() as events:
            await manager.allocate(pod("p"))
            await manager.allocate(pod("p"))
            with contextlib.suppress(Exception):
                await manager.allocate(pod("q"))
            await manager.release("default/p")
            await manager.release("default/p")
            told = [event.as_dict() for event in events.backlog]
    assert told == [
        {
            "event": "allocated",
            "pod": "default/p",
            "containers": {"c": {RESOURCE: ["a"]}},
        },
        {
            "event": "rejected",
            "pod": "default/q",
            "reason": "UnexpectedAdmissionError",
            "message": "Allocate failed due to requested number of devices unavailable for "
            f"{RESOURCE}. Requested: 1, Available: 0, which is unexpected",
        },
        {"event": "released", "pod": "default/p", "devices": {RESOURCE: ["a"]}},
    ]


# ---------------------------------------------------------------- waiting


async def test_a_wait_timeout_reports_the_device_counts(manager: DeviceManager) -> None:
    """The message has all counts, so that a failed test explains itself."""
    async with listed(manager, healthy("a")):
        text = f"{RESOURCE}: not capacity 1 and allocatable 2 within 0.05 s, it is: "
        with pytest.raises(NotInTime, match=re.escape(text + f"{RESOURCE} capacity 1")):
            await manager.wait_for(RESOURCE, capacity=1, allocatable=2, timeout=0.05)
        with pytest.raises(NotInTime, match="not listed within"):
            await manager.wait_for("example.com/other", timeout=0.05)


async def test_waiting_ends_when_the_manager_stops(plugins: Path) -> None:
    """`wait_for` raises an error at once, because no device can appear any more."""
    manager = DeviceManager(plugins)
    await manager.start()
    waiting = asyncio.ensure_future(manager.wait_for(RESOURCE, timeout=60))
    await asyncio.sleep(0)
    await manager.stop()
    with pytest.raises(NotInTime, match="no resource is registered"):
        await asyncio.wait_for(waiting, 5)


async def test_a_stream_of_events_ends_when_the_manager_stops(plugins: Path) -> None:
    """A listener that iterates gets every event before the end."""
    manager = DeviceManager(plugins)
    events = manager.subscribe()
    async with manager, listed(manager, healthy("a")):
        await manager.stop()
    kinds = [event.kind async for event in events]
    assert kinds == [EventKind.REGISTERED, EventKind.LIST_CHANGED, EventKind.DISCONNECTED]
