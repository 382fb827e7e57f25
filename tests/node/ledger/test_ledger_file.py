"""The file of the ledger: written pods are read again, and every damage is detected."""

import random
import sqlite3
import stat
from pathlib import Path

import pytest

from kubedevices.errors import LedgerDamaged, LedgerUnusable, LedgerWriteFailed
from kubedevices.node.ledger.ledger_file import LedgerFile
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.pods.pod_devices import Holding
from tests.ledger_rows import BOOT, GADGET, WIDGET, admitted, crashed, held, holdings, pod, reopened

OTHER_BOOT = "boot-2"


# ---------------------------------------------------------------- written and read again


def test_pods_are_read_as_they_were_written(path: Path, ledger: LedgerFile) -> None:
    """Manifests, devices per NUMA node and answers, in the order of admission."""
    kept = [admitted(name, number * 10) for number, name in enumerate(("z", "a", "m"))]
    for each, of, _ in kept:
        ledger.commit(each, of, BOOT)
    ledger.close()
    assert reopened(path) == kept


def test_a_second_commit_adds_to_the_first(path: Path, ledger: LedgerFile) -> None:
    """Devices of other resources stay. The pod is the one that was given last."""
    first, second = holdings(pod())[:1], [Holding(pod().uid, "aside", GADGET, held("g9"))]
    ledger.commit(pod(), first, BOOT)
    changed = Pod("p", "space", containers=(Container("aside", {GADGET: 1}),))
    ledger.commit(changed, second, BOOT)
    ledger.close()
    (kept,) = reopened(path)
    assert kept.pod == changed
    assert {each.container: each for each in kept.holdings} == {
        each.container: each for each in first + second
    }


def test_a_released_pod_is_removed_with_its_devices(path: Path, ledger: LedgerFile) -> None:
    """Other pods stay. An unknown pod is no error."""
    ledger.commit(*admitted("p")[:2], BOOT)
    ledger.commit(*admitted("q")[:2], BOOT)
    ledger.release([pod("p").uid, "nobody"])
    ledger.close()
    assert [each.pod.name for each in reopened(path)] == ["q"]


def test_a_pod_belongs_to_the_boot_of_its_admission_or_verification(
    path: Path, ledger: LedgerFile
) -> None:
    """A second commit does not change the boot: it may have been made without the plugin."""
    for name in ("old", "again", "confirmed"):
        ledger.commit(*admitted(name)[:2], OTHER_BOOT)
    ledger.commit(pod("again"), (), BOOT)
    ledger.commit(*admitted("new")[:2], BOOT)
    ledger.mark_verified(pod("confirmed").uid, BOOT)
    ledger.close()
    of_this_boot = {each.pod.name: each.is_of_this_boot for each in reopened(path)}
    assert of_this_boot == {"old": False, "again": False, "confirmed": True, "new": True}


def test_an_unknown_boot_is_never_this_boot(path: Path) -> None:
    """Two unknown boot IDs are not the same boot."""
    LedgerFile.create(path, [admitted()], (), "").close()
    assert not reopened(path, "")[0].is_of_this_boot


def test_stored_resources_are_replaced(ledger: LedgerFile) -> None:
    """Only the last set is stored."""
    ledger.keep_resources([WIDGET])
    ledger.keep_resources([GADGET, "example.com/third"])
    assert sorted(ledger.load(BOOT)[1]) == [GADGET, "example.com/third"]


def test_a_new_ledger_can_be_created_with_pods(path: Path) -> None:
    """All pods are written or none, each with its boot."""
    pods = [admitted("now"), admitted("before", 10, is_of_this_boot=False)]
    ledger = LedgerFile.create(path, pods, [WIDGET], BOOT)
    assert ledger.load(BOOT) == (pods, [WIDGET])
    ledger.close()
    assert {each.name for each in path.parent.iterdir()} == {path.name}


def test_the_log_is_moved_into_the_main_file(path: Path, ledger: LedgerFile) -> None:
    """The log starts again, so it does not grow without end."""
    lengths = []
    for round_ in range(3):
        for number in range(50):
            ledger.commit(*admitted(f"p{round_}-{number}")[:2], BOOT)
        ledger.shorten_log()
        lengths.append(Path(f"{path}-wal").stat().st_size)
    assert lengths[2] < 2 * lengths[0]
    copy = crashed(path, path.parent / "copy")
    Path(f"{copy}-wal").unlink()
    assert len(reopened(copy)) == 150


