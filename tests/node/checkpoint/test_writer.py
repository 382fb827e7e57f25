"""The writer of kubelet_internal_checkpoint: a background task behind the answers."""

import asyncio
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import pytest

from kubedevices.errors import LedgerWriteFailed
from kubedevices.node.checkpoint.text import Checkpoint, CheckpointEntry, parse_checkpoint
from kubedevices.node.checkpoint.writer import CheckpointWriter
from kubedevices.node.events import EventKind, EventSource, NodeEvent
from kubedevices.node.inventory.inventory import Inventory
from kubedevices.node.pods.pod_devices import PodDevices
from kubedevices.values.allocation import PluginOptions
from tests.fake_plugin import healthy, unhealthy
from tests.ledger_rows import GADGET, WIDGET, holdings, pod
from tests.waiting import until

INTERVAL = 0.2


class WatchedInventory(Inventory):
    """Counts how often the writer reads the registered devices."""

    reads = 0

    def registered_devices(self) -> dict[str, list[str]]:
        self.reads += 1
        return super().registered_devices()


class Rig:
    """A writer, and all objects that the writer reads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.inventory = WatchedInventory()
        self.pod_devices = PodDevices(self.inventory)
        self.events = EventSource()
        self.kept: list[set[str]] = []
        self.refuse = False
        self.writer = self.new_writer()

    def new_writer(self) -> CheckpointWriter:
        return CheckpointWriter(
            self.path,
            self.inventory,
            self.pod_devices,
            self.events,
            self.keep_resources,
            interval=INTERVAL,
        )

    async def keep_resources(self, resources: Collection[str]) -> None:
        if self.refuse:
            raise LedgerWriteFailed("no space")
        self.kept.append({*resources})

    def publish_change(self) -> None:
        self.events.publish(NodeEvent(EventKind.LIST_CHANGED, WIDGET))

    async def wait_for_reads(self, times: int = 1) -> None:
        """Let the writer read everything; then the result of the previous time has been written."""
        for _ in range(times + 1):
            before = self.inventory.reads
            self.publish_change()
            await until(lambda before=before: self.inventory.reads > before)  # type: ignore[misc]

    def report(self, *ids: str, sick: str = "") -> None:
        """Let a plugin list these devices."""
        generation = self.inventory.connect(WIDGET, PluginOptions(), "w.sock").generation
        self.inventory.report(WIDGET, generation, [*healthy(*ids), *unhealthy(*sick)])
        self.publish_change()

    def admit(self, name: str, first: int = 0) -> None:
        for holding in holdings(pod(name), first):
            self.pod_devices.insert(*holding)
        self.publish_change()

    @property
    def checkpoint(self) -> Checkpoint:
        found = parse_checkpoint(self.path.read_bytes())
        assert isinstance(found, Checkpoint)
        return found

    def entries(self) -> list[CheckpointEntry]:
        return [*(self.checkpoint.entries or ())]

    @property
    def identity(self) -> int:
        return self.path.stat().st_mtime_ns


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """Give a rig whose writer is not started."""
    made = Rig(tmp_path / "kubelet_internal_checkpoint")
    yield made
    await made.writer.stop()


async def test_the_file_follows_allocations_and_lists(rig: Rig) -> None:
    """The file has held devices with their answers, and the healthy devices of every resource."""
    rig.writer.start(())
    rig.report("a", "b", sick="c")
    await until(rig.path.exists)
    assert rig.checkpoint.registered == {WIDGET: ("a", "b")}
    assert not rig.entries()
    rig.admit("p")
    await until(rig.entries)
    assert [each[:4] for each in rig.entries()] == [
        ("space/p", "setup", WIDGET, {-1: ("w0",)}),
        ("space/p", "proxy", GADGET, {1: ("g0",)}),
        ("space/p", "main", WIDGET, {0: ("w0", "w1")}),
    ]
    rig.pod_devices.remove_pod("space/p")
    rig.publish_change()
    await until(lambda: not rig.entries(), what="clean-up is written too")


async def test_the_file_is_written_at_most_once_an_interval(rig: Rig) -> None:
    """After many changes the file has the last state."""
    rig.writer.start(())
    rig.report("a")
    await until(rig.path.exists)
    seen = {rig.identity}
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(60):
        rig.report(*(f"d{n}" for n in range(number)))
        due = began + number * 0.01
        await until(lambda due=due: loop.time() > due)  # type: ignore[misc]
        seen.add(rig.identity)
    await until(lambda: len((rig.checkpoint.registered or {})[WIDGET] or ()) == 59)
    seen.add(rig.identity)
    assert 2 <= len(seen) <= (loop.time() - began) / INTERVAL + 2


async def test_nothing_is_written_without_a_change(rig: Rig) -> None:
    """No write for an event without a change, at the stop, or at the next start."""
    rig.writer.start(())
    rig.report("a")
    await until(rig.path.exists)
    before = rig.identity
    await rig.wait_for_reads()
    await rig.writer.stop()
    rig.writer = rig.new_writer()
    rig.writer.start([WIDGET])
    await rig.wait_for_reads()
    await rig.writer.stop()
    assert rig.identity == before
    assert rig.kept == [{WIDGET}]


async def test_stop_writes_the_last_changes(rig: Rig) -> None:
    """The stop does not wait for the interval. A second stop is allowed."""
    rig.writer.start(())
    rig.report("a")
    await until(rig.path.exists)
    rig.admit("p")
    await rig.writer.stop()
    await rig.writer.stop()
    assert len(rig.entries()) == 3


async def test_a_node_without_any_device_writes_no_file(rig: Rig) -> None:
    """A kubelet concludes from the file that its node is not new."""
    rig.writer.start(())
    await rig.wait_for_reads()
    await rig.writer.stop()
    assert not rig.path.exists()


async def test_a_file_with_other_content_is_replaced_at_the_start(rig: Rig) -> None:
    """The last process may have been killed after its ledger was written and before this file."""
    rig.path.write_text("something else")
    rig.admit("p")
    rig.writer.start(())
    await until(lambda: b"PodUID" in rig.path.read_bytes(), what="the state of the start")


async def test_a_failed_write_is_logged_and_repeated(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The writer does not wait for a change, because the file is wrong until it is written."""
    monkeypatch.setattr("kubedevices.node.checkpoint.writer._RETRY", 0.05)
    moved = rig.path.parent.rename(rig.path.parent.with_name("moved"))
    rig.writer.start(())
    rig.report("a")
    await until(lambda: "No such file or directory" in caplog.text)
    moved.rename(rig.path.parent)
    await until(rig.path.is_file)


async def test_the_resources_are_stored_when_they_change(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of their devices is no reason to store them again. A failed try is repeated."""
    monkeypatch.setattr("kubedevices.node.checkpoint.writer._RETRY", 0.05)
    rig.refuse = True
    rig.writer.start(())
    rig.report("a")
    await until(rig.path.exists, what="the file does not depend on it")
    rig.refuse = False
    await until(lambda: rig.kept)
    rig.report("a", "b")
    await until(lambda: (rig.checkpoint.registered or {})[WIDGET] == ("a", "b"))
    assert rig.kept == [{WIDGET}]


async def test_an_unexpected_error_ends_neither_the_writer_nor_the_stop(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the traceback, and the next change is written."""
    with monkeypatch.context() as broken:
        broken.setattr("kubedevices.node.checkpoint.text.format_checkpoint", lambda _: 1 / 0)
        rig.writer.start(())
        rig.report("a")
        await until(lambda: "ZeroDivisionError" in caplog.text)
    rig.report("a", "b")
    await until(rig.path.exists)
    with monkeypatch.context() as broken:
        broken.setattr("kubedevices.node.checkpoint.text.format_checkpoint", lambda _: 1 / 0)
        rig.report("a")
        await rig.writer.stop()
