"""The scanner that is the plugin of somebody else: what it reports, and in which order."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubedevices.errors import PluginAway, RegistrationError
from kubedevices.node.arrival.endpoint import Endpoint
from kubedevices.node.arrival.list_memory import BYTES_PER_DEVICE, PluginLists
from kubedevices.proxy import plugin_scanner
from kubedevices.proxy.plugin_scanner import PluginScanner
from kubedevices.values.allocation import (
    AllocateRequest,
    ContainerAllocateRequest,
    PluginOptions,
)
from kubedevices.values.device import Device
from kubedevices.values.resource_name import ResourceName
from tests.fake_plugin import RESOURCE, FakePlugin, healthy
from tests.middleware_rig import Scanned
from tests.waiting import until


@contextlib.asynccontextmanager
async def served(scanner: PluginScanner) -> AsyncIterator[Scanned]:
    """Scan; at the end close the scanner."""
    made = Scanned(scanner)
    task = asyncio.create_task(scanner.scan(made.updates.notifier), name="scan")
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.wait({task})
        await scanner.close()


def tasks_that_close() -> list[str]:
    return [name for each in asyncio.all_tasks() if (name := each.get_name()).startswith("closing")]


async def test_a_plugin_whose_registration_socket_was_removed_is_away(short_dir: Path) -> None:
    """Also if its process goes on: a kubelet takes its devices away too."""
    scanner = PluginScanner(ResourceName.parse(RESOURCE))
    async with FakePlugin(short_dir, devices=healthy("a")) as plugin, served(scanner):
        await scanner.connect(plugin.socket)
        await until(lambda: scanner.is_here)
        scanner.disconnect(plugin.socket)
        assert not scanner.is_here
        assert scanner.presence.is_away


async def test_a_plugin_whose_list_cannot_be_read_is_away(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By a mistake of ours: its devices must not stay healthy for ever."""
    scanner = PluginScanner(ResourceName.parse(RESOURCE))
    async with FakePlugin(short_dir, devices=healthy("a")) as plugin, served(scanner):
        await scanner.connect(plugin.socket)
        await until(lambda: scanner.is_here)
        monkeypatch.setattr("kubedevices.proxy.plugin_scanner.patch_list", None)
        await plugin.send(healthy("a", "b"))
        await until(lambda: scanner.presence.is_away)
    assert "reading its lists failed" in caplog.text


async def test_a_list_that_is_forgotten_is_reported_as_empty(short_dir: Path) -> None:
    """Otherwise its devices would be offered without a plugin."""
    scanner = PluginScanner(ResourceName.parse(RESOURCE))
    async with FakePlugin(short_dir, devices=healthy("a")) as plugin, served(scanner) as outside:
        await scanner.connect(plugin.socket)
        await outside.next_tree()
        assert outside.ids() == ["a"]
        scanner.abandon()
        await outside.next_tree()
        assert outside.ids() == []
        assert not outside.tree.sent("widget")
        assert not scanner.has_list


async def test_a_plugin_with_too_long_a_list_is_away_before_it_is_useless(short_dir: Path) -> None:
    """The owner of the scanner gives its place away then: a plugin there would be in it."""
    lists = PluginLists(10 * BYTES_PER_DEVICE)
    scanner = PluginScanner(ResourceName.parse(RESOURCE), lists=lists)
    told: list[bool] = []
    async with FakePlugin(short_dir, devices=healthy("a")) as plugin, served(scanner) as outside:
        scanner.is_useless = lambda: told.append(scanner.presence.is_away and not scanner.is_here)
        await scanner.connect(plugin.socket)
        await outside.next_tree()
        await plugin.send(healthy(*(f"d{number}" for number in range(20))))
        await until(lambda: told)
        await outside.next_tree()
        assert outside.ids() == []
    assert told == [True]


async def test_the_end_waits_for_no_call_of_a_replaced_instance(short_dir: Path) -> None:
    """Its connection is closed as the others are, whatever its plugin does."""
    scanner = PluginScanner(ResourceName.parse(RESOURCE))
    async with (
        FakePlugin(short_dir, devices=healthy("a")) as first,
        FakePlugin(short_dir, devices=healthy("a"), socket_name="second.sock") as second,
    ):
        async with served(scanner):
            await scanner.connect(first.socket)
            await until(lambda: scanner.is_here)
            first.hang("allocate")
            request = AllocateRequest((ContainerAllocateRequest(("a",)),))
            call = asyncio.create_task(scanner.abilities_of("widget").allocate(request))
            await until(lambda: first.allocations)
            await scanner.connect(second.socket)
            await until(lambda: scanner.socket == second.socket)
            assert len(tasks_that_close()) == 1
            await until(lambda: not first.open_streams, 20)
            await scanner.close()
            assert tasks_that_close() == []
        await asyncio.wait({call})


