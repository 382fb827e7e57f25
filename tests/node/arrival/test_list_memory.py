"""kubedevices.node.arrival.list_memory: one budget for the lists of all plugins."""

import contextlib
import logging
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from kubedevices.errors import ListsUseTooMuch
from kubedevices.node.arrival import list_memory
from kubedevices.node.arrival.list_memory import (
    BESIDE_LISTS,
    BYTES_PER_BYTE,
    BYTES_PER_DEVICE,
    LEAST_LIMIT,
    LIMIT_WITHOUT_LIMIT,
    KeptList,
    PluginLists,
    limit_for,
)
from kubedevices.node.device_manager import DeviceManager
from kubedevices.wire.peers import Peer
from tests.fake_plugin import FakePlugin, healthy
from tests.waiting import until

HERE, THERE = Peer(0, 1), Peer(0, 2)


def cost(devices: int) -> int:
    return devices * (BYTES_PER_DEVICE + 10 * BYTES_PER_BYTE)


def read(kept: KeptList, devices: int) -> None:
    """Count a list with ten bytes per device."""
    kept.grow(10 * devices, devices)
    kept.replace(10 * devices, devices)


@pytest.mark.parametrize(
    ("memory", "limit"),
    [
        (None, LIMIT_WITHOUT_LIMIT),
        (128 * 2**20, 128 * 2**20 - BESIDE_LISTS),
        (2**20, LEAST_LIMIT),
    ],
)
def test_the_limit_follows_from_the_memory_of_the_process(memory: int | None, limit: int) -> None:
    """What the process needs beside the lists is left out."""
    assert limit_for(memory) == limit


def test_the_process_with_most_loses_a_list() -> None:
    """Not the process whose list exceeds the limit, if it has less; its list stays."""
    lists = PluginLists(cost(100))
    ended: list[str] = []
    large, other, small = (
        KeptList(lists, name, peer) for name, peer in (("l", HERE), ("o", HERE), ("s", THERE))
    )
    large.on_end = ended.append
    read(large, 50)
    read(other, 30)
    read(small, 40)
    assert len(ended) == 1
    assert "may use 0 MiB" in ended[0]
    assert lists.kept.held == cost(70)
    with pytest.raises(ListsUseTooMuch):  # it is still being read
        large.grow(10, 1)
    read(small, 20)  # instead of the list before
    assert lists.kept.held == cost(50)


def test_a_list_is_refused_before_it_is_read_as_a_whole() -> None:
    """Each part is counted before it is kept, so one list cannot exceed the limit."""
    lists = PluginLists(cost(100))
    kept = KeptList(lists, "a", HERE)
    for _ in range(100):
        kept.grow(10, 1)
    with pytest.raises(ListsUseTooMuch, match="a: its device list is refused for now"):
        kept.grow(10, 1)
    assert lists.kept.held == 0


def test_a_list_counts_until_nothing_keeps_it() -> None:
    """The devices of a resource may outlive the connection, and the other way round."""
    lists = PluginLists()
    first, second = KeptList(lists, "a", HERE), KeptList(lists, "a", HERE)
    read(first, 10)
    lists.show("a", first)
    first.disconnect()
    assert lists.kept.held == cost(10)
    read(second, 5)
    lists.show("a", second)
    assert lists.kept.held == cost(5)
    lists.forget("a")
    assert lists.kept.held == cost(5)
    second.disconnect()
    assert lists.kept.held == 0


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of 1,000 devices in all."""
    monkeypatch.setattr(list_memory, "limit_for", lambda _: cost(1000))


@contextlib.asynccontextmanager
async def plugin_with(directory: Path, number: int, devices: int) -> AsyncIterator[FakePlugin]:
    names = (f"d{each}" for each in range(devices))
    name = f"example.com/w{number}"
    async with FakePlugin(
        directory, name, socket_name=f"w{number}.sock", devices=healthy(*names)
    ) as plugin:
        await plugin.register()
        yield plugin


def listed(manager: DeviceManager, resource: str, devices: int) -> bool:
    return len(manager.inventory.devices(resource)) == devices


def is_lost(manager: DeviceManager, resource: str) -> bool:
    record = manager.inventory.record(resource)
    return record is not None and record.stopped_at is not None


@pytest.mark.usefixtures("small_limit")
async def test_a_node_keeps_no_lists_beyond_the_limit(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also not those of plugins that have ended: their devices stay for the grace period else."""
    caplog.set_level(logging.WARNING)
    async with DeviceManager(short_dir) as manager:
        lists = manager._endpoints._lists
        for number in range(6):
            async with plugin_with(short_dir, number, 300) as plugin:
                await until(partial(listed, manager, plugin.resource, 300))
            await until(partial(is_lost, manager, plugin.resource))
            kept = sum(len(manager.inventory.devices(each)) for each in manager.inventory)
            assert kept <= 1000
            assert lists.kept.held <= cost(1000)
        assert lists.kept.held > 0
        assert "its device list is refused for now" in caplog.text


@pytest.mark.usefixtures("small_limit")
async def test_a_plugin_whose_list_was_refused_may_come_again(short_dir: Path) -> None:
    """A shorter list of the same plugin is accepted."""
    async with DeviceManager(short_dir) as manager:
        async with plugin_with(short_dir, 0, 2000) as plugin:
            await until(lambda: plugin.streams_opened and not plugin.open_streams)
            assert not manager.inventory.devices(plugin.resource)
        async with plugin_with(short_dir, 0, 500) as plugin:
            await until(lambda: len(manager.inventory.devices(plugin.resource)) == 500)


async def test_the_devices_of_an_older_instance_are_counted_after_its_end(short_dir: Path) -> None:
    """The newer instance ends first, and then the older one, whose devices stay."""
    async with DeviceManager(short_dir) as manager:
        lists = manager._endpoints._lists
        async with FakePlugin(short_dir, socket_name="a.sock", devices=healthy("a", "b")) as older:
            await older.register()
            await until(lambda: len(manager.inventory.devices(older.resource)) == 2)
            two = lists.kept.held
            async with FakePlugin(short_dir, socket_name="b.sock", devices=healthy("a")) as newer:
                await newer.register()
                await until(lambda: len(manager.inventory.devices(older.resource)) == 1)
            await until(lambda: len(manager.inventory.devices(older.resource)) == 2)
        await until(partial(is_lost, manager, older.resource))
        await until(lambda: not manager._endpoints._closing)
        assert lists.kept.held == two
