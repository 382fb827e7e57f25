"""Plugins register, overlap, end and register again: the newest running instance counts."""

import asyncio
import contextlib
from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.errors import AdmissionRejected, RpcError, StatusCode
from kubedevices.node.arrival import endpoint_table
from kubedevices.node.arrival.endpoint import INSTANCE_LIMIT, Endpoint, PluginTimeouts
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.events import EventKind, EventStream
from kubedevices.node.loop_slices import LoopSlices
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.settings import NodeSettings
from kubedevices.wire import grpc_channel
from kubedevices.wire.peers import Peer
from tests.fake_plugin import RESOURCE, FakePlugin, as_list, healthy, unhealthy
from tests.node_manager import listed
from tests.waiting import until
from tests.widgets import DOMAIN, QUICK, Widgets, widgets

ONE = Pod("p", containers=(Container("c", {RESOURCE: 1}),))
TABLES = ("_endpoints", "_readers", "_replaced", "_closing", "_expiries")


def open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def lowest_allocatable(events: EventStream) -> int:
    """Return the lowest number of healthy devices in any event so far."""
    lowest = 10**9
    while events.backlog:
        event = events.backlog.popleft()
        if event.kind is EventKind.DISCONNECTED:
            lowest = 0
        lowest = min(lowest, event.details.get("allocatable", lowest))
    return lowest


# ---------------------------------------------------------------- rolling updates


@pytest.mark.parametrize("second_socket", ["new.sock", "widget.sock"])
async def test_a_rolling_update_never_lowers_allocatable(
    manager: DeviceManager, plugins: Path, second_socket: str
) -> None:
    """The new instance lists, then the old one ends: three devices all the time."""
    async with contextlib.AsyncExitStack() as stack:
        old = await stack.enter_async_context(listed(manager, healthy("a", "b", "c")))
        with manager.subscribe() as events:
            if second_socket == old.socket_name:
                old.socket.rename(plugins / "taken-over.sock")
            new = FakePlugin(plugins, socket_name=second_socket, devices=healthy("a", "b", "d"))
            await stack.enter_async_context(new)
            await new.register()
            await until(lambda: "d" in manager.inventory.devices(RESOURCE))
            await old.stop()
            await new.send(healthy("a", "b", "d", "e"))
            await manager.wait_for(RESOURCE, allocatable=4)
            assert lowest_allocatable(events) == 3
        await manager.allocate(ONE)
        assert (old.allocations, len(new.allocations)) == ([], 1)


async def test_the_old_instance_may_end_before_the_new_one_has_listed(
    manager: DeviceManager, plugins: Path
) -> None:
    """The old list stays valid meanwhile, and calls go to the running instance."""
    async with (
        listed(manager, healthy("a", "b")) as old,
        FakePlugin(plugins, socket_name="new.sock") as new,
    ):
        await new.send_bytes(None)
        await new.register()
        with manager.subscribe() as events:
            await old.stop()
            await until(lambda: len(manager._endpoints) == 1 or old.socket.exists() is False)
            assert manager.get_capacity().allocatable == {RESOURCE: 2}
            await manager.allocate(ONE)
            assert len(new.allocations) == 1
            await new.send(healthy("b", "c", "d"))
            await manager.wait_for(RESOURCE, allocatable=3)
            assert lowest_allocatable(events) >= 2


async def test_when_the_new_instance_ends_the_old_one_takes_over_again(
    manager: DeviceManager,
) -> None:
    """After a failed update the resource has the devices of the instance that still runs."""
    async with listed(manager, healthy("a", "b")) as old:
        async with listed(manager, healthy("c"), socket_name="new.sock"):
            pass
        await manager.wait_for(RESOURCE, allocatable=2)
        await manager.allocate(ONE)
        assert len(old.allocations) == 1