async def test_a_call_without_an_instance_says_that_the_plugin_is_away() -> None:
    """Such as after a restart of the proxy: the error names the call and the resource."""
    scanner = PluginScanner(ResourceName.parse(RESOURCE))
    with pytest.raises(PluginAway, match=f"Allocate: the plugin of {RESOURCE} is away"):
        await scanner.abilities_of("widget").allocate(AllocateRequest(()))


async def test_a_connection_that_is_not_needed_is_closed(short_dir: Path) -> None:
    """To an instance that is refused, and to one whose lists are read already."""
    scanner, seen = PluginScanner(ResourceName.parse(RESOURCE)), list[Endpoint]()

    def refuse(endpoint: Endpoint) -> None:
        seen.append(endpoint)
        raise RegistrationError("not this one")

    async with FakePlugin(short_dir, devices=healthy("a")) as plugin, served(scanner):
        with pytest.raises(RegistrationError, match="not this one"):
            await scanner.connect(plugin.socket, check=refuse)
        for _ in range(2):
            await scanner.connect(plugin.socket, check=seen.append)
        assert [each.is_connected for each in seen] == [False, True, False]


async def test_the_oldest_of_too_many_instances_is_closed(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may register and send no list, so that none of them replaces the others."""
    monkeypatch.setattr(plugin_scanner, "INSTANCE_LIMIT", 2)
    scanner, seen = PluginScanner(ResourceName.parse(RESOURCE)), list[Endpoint]()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(served(scanner))
        for number in range(3):
            plugin = FakePlugin(short_dir, socket_name=f"{number}.sock")
            await stack.enter_async_context(plugin)
            await plugin.send_bytes(None)
            await scanner.connect(plugin.socket, check=seen.append)
        await until(lambda: not seen[0].is_connected)
        assert all(each.is_connected for each in seen[1:])


async def test_a_scan_that_ends_late_does_not_end_the_next() -> None:
    """A new chain of rules may begin its scan while the old chain ends."""
    scanner = PluginScanner(ResourceName.parse(RESOURCE))
    scanner.restore([Device("a")], PluginOptions())
    before = Scanned(scanner)
    old = asyncio.create_task(scanner.scan(before.updates.notifier))
    await before.next_tree()
    async with served(scanner) as new:
        await new.next_tree()
        old.cancel()
        await asyncio.wait({old})
        scanner.abandon()
        await new.next_tree()
        assert new.ids() == []


async def test_an_instance_that_ends_before_its_first_list_does_not_prolong_the_absence(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A plugin that crashes at each start would otherwise be away for a moment only, for ever."""
    scanner, told = PluginScanner(ResourceName.parse(RESOURCE)), list[bool]()
    async with served(scanner):
        async with FakePlugin(short_dir, devices=healthy("a")) as plugin:
            await scanner.connect(plugin.socket)
            await until(lambda: scanner.is_here)
            scanner.list_changed = lambda: told.append(scanner.is_here)
        await until(lambda: scanner.presence.is_away)
        assert told == [False]
        since = scanner.away_since(math.inf)
        async with FakePlugin(short_dir) as plugin:
            await plugin.send_bytes(None)
            await scanner.connect(plugin.socket)
            await until(lambda: plugin.open_streams)
        await until(lambda: scanner.current() is None)
        assert scanner.away_since(math.inf) == since
    assert caplog.text.count("its plugin is gone") == 1


async def test_a_newer_instance_with_too_long_a_list_takes_no_devices_along(
    short_dir: Path,
) -> None:
    """The older instance still has its list, and serves."""
    lists = PluginLists(10 * BYTES_PER_DEVICE)
    scanner = PluginScanner(ResourceName.parse(RESOURCE), lists=lists)
    many = healthy(*(f"d{number}" for number in range(20)))
    seen = list[Endpoint]()
    async with (
        FakePlugin(short_dir, devices=healthy("a")) as first,
        FakePlugin(short_dir, devices=many, socket_name="second.sock") as second,
        served(scanner),
    ):
        for plugin in (first, second):
            await scanner.connect(plugin.socket, check=seen.append)
            await until(lambda: scanner.is_here)
        await until(lambda: not seen[1].is_connected)
        assert (scanner.socket, [*scanner.list.devices]) == (first.socket, ["a"])
