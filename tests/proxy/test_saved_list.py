"""The last lists of plugins on disk: what is written is read, what no rule wants is removed."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.node.arrival.list_memory import BYTES_PER_DEVICE, PluginLists
from kubedevices.proxy.plugin_scanner import PluginScanner
from kubedevices.proxy.proxy_config import ProxyConfig, ProxyRule
from kubedevices.proxy.saved_list import SavedList, SavedLists, document_of
from kubedevices.values.allocation import PluginOptions
from kubedevices.values.device import ForeignDevice
from kubedevices.values.resource_name import ResourceName
from tests.reachable import reachable
from tests.waiting import until

DEVICES = (
    kd.Device("b", health="Unhealthy", numa_nodes=(0, 1)),  # type: ignore[arg-type]
    ForeignDevice("a", unknown=b"\x32\x01x"),
    kd.Device("c", numa_nodes=()),
)
SAVED = SavedList(DEVICES, PluginOptions(True, False, b"\x18\x01"))
OVER_REBOOT = ProxyRule(hold=300.0, hold_over_reboot=True)


def lists(state: Path, **rules: ProxyRule) -> SavedLists:
    """Return the lists by rules; `any` is a rule for every resource of example.com."""
    names = {"example.com/*" if name == "any" else f"example.com/{name}": rule
             for name, rule in rules.items()}  # fmt: skip
    config = ProxyConfig(resources=names)

    def rule_of(resource: str) -> ProxyRule | None:
        found = config.find(resource)
        return found and found[1]

    return SavedLists(state, rule_of)


def plugin_of(name: str, *devices: kd.Device) -> PluginScanner:
    plugin = PluginScanner(ResourceName.parse(name))
    plugin.restore(devices, PluginOptions())
    plugin.presence.arrive()
    return plugin


@contextlib.asynccontextmanager
async def kept(saved: SavedLists, *plugins: PluginScanner) -> AsyncIterator[None]:
    task = asyncio.create_task(saved.keep({str(each.resource): each for each in plugins}))
    for each in plugins:
        each.list_changed = saved.look_again
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


def write(state: Path, resource: str, name: str = "") -> Path:
    file = state / "lists" / (name or f"{resource.replace('/', '_')}.json")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document_of(resource, SAVED)))
    return file


def test_a_written_list_is_read_back_in_its_order(tmp_path: Path) -> None:
    """Devices, their unknown fields and the options of the plugin survive."""
    write(tmp_path, "example.com/gpu")
    assert lists(tmp_path, any=OVER_REBOOT).load() == {"example.com/gpu": SAVED}
    assert lists(tmp_path / "none", any=OVER_REBOOT).load() == {}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        "[" * 100_000,
        '{"resource": "example.com/w", "devices": [7], "options": {}}',
        '{"resource": "example.com/w", "devices": [{"id": ""}], "options": {}}',
        '{"resource": "example.com/w", "devices": [], "options": {"unknown": 1}}',
        '{"resource": "example.com", "devices": [], "options": {}}',
    ],
)
def test_a_damaged_list_is_logged_and_not_offered(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The plugin starts as without a saved list; other lists are offered."""
    write(tmp_path, "example.com/v")
    file = tmp_path / "lists/example.com_w.json"
    file.write_text(content)
    assert lists(tmp_path, any=OVER_REBOOT).load() == {"example.com/v": SAVED}
    assert f"{file}" in caplog.text
    assert "its devices are offered when the plugin is back" in caplog.text


def test_lists_that_no_rule_wants_any_more_are_removed(tmp_path: Path) -> None:
    """A rule for a pattern keeps each list that it matches; the others would stay for ever."""
    for name in ("gpu", "nic", "old"):
        write(tmp_path, f"example.com/{name}")
    saved = lists(tmp_path, old=ProxyRule(hold=300.0), any=OVER_REBOOT)
    assert {*saved.load()} == {"example.com/gpu", "example.com/nic"}
    assert not (tmp_path / "lists/example.com_old.json").exists()