async def test_lists_of_a_replaced_instance_are_ignored(
    manager: DeviceManager, plugins: Path
) -> None:
    """Both instances run; the newest registration defines the list."""
    async with (
        listed(manager, healthy("a")) as old,
        FakePlugin(plugins, socket_name="new.sock", devices=healthy("b", "c")) as new,
    ):
        await new.register()
        await manager.wait_for(RESOURCE, allocatable=2)
        await old.send(healthy("x", "y", "z"))
        await new.send(healthy("b", "c", "d", "e"))
        await manager.wait_for(RESOURCE, allocatable=4)
        assert set(manager.inventory.devices(RESOURCE)) == {"b", "c", "d", "e"}


async def test_an_allocate_in_flight_survives_the_update(
    manager: DeviceManager, plugins: Path
) -> None:
    """The old instance answers, although a new instance on the same socket has replaced it."""
    async with contextlib.AsyncExitStack() as stack:
        old = await stack.enter_async_context(listed(manager, healthy("a")))
        gate = old.hang("allocate")
        admission = asyncio.ensure_future(manager.allocate(ONE))
        await until(lambda: old.allocations)
        old.socket.rename(plugins / "taken-over.sock")
        await stack.enter_async_context(listed(manager, healthy("a", "b")))
        gate.set()
        assert await admission == {"c": {RESOURCE: ("a",)}}


# ---------------------------------------------------------------- registering again


async def test_registering_twenty_times_leaks_nothing(manager: DeviceManager) -> None:
    """One stream, one connection, no more open files than before, and one event for an update."""
    async with listed(manager, healthy("a")) as one:
        files = open_files()
        for _ in range(20):
            await one.register()
        await until(lambda: one.open_streams == 1 and len(manager._endpoints) == 1)
        await until(lambda: not manager._endpoints._closing)
        await until(lambda: open_files() <= files, what="open files")
        with manager.subscribe() as events:
            await one.send(healthy("a", "b"))
            await manager.wait_for(RESOURCE, allocatable=2)
            assert len(events.backlog) == 1


async def test_registering_often_without_a_list_leaks_nothing(
    manager: DeviceManager, plugins: Path
) -> None:
    """An instance that is replaced before its first list is closed at once."""
    async with FakePlugin(plugins) as one:
        await one.send_bytes(None)
        for _ in range(5):
            await one.register()
            assert len(manager._endpoints) == 1


async def test_registering_again_from_the_same_socket_keeps_the_stream(
    manager: DeviceManager,
) -> None:
    """Some plugins end for ever when a stream ends, and a kubelet ends none. A new stream begins
    only after the old stream has ended.
    """
    async with listed(manager, healthy("a")) as one:
        for _ in range(3):
            await one.register()
        assert (one.streams_opened, one.open_streams, one.options_asked) == (1, 1, 4)
        await one.end_streams()
        await one.register()
        await until(lambda: one.streams_opened >= 2 and one.open_streams == 1)
        await manager.wait_for(RESOURCE, allocatable=1)


async def test_the_replaced_stream_ends_only_when_the_new_one_has_listed(
    manager: DeviceManager, plugins: Path
) -> None:
    """Otherwise a plugin that registers after the loss of its last stream would register without
    end. A new socket file at the same path is a new instance, also in the same process.
    """
    async with contextlib.AsyncExitStack() as stack:
        one = await stack.enter_async_context(listed(manager, healthy("a")))
        one.socket.rename(plugins / "taken-over.sock")
        two = await stack.enter_async_context(FakePlugin(plugins, devices=healthy("a", "b")))
        two.hang("list")
        await two.register()
        await until(lambda: two.streams_opened == 1)
        assert one.open_streams == 1
        assert manager.get_capacity().allocatable == {RESOURCE: 1}
        two.hang("list").set()
        await until(lambda: one.open_streams == 0)
        await manager.wait_for(RESOURCE, allocatable=2)


async def test_the_number_of_instances_of_a_plugin_is_limited(
    manager: DeviceManager, plugins: Path
) -> None:
    """Beyond the limit the oldest instances are closed. The newest counts."""
    async with contextlib.AsyncExitStack() as stack:
        for n in range(INSTANCE_LIMIT + 2):
            plugin = FakePlugin(plugins, socket_name=f"{n}.sock", devices=healthy(f"d{n}"))
            await stack.enter_async_context(plugin)
            await plugin.register()
        await until(lambda: len(manager._endpoints) == INSTANCE_LIMIT)
        await until(lambda: set(manager.inventory.devices(RESOURCE)) == {f"d{n}"})


