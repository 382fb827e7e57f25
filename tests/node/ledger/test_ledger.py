"""The ledger as the store of a node: where it begins, what it waits for, what it survives."""

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
    """The machine's boot ID, for a test to change."""
    file = tmp_path / "boot_id"
    file.write_text(f"{BOOT}\n")
    return file


@pytest.fixture
async def ledger(tmp_path: Path, boot_id_file: Path) -> AsyncIterator[Ledger]:
    """A ledger that was not loaded yet."""
    made = Ledger(tmp_path, tmp_path / "checkpoint", boot_id_file)
    yield made
    await made.close()


# ---------------------------------------------------------------- beginning


async def test_the_first_start_is_empty(ledger: Ledger) -> None:
    """And makes the file, so that the second one is not the first again."""
    assert not any(await ledger.load())
    assert ledger.path.exists()


async def test_it_begins_with_what_a_kubelet_left(ledger: Ledger, tmp_path: Path) -> None:
    """Its pods are known by their uid; what they hold is held, and from an unknown boot."""
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


async def test_the_checkpoint_is_read_once(ledger: Ledger, tmp_path: Path) -> None:
    """From then on the ledger is the truth, whatever stands in that file."""
    await ledger.load()
    text = format_checkpoint(
        checkpoint_of(holdings(pod()), {WIDGET: ["w0"]}, CONTAINER_RESPONSE.to_wire)
    )
    (tmp_path / "checkpoint").write_bytes(text)
    await ledger.close()
    assert not (await ledger.load()).pods


async def test_a_checkpoint_of_this_boot_says_so(ledger: Ledger, tmp_path: Path) -> None:
    """Newer kubelets write the boot's ID beside it."""
    text = format_checkpoint(
        checkpoint_of(holdings(pod()), {}, CONTAINER_RESPONSE.to_wire, boot_id=BOOT)
    )
    (tmp_path / "checkpoint").write_bytes(text)
    assert (await ledger.load()).pods[0].is_of_this_boot


async def test_a_checkpoint_from_before_1_20_is_moved_in(ledger: Ledger, tmp_path: Path) -> None:
    """T-16: its devices go under NUMA node 0."""
    (tmp_path / "checkpoint").write_bytes(
        (GOLDEN / "checkpoints_v1" / "v1_two_pods.json").read_bytes()
    )
    kept = await ledger.load()
    held = [dict(each.held.devices_per_numa) for pod in kept.pods for each in pod.holdings]
    assert held == [{0: ["gpu-0", "gpu-1"]}, {0: ["gpu-2"]}]


async def test_a_damaged_checkpoint_is_kept_aside_and_reported(
    ledger: Ledger, tmp_path: Path
) -> None:
    """T-17: nobody's devices are forgotten silently."""
    bad = (GOLDEN / "checkpoints_bad" / "modified_device.json").read_bytes()
    (tmp_path / "checkpoint").write_bytes(bad)
    kept = await ledger.load()
    (damage,) = kept.damage
    assert not kept.pods
    assert damage.reason == "checkpoint is corrupted"
    assert damage.kept_as.read_bytes() == bad
    assert not (tmp_path / "checkpoint").exists()


