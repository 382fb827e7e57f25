"""The ledger as the store of a node: its first content, its writes, and damaged files."""

import asyncio
import errno
import os
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kubedevices.errors import CannotAsk, CannotRead, LedgerUnusable, LedgerWriteFailed
from kubedevices.kubelet_api.convert import CONTAINER_RESPONSE
from kubedevices.node.checkpoint.text import (
    Checkpoint,
    CheckpointEntry,
    checkpoint_of,
    format_checkpoint,
)
from kubedevices.node.ledger import ledger_file
from kubedevices.node.ledger.ledger import _CHANGES_PER_LOG, Ledger
from kubedevices.node.ledger.ledger_file import LedgerFile
from kubedevices.node.pods.pod import Pod
from tests.golden_data import GOLDEN
from tests.ledger_rows import GADGET, WIDGET, admitted, holdings, pod
from tests.waiting import until

BOOT = "boot-1"


@pytest.fixture
def boot_id_file(tmp_path: Path) -> Path:
    """A file with the boot ID of the machine, which a test may change."""
    file = tmp_path / "boot_id"
    file.write_text(f"{BOOT}\n")
    return file


@pytest.fixture
async def ledger(tmp_path: Path, boot_id_file: Path) -> AsyncIterator[Ledger]:
    """Give a ledger that is not loaded yet."""
    made = Ledger(tmp_path, tmp_path / "checkpoint", boot_id_file)
    yield made
    await made.close()


# ---------------------------------------------------------------- the start


async def test_a_first_start_is_empty_and_creates_the_file(ledger: Ledger) -> None:
    """With the file, the second start does not count as a first start."""
    assert not any(await ledger.load())
    assert ledger.path.exists()


async def test_a_new_ledger_imports_the_checkpoint_of_a_kubelet(
    ledger: Ledger, tmp_path: Path
) -> None:
    """Its pods are known by their UID. Their devices are held, and their boot is unknown."""
    of = holdings(pod("p", uid="1234"))
    text = format_checkpoint(checkpoint_of(of, {WIDGET: ["w0"]}, CONTAINER_RESPONSE.to_wire))
    (tmp_path / "checkpoint").write_bytes(text)
    kept = await ledger.load()
    (moved,) = kept.pods
    assert moved.pod.init_containers == ()
    assert [(each.name, each.limits) for each in moved.pod] == [
        ("setup", {WIDGET: 1}),
        ("proxy", {GADGET: 1}),
        ("main", {WIDGET: 2}),
    ]
    assert (moved.pod.full_name, moved.is_of_this_boot) == ("1234", False)
    assert [*moved.holdings] == of
    assert [*kept.resources] == [WIDGET]


async def test_the_checkpoint_is_imported_only_once(ledger: Ledger, tmp_path: Path) -> None:
    """After the first start only the ledger counts, whatever the checkpoint contains."""
    await ledger.load()
    text = format_checkpoint(
        checkpoint_of(holdings(pod()), {WIDGET: ["w0"]}, CONTAINER_RESPONSE.to_wire)
    )
    (tmp_path / "checkpoint").write_bytes(text)
    await ledger.close()
    assert not (await ledger.load()).pods


async def test_the_boot_id_of_a_checkpoint_is_used(ledger: Ledger, tmp_path: Path) -> None:
    """Newer kubelets write the boot ID into the checkpoint."""
    text = format_checkpoint(
        checkpoint_of(holdings(pod()), {}, CONTAINER_RESPONSE.to_wire, boot_id=BOOT)
    )
    (tmp_path / "checkpoint").write_bytes(text)
    assert (await ledger.load()).pods[0].is_of_this_boot


async def test_a_checkpoint_from_before_1_20_is_imported(ledger: Ledger, tmp_path: Path) -> None:
    """Its devices are on NUMA node 0."""
    (tmp_path / "checkpoint").write_bytes(
        (GOLDEN / "checkpoints_v1" / "v1_two_pods.json").read_bytes()
    )
    kept = await ledger.load()
    held = [dict(each.held.devices_per_numa) for pod in kept.pods for each in pod.holdings]
    assert held == [{0: ["gpu-0", "gpu-1"]}, {0: ["gpu-2"]}]


