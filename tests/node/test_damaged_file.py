"""Damaged files are kept under another name."""

import logging
import re
from pathlib import Path

import pytest

from kubedevices.errors import CannotAsk
from kubedevices.node.damaged_file import set_aside


def test_a_damaged_file_keeps_its_content(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Under its name and the time, which the log tells as an error."""
    (tmp_path / "file").write_text("garbage")
    damage = set_aside(tmp_path / "file", "it is garbage")
    assert not (tmp_path / "file").exists()
    assert damage.kept_as.read_text() == "garbage"
    assert re.fullmatch(r"file\.corrupt-\d{8}T\d{6}Z", damage.kept_as.name)
    assert damage.as_dict() == {
        "file": str(tmp_path / "file"),
        "kept_as": str(damage.kept_as),
        "reason": "it is garbage",
    }
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "it is garbage" in caplog.text


def test_companions_go_with_it(tmp_path: Path) -> None:
    """Those that are there; a log must not be left to the next file of that name."""
    (tmp_path / "db").write_text("main")
    (tmp_path / "db-wal").write_text("log")
    kept_as = set_aside(tmp_path / "db", "no", companions=("-wal", "-shm")).kept_as
    assert {path.name for path in tmp_path.iterdir()} == {kept_as.name, f"{kept_as.name}-wal"}


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """Two damages within a second get two names, as does one whose companion would collide."""
    kept = []
    for text in ("one", "two", "three"):
        (tmp_path / "db").write_text(text)
        kept.append(set_aside(tmp_path / "db", "no").kept_as)
    assert [path.read_text() for path in kept] == ["one", "two", "three"]
    (tmp_path / "db-wal").write_text("log")
    alone = set_aside(tmp_path / "db", "no", companions=("-wal",)).kept_as
    (tmp_path / "db").write_text("main")
    assert set_aside(tmp_path / "db", "no", companions=("-wal",)).kept_as != alone


def test_a_damaged_file_that_cannot_be_put_aside_is_an_error(tmp_path: Path) -> None:
    """With the reason for both: what is damaged, and what stands in the way."""
    long = tmp_path / ("x" * 250)
    long.write_text("garbage")
    with pytest.raises(CannotAsk, match=r"x is damaged \(no\) and cannot be renamed: File name"):
        set_aside(long, "no")
    assert long.read_text() == "garbage"
