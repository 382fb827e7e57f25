"""The ledger's log: cut off or damaged, it gives an earlier state, and a whole one."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubedevices.node.ledger.ledger_file import LedgerFile
from kubedevices.node.pods.pod_devices_store import AdmittedPod
from tests.ledger_rows import BOOT, admitted, crashed, reopened

Content = list[AdmittedPod]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the ledger is."""
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[LedgerFile]:
    """A new ledger."""
    made = LedgerFile.create(path, (), (), BOOT)
    yield made
    made.close()


def history(ledger: LedgerFile) -> list[Content]:
    """Let pods come and go; return the content after every change, from the beginning on."""
    states: list[Content] = [[]]
    present: dict[str, AdmittedPod] = {}
    dice = random.Random(5)
    for number in range(40):
        if present and dice.random() < 0.4:
            name = dice.choice([*present])
            ledger.release([present.pop(name).pod.uid])
        else:
            present[str(number)] = admitted(str(number), number * 10)
            ledger.commit(*present[str(number)][:2], BOOT)
        states.append([*present.values()])
    return states


@pytest.mark.parametrize("shortened", [False, True])
def test_a_log_cut_off_anywhere_gives_an_earlier_state(
    path: Path, ledger: LedgerFile, shortened: bool
) -> None:
    """A whole one: the more is left of the log, the later; nothing of two states at once."""
    if shortened:
        history(ledger)
        ledger.release([each.pod.uid for each in ledger.load(BOOT)[0]])
        ledger.shorten_log()
    states = history(ledger)
    copy = crashed(path, path.parent / "copy")
    main, log = copy.read_bytes(), Path(f"{copy}-wal")
    data = log.read_bytes()
    at = 0
    for length in [*range(0, len(data), 3517), len(data)]:
        copy.write_bytes(main)
        log.write_bytes(data[:length])
        found = reopened(copy)
        while found != states[at]:
            at += 1  # past the end: a state that never was
    assert at == len(states) - 1


def test_garbage_in_the_log_gives_an_earlier_state(path: Path, ledger: LedgerFile) -> None:
    """SQLite stops at the first page whose checksum is wrong."""
    states = history(ledger)
    copy = crashed(path, path.parent / "copy")
    main, log = copy.read_bytes(), Path(f"{copy}-wal")
    data = log.read_bytes()
    for start in range(0, len(data), 7919):
        copy.write_bytes(main)
        log.write_bytes(data[:start] + b"garbage" + data[start + 7 :])
        assert reopened(copy) in states


def test_a_log_that_was_just_moved_may_be_cut_off(path: Path, ledger: LedgerFile) -> None:
    """Its old pages must not come back over those of the main file."""
    states = history(ledger)
    ledger.shorten_log()
    copy = crashed(path, path.parent / "copy")
    main, log = copy.read_bytes(), Path(f"{copy}-wal")
    data = log.read_bytes()
    for length in range(0, len(data), 4001):
        copy.write_bytes(main)
        log.write_bytes(data[:length])
        assert reopened(copy) == states[-1]
