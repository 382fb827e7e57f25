"""A new ledger."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubedevices.node.ledger.ledger_file import LedgerFile
from tests.ledger_rows import BOOT


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the ledger."""
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[LedgerFile]:
    """Give a new ledger."""
    made = LedgerFile.create(path, (), (), BOOT)
    yield made
    made.close()