def test_a_file_with_the_name_of_another_resource_is_not_offered(tmp_path: Path) -> None:
    """Each resource has one file, so no list is offered twice."""
    write(tmp_path, "example.com/gpu", "copy.json")
    assert lists(tmp_path, any=OVER_REBOOT).load() == {}


async def test_each_resource_of_a_pattern_has_its_list_saved_once(tmp_path: Path) -> None:
    """A list that is on disk already is not written again; a new list replaces it."""
    gpu = plugin_of("example.com/gpu", kd.Device("a", numa_nodes=()))
    nic = plugin_of("example.com/nic", kd.Device("b", numa_nodes=()))
    file = tmp_path / "lists/example.com_gpu.json"
    saved = lists(tmp_path, any=OVER_REBOOT)
    async with kept(saved, gpu, nic):
        await until(lambda: file.exists() and (tmp_path / "lists/example.com_nic.json").exists())
        inode = file.stat().st_ino
        nic.restore([kd.Device("c", numa_nodes=())], PluginOptions())
        nic.list_changed()
        await until(lambda: '"c"' in (tmp_path / "lists/example.com_nic.json").read_text())
        assert file.stat().st_ino == inode
    assert [each["id"] for each in json.loads(file.read_text())["devices"]] == ["a"]


async def test_the_list_of_a_plugin_that_never_returned_is_removed(tmp_path: Path) -> None:
    """Otherwise each boot would offer devices that were removed long ago."""
    gpu = plugin_of("example.com/gpu", kd.Device("a"))
    file = tmp_path / "lists/example.com_gpu.json"
    rule = ProxyRule(hold=0.05, hold_over_reboot=True)
    async with kept(lists(tmp_path, gpu=rule), gpu):
        await until(file.exists)
        gpu.presence.leave()
        gpu.list_changed()
        await until(lambda: not file.exists())


async def test_a_resource_that_the_proxy_does_not_serve_any_more_leaves_nothing(
    tmp_path: Path,
) -> None:
    """Names come and go under a pattern, in a process that lives for months."""
    saved = lists(tmp_path, any=OVER_REBOOT)
    plugins: dict[str, PluginScanner] = {}
    keeping = asyncio.create_task(saved.keep(plugins))
    sizes = []
    for number in range(5):
        file = tmp_path / f"lists/example.com_r{number}.json"
        plugins[f"example.com/r{number}"] = plugin_of(f"example.com/r{number}", kd.Device("a"))
        saved.look_again()
        await until(file.exists)
        plugins.clear()
        saved.look_again()
        await until(lambda file=file: not file.exists())  # type: ignore[misc]
        await until(lambda: not saved._saved)
        sizes.append(reachable(saved))
    keeping.cancel()
    await asyncio.wait({keeping})
    assert sizes[1] == sizes[4]


async def test_saved_lists_share_the_memory_of_all_lists(caplog: pytest.LogCaptureFixture) -> None:
    """A proxy that starts with more lists than it may keep drops the largest, and says so."""
    memory = PluginLists(10 * BYTES_PER_DEVICE)
    small, large = (
        PluginScanner(ResourceName.parse(f"example.com/{name}"), lists=memory)
        for name in ("small", "large")
    )
    for scanner, count in ((small, 3), (large, 8)):
        scanner.restore([kd.Device(f"d{each}") for each in range(count)], PluginOptions())
    assert [each.has_list for each in (small, large)] == [True, False]
    assert 0 < memory.kept.held <= memory.limit
    assert "example.com/large: its device list is refused" in caplog.text
    small.abandon()
    assert memory.kept.held == 0


async def test_the_list_of_a_plugin_that_returns_unchanged_is_saved_again(tmp_path: Path) -> None:
    """Its file was removed when `hold` ended; after the next reboot it must be there."""
    gpu = plugin_of("example.com/gpu", kd.Device("a"))
    file = tmp_path / "lists/example.com_gpu.json"
    rule = ProxyRule(hold=0.05, hold_over_reboot=True)
    async with kept(lists(tmp_path, gpu=rule), gpu):
        await until(file.exists)
        gpu.presence.leave()
        gpu.list_changed()
        await until(lambda: not file.exists())
        gpu.presence.arrive()
        gpu.list_changed()
        await until(file.exists)