def test_only_the_owner_may_read_the_ledger(path: Path, ledger: LedgerFile) -> None:
    """Main file and log, with any mode of the directory."""
    ledger.commit(*admitted()[:2], BOOT)
    for ending in ("", "-wal"):
        assert stat.S_IMODE(Path(f"{path}{ending}").stat().st_mode) == 0o600
    assert not Path(f"{path}-shm").exists()


def test_a_change_is_on_the_disk_when_it_is_answered(ledger: LedgerFile) -> None:
    """The log is synchronised at each commit.

    A test cannot cut the power, so it reads the settings.
    """
    pragmas = {"synchronous": 2, "journal_mode": "wal", "wal_autocheckpoint": 0}
    for pragma, value in pragmas.items():
        assert ledger._connection.execute(f"PRAGMA {pragma}").fetchone() == (value,)


def test_unusual_texts_are_stored(path: Path, ledger: LedgerFile) -> None:
    """A device ID can be any text."""
    odd = ("", "\0", "\ud800", "a'b\";--", "é" * 100)
    of = [Holding(pod().uid, "main", WIDGET, held(*odd[:2], *odd[3:]))]
    of[0].held.devices_per_numa[-1].append(odd[2])
    ledger.commit(pod(), of, BOOT)
    ledger.close()
    assert reopened(path)[0].holdings == of


def test_a_text_that_cannot_be_stored_is_refused(path: Path, ledger: LedgerFile) -> None:
    """For example, a lone surrogate in the name of a pod. Nothing of the pod is stored."""
    with pytest.raises(LedgerWriteFailed, match="surrogates not allowed"):
        ledger.commit(*admitted("\ud800")[:2], BOOT)
    ledger.commit(*admitted("q")[:2], BOOT)
    ledger.close()
    assert len(reopened(path)) == 1


# ---------------------------------------------------------------- damage


def test_a_missing_ledger_is_not_damaged(path: Path) -> None:
    """The ledger is missing at the first start."""
    assert LedgerFile.open(path) is None


@pytest.fixture
def filled(path: Path) -> Path:
    """Return a closed ledger with twelve pods, all in the main file."""
    pods = [admitted(f"p{number}", number * 10) for number in range(12)]
    LedgerFile.create(path, pods, [WIDGET, GADGET], BOOT).close()
    return path


def is_damaged(path: Path) -> bool:
    try:
        reopened(path)
    except LedgerDamaged as error:
        return (error.path, bool(error.reason)) == (str(path), True)
    return False


def test_a_truncated_main_file_is_damaged(filled: Path) -> None:
    """At many lengths, down to one missing byte."""
    data = filled.read_bytes()
    lengths = {*range(0, len(data), 61), *range(120), *range(len(data) - 120, len(data))}
    for page in range(0, len(data), 4096):
        lengths |= {page - 1, page, page + 1}
    for length in sorted(lengths & {*range(len(data))}):
        filled.write_bytes(data[:length])
        assert is_damaged(filled), length
    filled.write_bytes(data)
    assert len(reopened(filled)) == 12


def test_a_truncated_main_file_says_how_much_is_missing(filled: Path) -> None:
    """So that operators can find out what happened to the disk."""
    data = filled.read_bytes()
    filled.write_bytes(data[:4096])
    with pytest.raises(LedgerDamaged, match=f"it has 4096 bytes instead of {len(data)}"):
        LedgerFile.open(filled)


def test_overwritten_bytes_are_detected_or_change_nothing(filled: Path) -> None:
    """In every part of the file: the ledger never has other pods or other devices than before."""
    data, right = filled.read_bytes(), reopened(filled)
    dice = random.Random(3)
    damaged = 0
    for start in range(0, len(data), 97):
        garbage = dice.randbytes(dice.choice((1, 4, 40)))
        filled.write_bytes(data[:start] + garbage + data[start + len(garbage) :])
        if is_damaged(filled):
            damaged += 1
        else:
            assert [each[:2] for each in reopened(filled)] == [each[:2] for each in right]
    assert damaged > 50


@pytest.mark.parametrize(
    "content",
    [b"", b"x", b"SQLite format 3\0", b"\0" * 100_000, b'{"Data":{}}' * 1000],
    ids=lambda content: f"{len(content)} bytes",
)
def test_a_file_that_is_no_database_is_damaged(path: Path, content: bytes) -> None:
    """An empty file is damaged too, because a ledger is never empty."""
    path.write_bytes(content)
    with pytest.raises(LedgerDamaged, match="it is not an SQLite file of a node"):
        LedgerFile.open(path)


