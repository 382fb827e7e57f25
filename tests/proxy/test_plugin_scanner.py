"""The scanner that is the plugin of somebody else: what it reports, and in which order."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubedevices.node.arrival.list_memory import BYTES_PER_DEVICE, PluginLists
from kubedevices.proxy.plugin_scanner import PluginScanner
from kubedevices.values.allocation import AllocateRequest, ContainerAllocateRequest
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
            await scanner.close()
            assert tasks_that_close() == []
        await asyncio.wait({call})