async def test_a_new_resource_beyond_the_limit_is_refused(
    manager: DeviceManager, plugins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A known plugin may register again."""
    monkeypatch.setattr(endpoint_table, "PLUGIN_LIMIT", 1)
    async with (
        FakePlugin(plugins) as one,
        FakePlugin(plugins, "example.com/gadget", socket_name="g.sock") as two,
    ):
        await one.register()
        with pytest.raises(RpcError, match=r"example\.com/gadget is refused: 1 plugins are"):
            await two.register()
        await one.register()
        assert [*manager.inventory] == [RESOURCE]


async def test_a_process_that_connected_meanwhile_counts_for_the_limit(
    manager: DeviceManager, plugins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many registrations at once do not exceed the limit; a hanging one takes no place."""
    monkeypatch.setattr(endpoint_table, "PLUGIN_LIMIT", 1)
    async with (
        FakePlugin(plugins) as one,
        FakePlugin(plugins, "example.com/gadget", socket_name="g.sock") as two,
    ):
        gate = one.hang("options")
        first = asyncio.ensure_future(one.register())
        await until(lambda: one.options_asked)
        await two.register()
        gate.set()
        with pytest.raises(RpcError, match=r"is refused: 1 plugins are") as caught:
            await first
        assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
        assert [*manager.inventory] == ["example.com/gadget"]


async def test_one_process_cannot_take_all_places(
    manager: DeviceManager, plugins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next resource is refused for now; its known resources may register again."""
    monkeypatch.setattr(endpoint_table, "PLUGINS_OF_PEER", 1)
    async with (
        FakePlugin(plugins) as one,
        FakePlugin(plugins, "example.com/gadget", socket_name="g.sock") as two,
    ):
        await one.register()
        with pytest.raises(RpcError, match=r"1 plugins of one process are") as caught:
            await two.register()
        assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
        await one.register()
        assert [*manager.inventory] == [RESOURCE]


async def test_a_process_with_many_resources_gets_no_known_resources_of_others(
    manager: DeviceManager, plugins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its plugin restarts: the limit is for the process that registers."""
    caller = Peer(0, 7)
    monkeypatch.setattr(endpoint_table, "PLUGINS_OF_PEER", 1)
    monkeypatch.setattr(grpc_channel, "peer_of", lambda _: caller)
    async with (
        listed(manager, healthy("a")),
        FakePlugin(plugins, "example.com/gadget", socket_name="g.sock") as two,
        FakePlugin(plugins, devices=healthy("b"), socket_name="other.sock") as three,
    ):
        caller = Peer(0, 8)
        await two.register()
        with pytest.raises(RpcError, match=r"1 plugins of one process are"):
            await three.register()
        assert {*manager.inventory.devices(RESOURCE)} == {"a"}


async def test_a_third_instance_brings_its_own_list(manager: DeviceManager, plugins: Path) -> None:
    """Two devices, the same two from another socket, then one other device."""
    async with contextlib.AsyncExitStack() as stack:
        for name, ids in (("1.sock", "ab"), ("2.sock", "ab"), ("3.sock", "c")):
            plugin = FakePlugin(plugins, socket_name=name, devices=healthy(*ids))
            await stack.enter_async_context(plugin)
            await plugin.register()
            await until(lambda ids=ids: set(manager.inventory.devices(RESOURCE)) == set(ids))  # type: ignore[misc]
            assert manager.get_capacity().capacity == {RESOURCE: len(ids)}


async def test_a_failed_registration_does_not_touch_the_live_instance(plugins: Path) -> None:
    """The first plugin stays registered, and its end is still noticed."""
    async with (
        DeviceManager(plugins, settings=NodeSettings(timeouts=PluginTimeouts(dial=0.5))) as manager,
        listed(manager, healthy("a")) as good,
        FakePlugin(plugins, socket_name="bad.sock") as bad,
    ):
        bad.options = RpcError(StatusCode.INTERNAL, "no")
        for endpoint in ("bad.sock", "nobody.sock"):
            with pytest.raises(RpcError):
                await bad.register(endpoint=endpoint)
        assert manager.get_capacity().allocatable == {RESOURCE: 1}
        await good.stop()
        await manager.wait_for(RESOURCE, capacity=1, allocatable=0)


async def test_a_failed_registration_leaves_no_connection_open(
    manager: DeviceManager, plugins: Path
) -> None:
    """The node closes the connection to a plugin whose options call failed."""
    async with FakePlugin(plugins) as bad:
        bad.options = RpcError(StatusCode.INTERNAL, "no")
        with pytest.raises(RpcError):
            await bad.register()
        files = open_files()
        for _ in range(5):
            with pytest.raises(RpcError):
                await bad.register()
        await until(lambda: open_files() <= files, what="open files")
        assert len(manager._endpoints) == 0


async def test_plugins_register_at_the_same_time(manager: DeviceManager, plugins: Path) -> None:
    """A plugin that hangs delays no other."""
    async with contextlib.AsyncExitStack() as stack:
        stuck = await stack.enter_async_context(FakePlugin(plugins, "example.com/stuck"))
        stuck.hang("options")
        waiting = asyncio.ensure_future(stuck.register())
        await until(lambda: stuck.options_asked)
        good = FakePlugin(plugins, socket_name="good.sock", devices=healthy("a"))
        await stack.enter_async_context(good)
        await good.register()
        await manager.wait_for(RESOURCE, allocatable=1)
        assert not waiting.done()
        waiting.cancel()


async def test_a_repeated_register_connects_once(manager: DeviceManager, plugins: Path) -> None:
    """The abandoned registration leaves no second stream and no second connection."""
    async with FakePlugin(plugins, devices=healthy("a")) as one:
        gate = one.hang("options")
        first = asyncio.ensure_future(one.register())
        await until(lambda: one.options_asked)
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        gate.set()
        await one.register()
        await manager.wait_for(RESOURCE, allocatable=1)
        await until(lambda: one.open_streams == 1)
        assert len(manager._endpoints) == 1


# ---------------------------------------------------------------- lists


@pytest.mark.parametrize(
    ("devices", "capacity", "allocatable"),
    [
        ([], 0, 0),
        ([*healthy("a", "a"), *unhealthy("a"), *healthy("b")], 2, 1),
        ([*healthy("", "x" * 300)], 2, 2),
        ([healthy("a")[0]._replace(health=word) for word in ("healthy", "", "Healthy ")], 1, 0),
    ],
    ids=["empty", "duplicates", "odd ids", "odd health"],
)
async def test_lists_with_unusual_devices_are_accepted(
    manager: DeviceManager, plugins: Path, devices: list[object], capacity: int, allocatable: int
) -> None:
    """An ID counts once, and unhealthy wins. Any word but Healthy counts as unhealthy."""
    async with FakePlugin(plugins) as one:
        await one.send(devices)  # type: ignore[arg-type]
        await one.register()
        await manager.wait_for(RESOURCE, capacity=capacity, allocatable=allocatable)


async def test_an_unknown_word_for_health_is_logged(
    manager: DeviceManager, plugins: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise users search for broken hardware, although the plugin sends a wrong word."""
    odd = healthy("a")[0]._replace(health="healthy")
    async with FakePlugin(plugins) as one:
        await one.send([odd, *unhealthy("b")])
        await one.register()
        await manager.wait_for(RESOURCE, capacity=2)
    told = [text for text in caplog.messages if "counts as Unhealthy" in text]
    assert told == [
        f"{RESOURCE}: health 'healthy' counts as Unhealthy; the kubelet knows Healthy and Unhealthy"
    ]


async def test_a_list_of_100_000_devices_is_accepted(manager: DeviceManager, plugins: Path) -> None:
    """A kubelet accepts at most 4 MiB."""
    devices = healthy(*(f"device-with-a-rather-long-name-{n:06}" for n in range(100_000)))
    assert len(as_list(devices)) > 4 * 2**20
    async with FakePlugin(plugins, devices=devices) as one:
        await one.register()
        await manager.wait_for(RESOURCE, allocatable=100_000, timeout=30)


async def test_identical_lists_cause_no_events(manager: DeviceManager) -> None:
    """Some plugins send the same list again and again."""
    async with listed(manager, healthy("a")) as one:
        with manager.subscribe() as events:
            for _ in range(5):
                await one.send(healthy("a"))
            await one.send(healthy("a", "b"))
            await manager.wait_for(RESOURCE, allocatable=2)
            assert [event.kind for event in events.backlog] == [EventKind.LIST_CHANGED]


async def test_list_received_tells_whether_a_list_changed_something(
    manager: DeviceManager, plugins: Path
) -> None:
    """True for the first list, even an empty one. False for an unknown endpoint."""
    async with FakePlugin(plugins) as one:
        await one.register()
        await manager.wait_for(RESOURCE, capacity=0)
        table = manager._endpoints
        endpoint = table.find(RESOURCE)
        assert endpoint is not None
        lists = [healthy("a"), healthy("a"), healthy("b"), []]
        said = [
            await table.list_received(endpoint, tuple(devices), LoopSlices()) for devices in lists
        ]
        assert said == [True, False, True, True]
        stranger = Endpoint(RESOURCE, plugins / "stranger.sock")
        assert not await table.list_received(stranger, tuple(healthy("x")), LoopSlices())


async def test_events_name_the_changes_of_a_list(manager: DeviceManager, plugins: Path) -> None:
    """Appeared, vanished and moved devices are in one event, changes of health in another."""
    async with FakePlugin(plugins) as one:
        with manager.subscribe() as events:
            await one.send([*healthy("a", "b", numa=(0,)), *healthy("c")])
            await one.register()
            assert (await anext(events)).as_dict() == {
                "event": "registered",
                "resource": RESOURCE,
                "socket": "widget.sock",
            }
            assert (await anext(events)).details == {
                "capacity": 3,
                "allocatable": 3,
                "appeared": ["a", "b", "c"],
                "vanished": [],
                "moved": [],
            }
            await one.send([*healthy("a", numa=(1,)), *unhealthy("c"), *healthy("d")])
            changed = await anext(events)
            assert changed.kind is EventKind.LIST_CHANGED
            assert changed.details == {
                "capacity": 3,
                "allocatable": 2,
                "appeared": ["d"],
                "vanished": ["b"],
                "moved": ["a"],
            }
            assert (await anext(events)).as_dict() == {
                "event": "health changed",
                "resource": RESOURCE,
                "capacity": 3,
                "allocatable": 2,
                "devices": {"c": "Unhealthy"},
            }
            await one.stop()
            gone = await anext(events)
            assert (gone.kind, gone.details["devices"]) == (EventKind.DISCONNECTED, 3)


# ---------------------------------------------------------------- the grace period


async def test_a_lost_plugin_keeps_its_capacity_for_the_grace_period(plugins: Path) -> None:
    """Then a timer removes the resource, with one event."""
    async with DeviceManager(plugins, settings=NodeSettings(grace_period=0.6)) as manager:
        with manager.subscribe() as events:
            async with FakePlugin(plugins, devices=healthy("a", "b")) as one:
                await one.register()
                await manager.wait_for(RESOURCE, allocatable=2)
            await manager.wait_for(RESOURCE, capacity=2, allocatable=0)
            kinds = []
            while EventKind.REMOVED not in kinds:
                kinds.append((await asyncio.wait_for(anext(events), 5)).kind)
            assert manager.get_capacity() == ({}, {}, ())
            assert not events.backlog


async def test_removed_resources_leave_nothing_behind(plugins: Path) -> None:
    """A plugin may register under another name every minute, for years."""
    async with DeviceManager(plugins, settings=NodeSettings(grace_period=0.01)) as manager:
        for n in range(3):
            async with FakePlugin(plugins, f"example.com/r{n}", devices=healthy("a")) as plugin:
                await plugin.register()
                await manager.wait_for(plugin.resource)
            await until(lambda: not manager.get_capacity().capacity)
        await until(lambda: not any(vars(manager._endpoints)[each] for each in TABLES))


async def test_a_plugin_that_registers_again_in_time_stops_the_timer(plugins: Path) -> None:
    """Its devices are back, and nothing is removed later."""
    async with DeviceManager(plugins, settings=NodeSettings(grace_period=1)) as manager:
        with manager.subscribe() as events:
            for _ in range(2):
                async with FakePlugin(plugins, devices=healthy("a")) as one:
                    await one.register()
                    await manager.wait_for(RESOURCE, allocatable=1)
                await manager.wait_for(RESOURCE, allocatable=0)
            async with listed(manager, healthy("a")):
                loop = asyncio.get_running_loop()
                past_the_grace_period = loop.time() + 1.1
                await until(lambda: loop.time() > past_the_grace_period)
                assert manager.get_capacity().allocatable == {RESOURCE: 1}
            assert EventKind.REMOVED not in {event.kind for event in events.backlog}


async def test_a_lost_stream_is_opened_again_without_a_registration(manager: DeviceManager) -> None:
    """The plugin does not register again, but its socket is still there: allocatable returns."""
    async with listed(manager, healthy("a")) as one:
        with manager.subscribe() as events:
            await one.end_streams()
            assert (await anext(events)).kind is EventKind.DISCONNECTED
            await manager.wait_for(RESOURCE, allocatable=1)
        await manager.allocate(ONE)


async def test_a_stream_that_fails_at_once_leaves_a_resource_without_devices(
    manager: DeviceManager, plugins: Path
) -> None:
    """The node shows 0/0, and the resource stays known."""
    async with FakePlugin(plugins) as one:
        one.errors["list"] = RpcError(StatusCode.INTERNAL, "broken")
        await one.register()
        await manager.wait_for(RESOURCE, capacity=0, allocatable=0)
        assert manager.inventory.is_known(RESOURCE)


# ---------------------------------------------------------------- the end


async def test_stop_closes_everything(plugins: Path) -> None:
    """No task, no stream and no socket is left, although an admission was ongoing."""
    before = asyncio.all_tasks()
    manager = DeviceManager(plugins)
    await manager.start()
    async with FakePlugin(plugins, devices=healthy("a")) as one:
        await one.register()
        await one.register()
        await manager.wait_for(RESOURCE, allocatable=1)
        one.hang("allocate")
        admission = asyncio.ensure_future(manager.allocate(ONE))
        await until(lambda: one.allocations)
        await manager.stop()
        await until(lambda: one.open_streams == 0)
        assert not (plugins / "kubelet.sock").exists()
        with pytest.raises(AdmissionRejected, match="the node was stopped while the pod was"):
            await admission
    await until(lambda: asyncio.all_tasks() <= before)


async def test_after_a_bug_in_reading_lists_no_device_is_healthy(
    manager: DeviceManager,
    plugins: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Any error of our own code makes the devices of the plugin unavailable."""

    async def broken(self: Endpoint, *_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Endpoint, "follow", broken)
    async with FakePlugin(plugins, devices=healthy("a")) as one:
        await one.register()
        await manager.wait_for(RESOURCE, capacity=0, allocatable=0)
    assert "reading its lists failed" in caplog.text


async def test_a_real_plugin_that_found_no_place_registers_when_there_is_one(
    manager: DeviceManager, plugins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit is a temporary refusal: the plugin neither ends nor needs a restart."""
    monkeypatch.setattr(endpoint_table, "PLUGIN_LIMIT", 1)
    scanner = Widgets(gadget=widgets("a", "b"))
    async with FakePlugin(plugins) as other:
        await other.register()
        async with kd.serve(scanner, domain=DOMAIN, socket_dir=plugins, timing=QUICK) as runner:
            await until(lambda: runner.servers)
            counts = runner.servers["gadget"].counts
            await until(lambda: counts["failed_registrations"] > 1)
            assert [*manager.inventory] == [RESOURCE]
            await other.stop()
            await until(lambda: len(manager.inventory.devices(f"{DOMAIN}/gadget")) == 2)
            await until(lambda: counts["registrations"] == 1)
