"""A node whose disk is full, damaged or not writable. Real processes, real faults.

A full disk is made by the kernel: a limit on the size of files, set from outside while the node
runs, and, where the host allows to mount, a small file system of its own.
"""

import asyncio
import contextlib
import resource
import signal
import sqlite3
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubedevices.errors import AdmissionRejected, NodeError
from kubedevices.node.checkpoint.text import Checkpoint, parse_checkpoint
from kubedevices.node.ledger.ledger_file import LedgerFile
from kubedevices.node.services.control_client import ControlClient
from tests.fake_plugin import RESOURCE, FakePlugin, healthy
from tests.host_needs import needs
from tests.node_process import NodeProcess, node_process
from tests.restart_rig import pod
from tests.waiting import until

CHECKPOINT = "p/kubelet_internal_checkpoint"
LEDGER = "s/ledger.db"
DEVICES = [f"d{number}" for number in range(40)]


@contextlib.asynccontextmanager
async def plugin_of(directory: Path) -> AsyncIterator[FakePlugin]:
    """Let a plugin with forty devices register."""
    async with FakePlugin(directory / "p", devices=healthy(*DEVICES)) as plugin:
        await plugin.register()
        yield plugin


async def held_by_pod(client: ControlClient) -> dict[str, list[str]]:
    """Return the devices of every pod."""
    return {
        each["name"] or each["uid"]: each["containers"][0]["devices"].get(RESOURCE, [])
        for each in (await client.pods())["pods"]
    }


# ---------------------------------------------------------------- a full disk


