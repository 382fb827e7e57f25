"""The log of the ledger: after a truncation or damage, the ledger has a complete earlier state."""

import random
from pathlib import Path

import pytest

from kubedevices.node.ledger.ledger_file import LedgerFile
from kubedevices.node.pods.pod_devices_store import AdmittedPod
from tests.ledger_rows import BOOT, admitted, crashed, reopened

Content = list[AdmittedPod]


def history(ledger: LedgerFile) -> list[Content]:
    """Add and remove pods; return the content after every change, with the first content."""
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
def test_a_truncated_log_gives_an_earlier_state(
    path: Path, ledger: LedgerFile, shortened: bool
) -> None:
    """The state is complete. With more of the log, the state is later or equal."""
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
            at += 1  # an IndexError here means: a state that never existed
    assert at == len(states) - 1


def test_an_overwritten_log_gives_an_earlier_state(path: Path, ledger: LedgerFile) -> None:
    """SQLite stops at the first page whose checksum is wrong."""
    states = history(ledger)
    copy = crashed(path, path.parent / "copy")
    main, log = copy.read_bytes(), Path(f"{copy}-wal")
    data = log.read_bytes()
    for start in range(0, len(data), 7919):
        copy.write_bytes(main)
        log.write_bytes(data[:start] + b"garbage" + data[start + 7 :])
        assert reopened(copy) in states


def test_a_log_that_was_just_moved_may_be_truncated(path: Path, ledger: LedgerFile) -> None:
    """Its old pages must not replace those of the main file."""
    states = history(ledger)
    ledger.shorten_log()
    copy = crashed(path, path.parent / "copy")
    main, log = copy.read_bytes(), Path(f"{copy}-wal")
    data = log.read_bytes()
    for length in range(0, len(data), 4001):
        copy.write_bytes(main)
        log.write_bytes(data[:length])
        assert reopened(copy) == states[-1]