async def test_an_entry_that_cannot_be_decoded_is_told(
    ledger: Ledger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are moved in."""
    entries = (
        CheckpointEntry("p", "c", WIDGET, {-1: ("a",)}, b"\xff"),
        CheckpointEntry("q", "c", WIDGET, {-1: ("b",)}, b""),
    )
    (tmp_path / "checkpoint").write_bytes(format_checkpoint(Checkpoint(entries, {})))
    assert [each.pod.uid for each in (await ledger.load()).pods] == ["q"]
    assert "the Allocate answer for container c of pod p cannot be read" in caplog.text


async def test_a_checkpoint_without_a_uid_can_be_moved_in(ledger: Ledger, tmp_path: Path) -> None:
    """And comes back at the next start."""
    entry = CheckpointEntry("", "c", WIDGET, {-1: ("a",)}, b"")
    (tmp_path / "checkpoint").write_bytes(format_checkpoint(Checkpoint((entry,), {})))
    kept = await ledger.load()
    await ledger.close()
    assert (await ledger.load()).pods == kept.pods


async def test_a_checkpoint_that_may_not_be_read_ends_the_start(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To begin without it would be to give devices away twice; the next start tries again."""

    def fail(*_: object, **__: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr("kubedevices.host.untrusted_files.read_bytes", fail)
        with pytest.raises(CannotRead, match="Input/output error"):
            await ledger.load()
    await ledger.load()


async def test_a_damaged_ledger_gives_way_to_the_checkpoint(ledger: Ledger, tmp_path: Path) -> None:
    """That file may be a second behind, but it is the best there is; all is reported."""
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


async def test_a_damaged_row_gives_way_too(ledger: Ledger) -> None:
    """The file's structure is in order, what it says is not; the log goes aside with it."""
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


async def test_the_log_of_a_damaged_ledger_goes_with_it(ledger: Ledger, tmp_path: Path) -> None:
    """It must not be put over the new one."""
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


async def test_both_damaged_is_an_empty_start_that_is_told_twice(
    ledger: Ledger, tmp_path: Path
) -> None:
    """Nothing else is left to do; an operator must see it."""
    ledger.path.write_text("garbage")
    (tmp_path / "checkpoint").write_text("garbage")
    kept = await ledger.load()
    assert (kept.pods, len(kept.damage)) == ([], 2)


async def test_a_ledger_that_cannot_be_used_ends_the_start(ledger: Ledger) -> None:
    """It stays where it is."""
    ledger.path.mkdir()
    with pytest.raises(LedgerUnusable) as error:
        await ledger.load()
    assert isinstance(error.value, CannotAsk)
    assert error.value.exit_code == 3
    assert ledger.path.is_dir()


# ---------------------------------------------------------------- changes


async def test_a_commit_survives_a_restart(ledger: Ledger) -> None:
    """And what was released is not."""
    await ledger.load()
    for name in ("p", "q"):
        await ledger.commit(*admitted(name)[:2])
    await ledger.release([pod("p").uid, "nobody"])
    await ledger.keep_resources([WIDGET])
    await ledger.close()
    kept = await ledger.load()
    assert (kept.pods, kept.resources) == ([admitted("q")], [WIDGET])


async def test_pods_stay_in_the_order_of_their_admission(ledger: Ledger) -> None:
    """Through every start."""
    for name in ("z", "m", "a"):
        await ledger.load()
        await ledger.commit(*admitted(name)[:2])
        await ledger.close()
    assert [each.pod.name for each in (await ledger.load()).pods] == ["z", "m", "a"]


async def test_a_reboot_is_seen_and_forgotten_pod_by_pod(
    ledger: Ledger, boot_id_file: Path
) -> None:
    """Until a pod was confirmed it is from before, also after further starts."""
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


async def test_a_closed_ledger_refuses_commits(ledger: Ledger) -> None:
    """A pod that comes or goes too late is told so; closing twice is harmless."""
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
    """Counts transactions, of which the first waits until `disk_answers`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.disk_answers = 0, threading.Event()
        real = LedgerFile.make

        def make(file: LedgerFile, changes: Sequence[Callable[[LedgerFile], None]]) -> Any:
            self.begun += 1
            assert self.disk_answers.wait(60)
            return real(file, changes)

        monkeypatch.setattr(LedgerFile, "make", make)


async def one_is_being_written(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    await ledger.load()
    disk = SlowDisk(monkeypatch)
    ledger.commit(Pod("first"), ())
    await until(lambda: disk.begun)
    return disk


async def test_the_loop_goes_on_while_the_disk_is_slow(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every change is made on one thread of the ledger's own, one after the other."""
    threads = []
    disk_answers = threading.Event()

    def slow(*_: object) -> None:
        threads.append(threading.current_thread().name)
        assert disk_answers.wait(60), "the loop stood still"

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
    """Ten pods and a release wait for the disk once; all of them are told, and kept."""
    disk = await one_is_being_written(ledger, monkeypatch)
    work = [ledger.commit(*admitted(f"p{number}")[:2]) for number in range(10)]
    work.append(ledger.release(["default/first"]))
    disk.disk_answers.set()
    await asyncio.gather(*work)
    assert disk.begun == 2
    await ledger.close()
    assert (await ledger.load()).pods == [admitted(f"p{number}") for number in range(10)]


async def test_an_unwritable_pod_fails_alone(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that no file can hold is the matter of its pod, not of those that came with it."""
    disk = await one_is_being_written(ledger, monkeypatch)
    names = ("p", "half a character \ud800", "q")
    work = [ledger.commit(Pod(name), ()) for name in names]
    disk.disk_answers.set()
    good, bad, other = await asyncio.gather(*work, return_exceptions=True)
    assert (good, other) == (None, None)
    assert isinstance(bad, LedgerWriteFailed)
    await ledger.close()
    assert [each.pod.name for each in (await ledger.load()).pods] == ["first", "p", "q"]


async def test_waiting_commits_are_written_before_the_stop(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is left without an answer."""
    disk = await one_is_being_written(ledger, monkeypatch)
    work = [ledger.commit(*admitted(name)[:2]) for name in "pq"]
    closing = asyncio.create_task(ledger.close())
    await asyncio.sleep(0)
    disk.disk_answers.set()
    await closing
    await asyncio.gather(*work)
    assert [each.pod.name for each in (await ledger.load()).pods] == ["first", "p", "q"]


async def test_the_log_is_shortened_behind_an_answer(ledger: Ledger) -> None:
    """After some hundred changes; every one of them is there at the next start."""
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
    """A node that is killed again and again would never come to it otherwise."""
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


async def test_a_log_that_cannot_be_shortened_is_only_long(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody's admission fails because of it."""

    def full(_: LedgerFile) -> None:
        raise LedgerWriteFailed("no space")

    await ledger.load()
    monkeypatch.setattr(LedgerFile, "shorten_log", full)
    for number in range(_CHANGES_PER_LOG):
        await ledger.commit(Pod(f"p{number}"), ())
    await ledger.close()
    assert "the ledger's log stays long: failed to write" in caplog.text


async def test_a_start_asks_the_file_as_often_for_a_thousand_pods_as_for_two(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a start costs in seconds is measured by `python -m benchmarks`."""
    statements: list[str] = []

    def traced(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.set_trace_callback(statements.append)
        return connection

    connect = ledger_file._connect
    monkeypatch.setattr(ledger_file, "_connect", traced)
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
