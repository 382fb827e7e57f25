"""Directories that strangers fill."""

import os
from pathlib import Path

import pytest

from kubedevices.host import listing


def deep_chain(directory: Path, levels: int = 30) -> None:
    """Create directories in each other whose whole path is longer than PATH_MAX."""
    here = os.open(directory, os.O_PATH)
    for _ in range(levels):
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_PATH, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def test_names_are_sorted_and_chosen(tmp_path: Path) -> None:
    """A directory that cannot be read is an error."""
    for name in ("b", "a", "c.json"):
        (tmp_path / name).touch()
    assert listing.names(tmp_path) == ["a", "b", "c.json"]
    assert listing.names(tmp_path, lambda name: name.endswith(".json")) == ["c.json"]
    with pytest.raises(OSError, match="No such file"):
        listing.names(tmp_path / "missing")


def test_too_many_names_are_left_out_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of names that match, and of names that are looked at."""
    for number in range(20):
        (tmp_path / f"{number:02}").touch()
    assert len(listing.names(tmp_path, limit=5)) == 5
    assert len(listing.names(tmp_path, scan=7)) == 7
    assert len(caplog.messages) == 1
    assert f"{tmp_path} has too many files" in caplog.text
    assert len(listing.names(tmp_path, limit=20, scan=20)) == 20


def test_only_some_levels_are_entered_and_no_links(tmp_path: Path) -> None:
    """A chain beyond PATH_MAX is no error either."""
    (tmp_path / "r/a/b/c").mkdir(parents=True)
    (tmp_path / "r/.hidden/x").mkdir(parents=True)
    (tmp_path / "r/link").symlink_to(tmp_path)
    deep_chain(tmp_path / "r")
    found = listing.below(tmp_path / "r", 2, enters=lambda name: not name.startswith("."))
    paths = {entry.path.removeprefix(f"{tmp_path}/r/") for entry in found}
    long = "d" * 200
    assert paths == {"a", "a/b", ".hidden", "link", long, f"{long}/{long}"}
    assert len(list(listing.below(tmp_path / "r", 100))) > 10


def test_a_folder_that_cannot_be_read_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not if the reason concerns every folder: then nothing is known."""
    for name in ("bad", "good"):
        (tmp_path / name / "inner").mkdir(parents=True)
    real, problem = os.scandir, 13

    def scandir(path: str) -> object:
        if path.endswith("bad"):
            raise OSError(problem, os.strerror(problem))
        return real(path)

    monkeypatch.setattr("os.scandir", scandir)
    assert sorted(entry.name for entry in listing.below(tmp_path, 2)) == ["bad", "good", "inner"]
    problem = 24
    with pytest.raises(OSError, match="Too many open files"):
        list(listing.below(tmp_path, 2))
