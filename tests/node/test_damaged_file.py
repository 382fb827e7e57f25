"""A damaged file is renamed, never deleted."""

import logging
import re
from pathlib import Path

import pytest

from kubedevices.errors import CannotAsk
from kubedevices.node.damaged_file import set_aside


def test_a_damaged_file_is_renamed_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The new name ends with the time. One log line of level error has the reason."""
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


def test_companion_files_are_renamed_too(tmp_path: Path) -> None:
    """Only the companion files that exist. SQLite must not apply an old log to a new database."""
    (tmp_path / "db").write_text("main")
    (tmp_path / "db-wal").write_text("log")
    kept_as = set_aside(tmp_path / "db", "no", companions=("-wal", "-shm")).kept_as
    assert {path.name for path in tmp_path.iterdir()} == {kept_as.name, f"{kept_as.name}-wal"}


def test_a_second_damaged_file_does_not_replace_the_first(tmp_path: Path) -> None:
    """Two damaged files within a second get two names.

    A name is also taken if only the name of a companion file exists.
    """
    kept = []
    for text in ("one", "two", "three"):
        (tmp_path / "db").write_text(text)
        kept.append(set_aside(tmp_path / "db", "no").kept_as)
    assert [path.read_text() for path in kept] == ["one", "two", "three"]
    (tmp_path / "db-wal").write_text("log")
    alone = set_aside(tmp_path / "db", "no", companions=("-wal",)).kept_as
    (tmp_path / "db").write_text("main")
    assert set_aside(tmp_path / "db", "no", companions=("-wal",)).kept_as != alone


def test_a_damaged_file_that_cannot_be_renamed_is_an_error(tmp_path: Path) -> None:
    """The error says why the file is damaged and why the file cannot be renamed."""
    long = tmp_path / ("x" * 250)
    long.write_text("garbage")
    with pytest.raises(CannotAsk, match=r"x is damaged \(no\) and cannot be renamed: File name"):
        set_aside(long, "no")
    assert long.read_text() == "garbage"