class FileSizeLimit:
    """Limits the size of all files of a process to the ledger's log, with the kernel's limit."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        self._before = resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE)

    def fill(self) -> None:
        """Forbid that files grow."""
        size = (self.node.directory / f"{LEDGER}-wal").stat().st_size
        self._set(size)

    def free(self) -> None:
        """Let files grow again."""
        self._set(self._before[0])

    def _set(self, size: int) -> None:
        resource.prlimit(self.node.process.pid, resource.RLIMIT_FSIZE, (size, self._before[1]))


class SmallFileSystem:
    """A file system of 300 KiB for the state directory, in its own mount namespace."""

    def __init__(self, directory: Path) -> None:
        state = directory / "s"
        state.mkdir(mode=0o700)
        mount = f"mount -t tmpfs -o size=300k,mode=700 tmpfs {state}"
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", f"{mount} && echo mounted && exec sleep 600"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "mounted\n"
        self.enter = ["nsenter", "--target", str(self._holder.pid), "--mount"]
        """In front of a command that is to see it."""
        self.seen_from_outside = Path(f"/proc/{self._holder.pid}/root{directory}")
        self._filler = self.seen_from_outside / "s/filler"

    def fill(self) -> None:
        """Fill the file system completely."""
        with contextlib.suppress(OSError), self._filler.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(512))

    def free(self) -> None:
        """Free space."""
        self._filler.unlink()

    def close(self) -> None:
        """Close the namespace."""
        self._holder.kill()
        self._holder.communicate()


async def devices_are_given_again_when_there_is_room(
    node: NodeProcess, disk: FileSizeLimit | SmallFileSystem
) -> dict[str, list[str]]:
    """Run the test; return the devices of each pod at its end."""
    async with plugin_of(node.directory) as plugin, await node.ask() as client:
        await node.tells("list changed")
        await client.allocate(pod("first", 2))
        before = await held_by_pod(client)
        disk.fill()
        for name in ("second", "third"):
            with pytest.raises(AdmissionRejected) as error:
                await client.allocate(pod(name))
            assert error.value.message.startswith(
                "Allocate failed due to failed to write checkpoint file "
                '"kubelet_internal_checkpoint": /tmp/'
            )
            assert "/ledger.db: " in error.value.message
        with pytest.raises(NodeError, match="failed to write checkpoint file"):
            await client.release("first")
        assert await held_by_pod(client) == before
        again = await client.allocate(pod("first", 2))
        assert [*again["containers"][0]["devices"].values()] == [*before.values()]
        assert len(plugin.allocations) == 3
        disk.free()
        await client.allocate(pod("second", 38))
        await client.release("first")
        await client.allocate(pod("third", 2))
        return await held_by_pod(client)


async def test_a_full_disk_rejects_pods_until_there_is_room(short_dir: Path) -> None:
    """A refused pod holds no device, neither now nor after a restart."""
    async with node_process(short_dir) as node:
        held = await devices_are_given_again_when_there_is_room(node, FileSizeLimit(node))
        assert {*held} == {"second", "third"}
    async with node_process(short_dir) as node, await node.ask() as client:
        assert await held_by_pod(client) == held


async def test_a_node_killed_with_a_full_disk_keeps_acknowledged_pods(short_dir: Path) -> None:
    """And not the pod that it refused just before."""
    async with node_process(short_dir) as node, plugin_of(short_dir), await node.ask() as client:
        await node.tells("list changed")
        await client.allocate(pod("first"))
        held = await held_by_pod(client)
        FileSizeLimit(node).fill()
        with pytest.raises(AdmissionRejected):
            await client.allocate(pod("second"))
        await node.end(signal.SIGKILL)
    async with node_process(short_dir) as node, await node.ask() as client:
        assert await held_by_pod(client) == held


@needs("mount")
async def test_a_full_file_system_rejects_pods_until_there_is_room(short_dir: Path) -> None:
    """On a real file system. Without a free byte a node still starts and knows its pods."""
    disk = SmallFileSystem(short_dir)
    try:
        async with node_process(short_dir, before=disk.enter) as node:
            node.directory = disk.seen_from_outside
            held = await devices_are_given_again_when_there_is_room(node, disk)
            disk.fill()
            await node.end(signal.SIGKILL)
        async with node_process(short_dir, before=disk.enter) as node:
            node.directory = disk.seen_from_outside
            async with await node.ask() as client:
                assert await held_by_pod(client) == held
            assert await node.end() == 0
    finally:
        disk.close()


# ---------------------------------------------------------------- damage


async def some_pods(directory: Path) -> dict[str, list[str]]:
    """Let a node admit three pods and stop; return the devices of each pod."""
    async with node_process(directory) as node, plugin_of(directory), await node.ask() as client:
        await node.tells("list changed")
        for name in ("one", "two", "three"):
            await client.allocate(pod(name))
        held = await held_by_pod(client)
        await node.end()
    return held


@pytest.mark.parametrize("keep", [0, 1, 60, 4096, 5000, 0.5, 0.99])
async def test_a_truncated_ledger_is_logged_and_the_checkpoint_counts(
    short_dir: Path, keep: float
) -> None:
    """The node reads kubelet_internal_checkpoint at its start, and keeps the damaged file."""
    held = await some_pods(short_dir)
    ledger = short_dir / LEDGER
    data = ledger.read_bytes()
    ledger.write_bytes(data[: int(keep * len(data)) if 0 < keep < 1 else int(keep)])
    left = ledger.read_bytes()
    async with node_process(short_dir) as node, await node.ask() as client:
        told = await node.tells("damaged")
        assert told["file"] == str(ledger)
        assert Path(told["kept_as"]).read_bytes() == left
        await until(lambda: "is damaged, kept as ledger.db.corrupt-" in node.log)
        devices = {*(tuple(each) for each in (await held_by_pod(client)).values())}
        assert devices == {tuple(each) for each in held.values()}
        async with plugin_of(short_dir):
            await node.tells("list changed")
            (new,) = (await client.allocate(pod("new")))["containers"][0]["devices"][RESOURCE]
            assert (new,) not in devices


async def test_with_both_files_damaged_the_node_starts_empty(
    short_dir: Path,
) -> None:
    """Two damaged files are moved aside, with two events and two errors in the log."""
    await some_pods(short_dir)
    for file in (LEDGER, CHECKPOINT):
        (short_dir / file).write_bytes(b"garbage" * 1000)
    async with node_process(short_dir) as node, plugin_of(short_dir), await node.ask() as client:
        await until(lambda: len(node.told("damaged")) == 2)
        assert [Path(each["file"]).name for each in node.told("damaged")] == [
            "ledger.db",
            "kubelet_internal_checkpoint",
        ]
        await until(lambda: node.log.count("is damaged, kept as") == 2)
        assert await held_by_pod(client) == {}
        await node.tells("list changed")
        await client.allocate(pod("new"))
        await node.end()
    assert isinstance(parse_checkpoint((short_dir / CHECKPOINT).read_bytes()), Checkpoint)


async def test_a_truncated_log_is_an_earlier_state(short_dir: Path) -> None:
    """A power cut may cause this: nothing is reported, no device is held twice."""
    async with node_process(short_dir) as node, plugin_of(short_dir), await node.ask() as client:
        await node.tells("list changed")
        for number in range(5):
            await client.allocate(pod(f"p{number}"))
        held = await held_by_pod(client)
        await node.end(signal.SIGKILL)
    log = short_dir / f"{LEDGER}-wal"
    data = log.read_bytes()
    log.write_bytes(data[: len(data) * 2 // 3])
    async with node_process(short_dir) as node, await node.ask() as client:
        assert not [*short_dir.rglob("*.corrupt-*")]
        now = await held_by_pod(client)
        assert now.items() < held.items()
        assert now


# ---------------------------------------------------------------- what ends a start


async def refused_start(directory: Path) -> tuple[int, str]:
    """Start a node, which must fail; return its exit code and output."""
    node = await NodeProcess.start(directory)
    code = await node.ended()
    assert not node.told("ready")
    return code, node.log


async def test_a_ledger_of_a_newer_version_stops_the_start(short_dir: Path) -> None:
    """The error says what to do, the exit code is 3, and the file does not change."""
    await some_pods(short_dir)
    connection = sqlite3.connect(short_dir / LEDGER)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = (short_dir / LEDGER).read_bytes()
    code, said = await refused_start(short_dir)
    assert code == 3
    assert "it was written by a newer kubedevices (version 99 of the file" in said
    assert len(said.splitlines()) == 1
    assert (short_dir / LEDGER).read_bytes() == before


async def test_an_unusable_state_directory_stops_the_start(short_dir: Path) -> None:
    """One line, exit code 3, no traceback. The plugin directory is not changed afterwards."""
    (short_dir / LEDGER).mkdir(parents=True)
    code, said = await refused_start(short_dir)
    assert code == 3
    assert said.endswith("ledger.db: Is a directory\n")
    assert len(said.splitlines()) == 1


async def test_a_second_node_on_the_same_state_directory_ends(short_dir: Path) -> None:
    """Exit code 3, and the first node goes on."""
    async with node_process(short_dir) as node, plugin_of(short_dir), await node.ask() as client:
        await node.tells("list changed")
        code, said = await refused_start(short_dir)
        assert code == 3
        assert "another kubedevices node" in said
        await client.allocate(pod("one"))
        await node.end()
    ledger = LedgerFile.open(short_dir / LEDGER)
    assert ledger is not None
    assert len(ledger.load("")[0]) == 1
    ledger.close()


async def test_a_directory_in_place_of_the_checkpoint_is_renamed(short_dir: Path) -> None:
    """Other programs read this file: the node writes it again, and tells where the directory is."""
    async with node_process(short_dir) as node, plugin_of(short_dir), await node.ask() as client:
        await node.tells("list changed")
        await until((short_dir / CHECKPOINT).exists)
        (short_dir / CHECKPOINT).unlink()
        (short_dir / CHECKPOINT).mkdir()
        await asyncio.wait_for(client.allocate(pod("one")), 10)
        await until((short_dir / CHECKPOINT).is_file)
        await until(lambda: "kept as kubelet_internal_checkpoint.corrupt-" in node.log)
        assert await node.end() == 0