def test_a_database_of_another_program_is_no_ledger(path: Path) -> None:
    """The error lets the node keep the file under another name, because its owner may need it."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE pod (uid)")
    connection.close()
    with pytest.raises(LedgerDamaged, match="an SQLite file, but not a ledger"):
        LedgerFile.open(path)


def test_a_log_without_its_main_file_is_damage(path: Path, ledger: LedgerFile) -> None:
    """SQLite must not apply the log to a new ledger."""
    ledger.commit(*admitted()[:2], BOOT)
    copy = crashed(path, path.parent / "copy")
    copy.unlink()
    with pytest.raises(LedgerDamaged, match="its log exists, but the file is missing"):
        LedgerFile.open(copy)


def edit(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE pod SET name = 'other' WHERE uid = 'space/p3'",
        "UPDATE pod SET containers = '{}' WHERE uid = 'space/p3'",
        "UPDATE holding SET devices = '{\"-1\":[\"w9\"]}' WHERE pod_uid = 'space/p3'",
        "UPDATE holding SET response = x'00' WHERE pod_uid = 'space/p3'",
        "UPDATE holding SET resource = 'example.com/x' WHERE container = 'proxy'",
        "UPDATE holding SET response = 5 WHERE pod_uid = 'space/p3'",
        "UPDATE pod SET name = x'00' WHERE uid = 'space/p3'",
        "DELETE FROM pod WHERE uid = 'space/p3'",
        "DROP TABLE holding",
    ],
)
def test_a_changed_row_is_damage(filled: Path, statement: str) -> None:
    """The file is valid for SQLite, but kubedevices has a checksum for each row."""
    edit(filled, statement)
    assert is_damaged(filled)


def test_a_ledger_of_a_newer_version_is_not_changed(filled: Path) -> None:
    """The file is not damaged. The operator who goes back to an older version must decide."""
    edit(filled, "PRAGMA user_version = 2")
    with pytest.raises(LedgerUnusable, match="written by a newer kubedevices"):
        LedgerFile.open(filled)


def test_a_path_that_cannot_be_opened_is_not_damaged(path: Path) -> None:
    """A directory at the path, or a directory that does not exist."""
    path.mkdir()
    with pytest.raises(LedgerUnusable, match="Is a directory"):
        LedgerFile.open(path)
    with pytest.raises(LedgerUnusable, match=r"cannot use the ledger .*: No such file"):
        LedgerFile.create(path.parent / "none" / "ledger.db", (), (), BOOT)


def test_a_ledger_that_another_process_reads_is_not_damaged(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, an operator with a database shell: the error says that the file is locked."""
    monkeypatch.setattr("kubedevices.node.ledger.ledger_file._BUSY_TIMEOUT", 0.05)
    other = sqlite3.connect(filled)
    other.execute("BEGIN")
    other.execute("SELECT * FROM pod").fetchone()
    with pytest.raises(LedgerUnusable, match="database is locked"):
        LedgerFile.open(filled)
    other.close()
    LedgerFile.open(filled).close()  # type: ignore[union-attr]


def test_an_unfinished_new_ledger_is_replaced(path: Path) -> None:
    """A first start was killed: its temporary files are ignored."""
    path.with_name("ledger.db.new").write_text("half")
    path.with_name("ledger.db.new-wal").write_text("half")
    LedgerFile.create(path, (), (), BOOT).close()
    assert reopened(path) == []


# ---------------------------------------------------------------- full disk


def test_a_pod_is_not_stored_on_a_full_disk(path: Path, ledger: LedgerFile) -> None:
    """The error has the kubelet's words. When there is room again, the next pod is stored."""
    ledger.commit(*admitted("first")[:2], BOOT)
    connection = ledger._connection
    ((pages,),) = connection.execute("PRAGMA page_count")
    connection.execute(f"PRAGMA max_page_count = {pages}")
    refused = 0
    for number in range(100):
        try:
            ledger.commit(*admitted(f"p{number}")[:2], BOOT)
        except LedgerWriteFailed as error:
            refused += 1
            said = str(error)
    assert 50 < refused < 100
    assert said == (
        'failed to write checkpoint file "kubelet_internal_checkpoint": '
        f"{path}: database or disk is full"
    )
    connection.execute("PRAGMA max_page_count = 1000000")
    ledger.commit(*admitted("last")[:2], BOOT)
    ledger.close()
    kept = reopened(path)
    assert len(kept) == 2 + 100 - refused
    assert all(len(each.holdings) == 3 for each in kept)