async def test_a_damaged_checkpoint_is_renamed_and_reported(ledger: Ledger, tmp_path: Path) -> None:
    """Held devices are never forgotten without a message."""
    bad = (GOLDEN / "checkpoints_bad" / "modified_device.json").read_bytes()
    (tmp_path / "checkpoint").write_bytes(bad)
    kept = await ledger.load()
    (damage,) = kept.damage
    assert not kept.pods
    assert damage.reason == "checkpoint is corrupted"
    assert damage.kept_as.read_bytes() == bad
    assert not (tmp_path / "checkpoint").exists()


async def test_an_entry_that_cannot_be_decoded_is_logged(
    ledger: Ledger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other entries are imported."""
    entries = (
        CheckpointEntry("p", "c", WIDGET, {-1: ("a",)}, b"\xff"),
        CheckpointEntry("q", "c", WIDGET, {-1: ("b",)}, b""),
    )
    (tmp_path / "checkpoint").write_bytes(format_checkpoint(Checkpoint(entries, {})))
    assert [each.pod.uid for each in (await ledger.load()).pods] == ["q"]
    assert "the Allocate answer for container c of pod p cannot be read" in caplog.text


async def test_a_checkpoint_with_an_empty_uid_is_imported(ledger: Ledger, tmp_path: Path) -> None:
    """The pod is also there at the next start."""
    entry = CheckpointEntry("", "c", WIDGET, {-1: ("a",)}, b"")
    (tmp_path / "checkpoint").write_bytes(format_checkpoint(Checkpoint((entry,), {})))
    kept = await ledger.load()
    await ledger.close()
    assert (await ledger.load()).pods == kept.pods


async def test_a_start_fails_if_the_checkpoint_cannot_be_read(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start without the checkpoint could allocate devices twice. The next start tries again."""

    def fail(*_: object, **__: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr("kubedevices.host.untrusted_files.read_bytes", fail)
        with pytest.raises(CannotRead, match="Input/output error"):
            await ledger.load()
    await ledger.load()


async def test_the_checkpoint_replaces_a_damaged_ledger(ledger: Ledger, tmp_path: Path) -> None:
    """The checkpoint may be a second old, but no better source exists. The damage is reported."""
    await ledger.load()
    await ledger.commit(pod(), holdings(pod()))
    await ledger.close()
    ledger.path.write_bytes(ledger.path.read_bytes()[:5000])
    text = format_checkpoint(checkpoint_of(holdings(pod()), {}, CONTAINER_RESPONSE.to_wire))
    (tmp_path / "checkpoint").write_bytes(text)
    kept = await ledger.load()
    assert [each.pod.uid for each in kept.pods] == [pod().uid]
    (damage,) = kept.damage
    assert damage.path == ledger.path
    assert damage.kept_as.stat().st_size == 5000
    await ledger.close()
    assert not (await ledger.load()).damage


async def test_a_wrong_row_is_damage(ledger: Ledger) -> None:
    """The file is a valid database, but the checksum of a row is wrong. The log is renamed too."""
    await ledger.load()
    await ledger.commit(pod(), holdings(pod()))
    await ledger.close()
    connection = sqlite3.connect(ledger.path)
    connection.execute("UPDATE pod SET name = 'other'")
    connection.commit()
    connection.close()
    kept = await ledger.load()
    assert [each.reason for each in kept.damage] == ["the checksum of pod space/p is wrong"]
    await ledger.commit(pod(), holdings(pod()))


async def test_the_log_of_a_damaged_ledger_is_renamed_too(ledger: Ledger, tmp_path: Path) -> None:
    """SQLite must not apply the old log to the new file."""
    await ledger.load()
    await ledger.commit(pod(), holdings(pod()))
    copy = Path(shutil.copytree(tmp_path, tmp_path / "copy"))
    (copy / "ledger.db").write_text("garbage")
    second = Ledger(copy, copy / "none")
    kept = await second.load()
    assert not kept.pods
    assert Path(f"{kept.damage[0].kept_as}-wal").stat().st_size
    await second.commit(*admitted("new")[:2])
    await second.close()
    assert [each.pod.name for each in (await second.load()).pods] == ["new"]
    await second.close()


async def test_a_damaged_ledger_and_a_damaged_checkpoint_are_an_empty_start(
    ledger: Ledger, tmp_path: Path
) -> None:
    """No further source exists. Both files are reported to the operator."""
    ledger.path.write_text("garbage")
    (tmp_path / "checkpoint").write_text("garbage")
    kept = await ledger.load()
    assert (kept.pods, len(kept.damage)) == ([], 2)


async def test_a_start_fails_if_the_ledger_cannot_be_used(ledger: Ledger) -> None:
    """The ledger stays where it is."""
    ledger.path.mkdir()
    with pytest.raises(LedgerUnusable) as error:
        await ledger.load()
    assert isinstance(error.value, CannotAsk)
    assert error.value.exit_code == 3
    assert ledger.path.is_dir()


# ---------------------------------------------------------------- changes


async def test_a_commit_survives_a_restart(ledger: Ledger) -> None:
    """A release survives too."""
    await ledger.load()
    for name in ("p", "q"):
        await ledger.commit(*admitted(name)[:2])
    await ledger.release([pod("p").uid, "nobody"])
    await ledger.keep_resources([WIDGET])
    await ledger.close()
    kept = await ledger.load()
    assert (kept.pods, kept.resources) == ([admitted("q")], [WIDGET])


async def test_pods_keep_the_order_of_their_admission(ledger: Ledger) -> None:
    """After every start."""
    for name in ("z", "m", "a"):
        await ledger.load()
        await ledger.commit(*admitted(name)[:2])
        await ledger.close()
    assert [each.pod.name for each in (await ledger.load()).pods] == ["z", "m", "a"]


async def test_after_a_reboot_each_pod_is_of_an_earlier_boot_until_verified(
    ledger: Ledger, boot_id_file: Path
) -> None:
    """Also after further starts."""
    await ledger.load()
    await ledger.commit(*admitted("p")[:2])
    await ledger.commit(*admitted("q")[:2])
    boot_id_file.write_text("boot-2")
    for _ in range(2):
        await ledger.close()
        kept = await ledger.load()
        assert [each.is_of_this_boot for each in kept.pods] == [False, False]
    await ledger.mark_verified(pod("p").uid)
    await ledger.close()
    assert [each.is_of_this_boot for each in (await ledger.load()).pods] == [True, False]


async def test_a_closed_ledger_refuses_changes(ledger: Ledger) -> None:
    """A late commit or release gets an error. A second close changes nothing."""
    await ledger.load()
    await ledger.commit(*admitted("p")[:2])
    await ledger.close()
    await ledger.close()
    with pytest.raises(LedgerWriteFailed, match="the node has stopped"):
        await ledger.commit(pod("q"), holdings(pod("q")))
    with pytest.raises(LedgerWriteFailed, match="the node has stopped"):
        await ledger.release([pod("p").uid])
    assert (await ledger.load()).pods == [admitted("p")]


class SlowDisk:
    """Counts transactions. The first transaction waits until `disk_answers` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.disk_answers = 0, threading.Event()
        real = LedgerFile.make

        def make(file: LedgerFile, changes: Sequence[Callable[[LedgerFile], None]]) -> Any:
            self.begun += 1
            assert self.disk_answers.wait(60)
            return real(file, changes)

        monkeypatch.setattr(LedgerFile, "make", make)


async def begin_a_slow_write(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    await ledger.load()
    disk = SlowDisk(monkeypatch)
    ledger.commit(Pod("first"), ())
    await until(lambda: disk.begun)
    return disk


async def test_the_event_loop_runs_while_the_disk_is_slow(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread of the ledger makes all changes, in sequence."""
    threads = []
    disk_answers = threading.Event()

    def slow(*_: object) -> None:
        threads.append(threading.current_thread().name)
        assert disk_answers.wait(60), "the event loop was blocked"

    await ledger.load()
    monkeypatch.setattr(LedgerFile, "commit", slow)
    work = asyncio.gather(*(ledger.commit(*admitted(name)[:2]) for name in "abc"))
    await until(lambda: threads)
    assert len(threads) == 1
    assert not work.done()
    disk_answers.set()
    await work
    assert len(threads) == 3
    assert len({*threads}) == 1
    assert threads[0].startswith("kubedevices ledger")


async def test_commits_during_a_write_share_the_next_transaction(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten pods and a release need one transaction.

    Each caller gets an answer, and all are stored.
    """
    disk = await begin_a_slow_write(ledger, monkeypatch)
    work = [ledger.commit(*admitted(f"p{number}")[:2]) for number in range(10)]
    work.append(ledger.release(["default/first"]))
    disk.disk_answers.set()
    await asyncio.gather(*work)
    assert disk.begun == 2
    await ledger.close()
    assert (await ledger.load()).pods == [admitted(f"p{number}") for number in range(10)]


async def test_a_pod_that_cannot_be_written_fails_alone(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that no file can store is an error for its pod, not for the others of the
    transaction.
    """
    disk = await begin_a_slow_write(ledger, monkeypatch)
    names = ("p", "half a character \ud800", "q")
    work = [ledger.commit(Pod(name), ()) for name in names]
    disk.disk_answers.set()
    good, bad, other = await asyncio.gather(*work, return_exceptions=True)
    assert (good, other) == (None, None)
    assert isinstance(bad, LedgerWriteFailed)
    await ledger.close()
    assert [each.pod.name for each in (await ledger.load()).pods] == ["first", "p", "q"]


async def test_close_writes_waiting_commits(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each caller gets an answer."""
    disk = await begin_a_slow_write(ledger, monkeypatch)
    work = [ledger.commit(*admitted(name)[:2]) for name in "pq"]
    closing = asyncio.create_task(ledger.close())
    await asyncio.sleep(0)
    disk.disk_answers.set()
    await closing
    await asyncio.gather(*work)
    assert [each.pod.name for each in (await ledger.load()).pods] == ["first", "p", "q"]


async def test_the_log_is_shortened_after_many_changes(ledger: Ledger) -> None:
    """Each change is still there at the next start."""
    await ledger.load()
    log = Path(f"{ledger.path}-wal")
    sizes = []
    for number in range(2 * _CHANGES_PER_LOG + 20):
        await ledger.commit(Pod(f"p{number}"), ())
        sizes.append(log.stat().st_size)
    assert sizes[-1] < 1.5 * sizes[_CHANGES_PER_LOG]
    await ledger.close()
    assert len((await ledger.load()).pods) == 2 * _CHANGES_PER_LOG + 20


async def test_a_long_log_is_shortened_at_the_start(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the log of a node that is killed again and again would grow."""
    await ledger.load()
    for number in range(50):
        await ledger.commit(*admitted(f"p{number}")[:2])
    await asyncio.to_thread(shutil.copytree, tmp_path, tmp_path / "copy")
    copy = Ledger(tmp_path / "copy", tmp_path / "none")
    monkeypatch.setattr("kubedevices.node.ledger.ledger._LONG_LOG", 100_000)
    main = copy.path.stat().st_size
    assert Path(f"{copy.path}-wal").stat().st_size > 100_000
    assert len((await copy.load()).pods) == 50
    await until(lambda: copy.path.stat().st_size > main)
    await copy.close()


async def test_a_log_that_cannot_be_shortened_is_no_error(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No admission fails. The failure is logged."""

    def full(_: LedgerFile) -> None:
        raise LedgerWriteFailed("no space")

    await ledger.load()
    monkeypatch.setattr(LedgerFile, "shorten_log", full)
    for number in range(_CHANGES_PER_LOG):
        await ledger.commit(Pod(f"p{number}"), ())
    await ledger.close()
    assert "the ledger's log stays long: failed to write" in caplog.text


async def test_a_start_needs_the_same_number_of_queries_for_any_number_of_pods(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The duration of a start is measured by `python -m benchmarks`."""
    statements: list[str] = []

    def traced(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.set_trace_callback(statements.append)
        return connection

    connect = ledger_file.connect
    monkeypatch.setattr(ledger_file, "connect", traced)
    counts = []
    for size in (2, 1000):
        ledger.path.unlink(missing_ok=True)
        pods = [admitted(f"p{number}", number) for number in range(size)]
        LedgerFile.create(ledger.path, pods, (), BOOT).close()
        statements.clear()
        assert len((await ledger.load()).pods) == size
        counts.append(len(statements))
        await ledger.close()
    assert counts[0] == counts[1]
